"""A scheduler's step: many commits, frees, extensions and admissions as one unit of work.

`plan_step` checks everything and changes nothing; `PlannedStep.run` then does everything. What may still be
refused by then, for want of blocks, is listed in the reply.
"""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from blockyard.core.commands import Admission, Step, StepExtend
from blockyard.core.errors import (
    InsufficientBlocks,
    InvalidRequest,
    SequenceExistsElsewhere,
    SequenceNotFound,
)
from blockyard.core.ids import SequenceHandle
from blockyard.core.lease import Lease
from blockyard.core.replies import Admitted, Refused, StepExtended
from blockyard.core.sequence import Sequence
from blockyard.core.sequences import Content, Sequences


@dataclass(slots=True, kw_only=True)
class PlannedStep:
    """A step that has passed every check.

    Attributes:
        commits: Sequences and how many of their tokens are written.
        frees: Sequences to free.
        extends: Sequences to extend, with `contents` and the step's columns beside them.
        contents: What is new of each extended sequence's tokens.
        admissions: Per admission, what is new of its tokens.
    """

    step: Step
    commits: list[tuple[Sequence, int]]
    frees: list[Sequence]
    extends: list[Sequence]
    contents: list[Content]
    admissions: list[Content]

    def run(self, lease: Lease, sequences: Sequences) -> tuple[StepExtended, list[Admitted | Refused]]:
        """Do the step. Nothing else may have changed since it was planned."""
        for sequence, num_computed_tokens in self.commits:
            sequences.commit(sequence, num_computed_tokens, Content((), sequence.chain))
        for sequence in self.frees:
            del lease.sequences[sequence.sequence_id]
            sequences.free(sequence)
        extended = self._run_extends(sequences)
        admitted = [
            _admit(admission, content, lease, sequences)
            for admission, content in zip(self.step.admit, self.admissions, strict=True)
        ]
        return extended, admitted

    def _run_extends(self, sequences: Sequences) -> StepExtended:
        columns = self.step.extend
        computed: SequenceOf[int | None] = columns.num_computed_tokens or [None] * len(self.extends)
        granted, block_ids, insufficient = [], [], []
        for sequence, num_tokens, num_computed_tokens, content in zip(
            self.extends, columns.num_tokens, computed, self.contents, strict=True
        ):
            try:
                _, appended = sequences.extend(
                    sequence,
                    num_tokens=num_tokens,
                    num_computed_tokens=num_computed_tokens,
                    num_lookahead_tokens=columns.num_lookahead_tokens,
                    content=content,
                )
            except InsufficientBlocks:
                insufficient.append(sequence.handle)
            else:
                granted.append(sequence.handle)
                block_ids.append(appended)
        return StepExtended(sequences=granted, block_ids=block_ids, insufficient=insufficient)


def plan_step(step: Step, lease: Lease, sequences: Sequences) -> PlannedStep:
    """Check ``step`` of ``lease``. Changes nothing.

    Raises:
        SequenceNotFound: A handle is not one of the lease's sequences.
        InvalidRequest: Columns, counts or content are not valid, or contradict each other.
    """
    commits = _plan_commits(step, lease, sequences)
    frees = _resolve("free", step.free, lease, sequences)
    extends = _resolve("extend", step.extend.sequences, lease, sequences)
    freed = set(step.free)
    if not freed.isdisjoint(step.extend.sequences):
        raise InvalidRequest.of("extend.sequences", "a sequence is freed and extended in one step")
    committed = dict(zip(step.commit.sequences, step.commit.num_computed_tokens, strict=True))
    contents = _plan_extends(step.extend, extends, committed, sequences)
    admissions = _plan_admissions(step.admit, freed, lease, sequences)
    return PlannedStep(
        step=step, commits=commits, frees=frees, extends=extends, contents=contents, admissions=admissions
    )


def _resolve(
    column: str, handles: SequenceOf[SequenceHandle], lease: Lease, sequences: Sequences
) -> list[Sequence]:
    found = []
    for handle in handles:
        sequence = sequences.by_handle(handle)
        if sequence is None or sequence.lease_id != lease.lease_id:
            raise SequenceNotFound(
                f"{column}.sequences: the lease holds no sequence of handle {handle}; nothing was done"
            )
        found.append(sequence)
    if len(set(handles)) != len(handles):
        raise InvalidRequest.of(f"{column}.sequences", "names a sequence twice")
    return found


def _plan_commits(step: Step, lease: Lease, sequences: Sequences) -> list[tuple[Sequence, int]]:
    found = _resolve("commit", step.commit.sequences, lease, sequences)
    _require_equal_length("commit.num_computed_tokens", step.commit.num_computed_tokens, found)
    for sequence, num_computed_tokens in zip(found, step.commit.num_computed_tokens, strict=True):
        sequences.check_commit(sequence, num_computed_tokens)
    return list(zip(found, step.commit.num_computed_tokens, strict=True))


def _plan_extends(
    columns: StepExtend,
    extends: list[Sequence],
    committed: dict[SequenceHandle, int],
    sequences: Sequences,
) -> list[Content]:
    if columns.num_lookahead_tokens < 0:
        raise InvalidRequest.of("extend.num_lookahead_tokens", "must be at least 0")
    _require_equal_length("extend.num_tokens", columns.num_tokens, extends)
    computed = columns.num_computed_tokens
    if computed is not None:
        _require_equal_length("extend.num_computed_tokens", computed, extends)
    for name in ("block_hashes", "token_ids"):
        if not getattr(columns, name).keys() <= set(columns.sequences):
            raise InvalidRequest.of(f"extend.{name}", "names a sequence that is not extended")
    contents = []
    for position, sequence in enumerate(extends):
        handle = sequence.handle
        sequences.check_extension(
            sequence,
            columns.num_tokens[position],
            None if computed is None else computed[position],
            max(sequence.num_committed_tokens, committed.get(handle, 0)),
        )
        contents.append(
            sequences.content(
                sequence, columns.block_hashes.get(handle, ()), columns.token_ids.get(handle, ())
            )
        )
    return contents


def _plan_admissions(
    admit: SequenceOf[Admission], freed: set[SequenceHandle], lease: Lease, sequences: Sequences
) -> list[Content]:
    named = set()
    contents = []
    for admission in admit:
        sequence_id = admission.sequence_id
        known = lease.sequences.get(sequence_id)
        if sequence_id in named or (known is not None and known.handle not in freed):
            raise InvalidRequest.of(
                "admit.sequence_id", f"{sequence_id!r} is admitted already: extend it, or free it first"
            )
        named.add(sequence_id)
        contents.append(sequences.check_admission(admission, None))
    return contents


def _admit(admission: Admission, content: Content, lease: Lease, sequences: Sequences) -> Admitted | Refused:
    try:
        return admit_sequence(admission, content, lease, sequences)
    except InsufficientBlocks as error:
        return Refused(code=error.code, **error.figures)
    except SequenceExistsElsewhere as error:
        return Refused(code=error.code)


def admit_sequence(admission: Admission, content: Content, lease: Lease, sequences: Sequences) -> Admitted:
    """Begin a sequence that ``lease`` does not hold.

    Raises:
        SequenceExistsElsewhere: Another lease holds its id.
        InsufficientBlocks: Nothing was given.
    """
    if sequences.get(admission.sequence_id) is not None:
        raise SequenceExistsElsewhere(
            f"sequence {admission.sequence_id!r} belongs to another lease: free it there, or use another id"
        )
    sequence, admitted = sequences.admit(lease.lease_id, admission, content)
    lease.sequences[sequence.sequence_id] = sequence
    return admitted


def _require_equal_length(field: str, column: SequenceOf[int], sequences: list[Sequence]) -> None:
    if len(column) != len(sequences):
        raise InvalidRequest.of(field, f"has {len(column)} entries for {len(sequences)} sequences")
