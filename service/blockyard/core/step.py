"""A scheduler's step: many commits, frees, extensions and admissions as one unit of work.

`PlannedStep` checks everything when it is made, and changes nothing; `PlannedStep.run` then does everything.
What may still be refused by then, for want of blocks, is listed in the reply.
"""

from collections import abc

from blockyard.core.commands import Admission, Step
from blockyard.core.content import Content, Told
from blockyard.core.errors import (
    InsufficientBlocks,
    InvalidRequest,
    SequenceExistsElsewhere,
    SequenceNotFound,
)
from blockyard.core.ids import BlockId, SequenceHandle
from blockyard.core.lease import Lease
from blockyard.core.replies import Admitted, Refused, StepExtended
from blockyard.core.sequence import Sequence
from blockyard.core.sequences import Sequences


class PlannedStep:
    """A step that has passed every check.

    Args:
        step: What is asked for.
        lease: Whose step it is.
        sequences: The pool's.

    Raises:
        SequenceNotFound: A handle is not one of the lease's sequences.
        InvalidRequest: Columns, counts or content are not valid, or contradict each other.
    """

    def __init__(self, step: Step, lease: Lease, sequences: Sequences) -> None:
        self._step = step
        self._lease = lease
        self._sequences = sequences
        self._commits = self._resolve("commit", step.commit.sequences)
        self._check_commits()
        self._frees = self._resolve("free", step.free)
        is_same = step.extend.sequences == step.commit.sequences  # as in most steps of decoding
        self._extends = self._commits if is_same else self._resolve("extend", step.extend.sequences)
        self._contents = self._check_extends()
        self._admissions = self._check_admissions()

    def run(self) -> tuple[StepExtended, list[Admitted | Refused]]:
        """Do the step. Nothing else may have changed since it was planned but blocks that became free."""
        # Columns are known to be of equal length; a zip that is not told so compiles to a plain loop.
        for sequence, num_tokens in zip(self._commits, self._step.commit.num_computed_tokens):  # noqa: B905
            if num_tokens > sequence.commit_headroom:
                self._sequences.commit(sequence, num_tokens)
            elif num_tokens > sequence.num_committed_tokens:
                sequence.num_committed_tokens = num_tokens
        for sequence in self._frees:
            self._sequences.free(self._lease, sequence)
        extended = self._extend()
        admitted = [
            self._admit(admission, content)
            for admission, content in zip(self._step.admit, self._admissions, strict=True)
        ]
        return extended, admitted

    def _resolve(self, column: str, handles: abc.Sequence[SequenceHandle]) -> list[Sequence]:
        held = self._lease.by_handle
        try:
            found = [held[handle] for handle in handles]
        except KeyError as error:
            raise SequenceNotFound(
                f"{column}.sequences: the lease holds no sequence of handle {error.args[0]}; nothing was done"
            ) from None
        if len(set(handles)) != len(handles):
            raise InvalidRequest.of(f"{column}.sequences", "names a sequence twice")
        return found

    def _check_commits(self) -> None:
        counts = self._step.commit.num_computed_tokens
        _require_equal_length("commit.num_computed_tokens", counts, self._commits)
        for sequence, num_tokens in zip(self._commits, counts):  # noqa: B905 - see `run`
            if not 0 <= num_tokens <= sequence.num_granted_tokens:
                try:
                    self._sequences.check_commit(sequence, num_tokens)
                except InvalidRequest as error:
                    raise error.inside(f"commit.{self._commits.index(sequence)}") from None

    def _check_extends(self) -> dict[SequenceHandle, Content]:
        """What is told of sequences to extend, by handle; of those that nothing is told of, nothing."""
        columns = self._step.extend
        if columns.num_lookahead_tokens < 0:
            raise InvalidRequest.of("extend.num_lookahead_tokens", "must be at least 0")
        _require_equal_length("extend.num_tokens", columns.num_tokens, self._extends)
        computed = columns.num_computed_tokens
        if computed is not None:
            _require_equal_length("extend.num_computed_tokens", computed, self._extends)
        told = self._handles_told_of()
        if computed is None and self._have_grown():
            to_check = [at for at, handle in enumerate(columns.sequences) if handle in told] if told else []
        else:
            to_check = list(range(len(self._extends)))
        committed: dict[SequenceHandle, int] = {}
        if computed is not None:
            commit = self._step.commit
            committed.update(zip(commit.sequences, commit.num_computed_tokens, strict=True))
        contents: dict[SequenceHandle, Content] = {}
        for position in to_check:
            sequence, num_tokens = self._extends[position], columns.num_tokens[position]
            handle = sequence.handle
            num_computed = None if computed is None else computed[position]
            try:
                self._sequences.check_extension(sequence, num_tokens, num_computed, committed.get(handle, 0))
                if handle in told:
                    num_known = max(num_tokens, sequence.num_tokens)
                    contents[handle] = self._sequences.check_content(sequence, num_known, self._told(handle))
            except InvalidRequest as error:
                raise error.inside(f"extend.{position}") from None
        return contents

    def _have_grown(self) -> bool:
        """Whether all sequences to extend have at least the tokens that have slots, and none has too many."""
        max_tokens = self._sequences.max_tokens
        for sequence, num_tokens in zip(self._extends, self._step.extend.num_tokens):  # noqa: B905 - see `run`
            if not 0 < sequence.num_granted_tokens <= num_tokens <= max_tokens:
                return False
        return True

    def _handles_told_of(self) -> set[SequenceHandle]:
        """The sequences to extend whose hashes or tokens are told."""
        columns = self._step.extend
        told: set[SequenceHandle] = set()
        if self._step.free or columns.block_hashes or columns.token_ids or columns.event_token_ids:
            handles = set(columns.sequences)
            if not handles.isdisjoint(self._step.free):
                raise InvalidRequest.of("extend.sequences", "a sequence is freed and extended in one step")
            for name in ("block_hashes", "token_ids", "event_token_ids"):
                column = getattr(columns, name)
                if not column.keys() <= handles:
                    raise InvalidRequest.of(f"extend.{name}", "names a sequence that is not extended")
                told.update(column)
        return told

    def _told(self, handle: SequenceHandle) -> Told:
        columns = self._step.extend
        return Told(
            columns.block_hashes.get(handle, ()),
            columns.token_ids.get(handle, ()),
            columns.event_token_ids.get(handle, ()),
        )

    def _check_admissions(self) -> list[Content]:
        freed = set(self._step.free)
        named = set()
        contents = []
        for position, admission in enumerate(self._step.admit):
            sequence_id = admission.sequence_id
            known = self._lease.sequences.get(sequence_id)
            try:
                if sequence_id in named or (known is not None and known.handle not in freed):
                    raise InvalidRequest.of(
                        "sequence_id", f"{sequence_id!r} is admitted already: extend it, or free it first"
                    )
                contents.append(self._sequences.check_admission(admission, self._lease.tenant.name, None))
            except InvalidRequest as error:
                raise error.inside(f"admit.{position}") from None
            named.add(sequence_id)
        return contents

    def _extend(self) -> StepExtended:
        columns = self._step.extend
        computed = columns.num_computed_tokens
        slow = self._extend_with_headroom()
        nothing: list[list[BlockId]] = [[] for _ in range(self._sequences.num_groups)]
        block_ids = [nothing] * len(self._extends)
        refused: dict[SequenceHandle, None] = {}
        for position in slow:
            sequence = self._extends[position]
            try:
                _, block_ids[position] = self._sequences.extend(
                    self._lease,
                    sequence,
                    num_tokens=columns.num_tokens[position],
                    num_computed_tokens=None if computed is None else computed[position],
                    num_lookahead_tokens=columns.num_lookahead_tokens,
                    content=self._contents.get(sequence.handle),
                )
            except InsufficientBlocks:
                refused[sequence.handle] = None
        sequences = list(columns.sequences)
        if columns.only_changes:
            listed = [at for at in slow if any(block_ids[at]) and sequences[at] not in refused]
        elif refused:
            listed = [at for at, handle in enumerate(sequences) if handle not in refused]
        else:
            return StepExtended(sequences=sequences, block_ids=block_ids, insufficient=[])
        return StepExtended(
            sequences=[sequences[at] for at in listed],
            block_ids=[block_ids[at] for at in listed],
            insufficient=list(refused),
            unlisted=nothing if columns.only_changes else None,
        )

    def _extend_with_headroom(self) -> list[int]:
        """Extend the sequences whose counts are all that changes; the positions of the others."""
        columns = self._step.extend
        if columns.num_computed_tokens is not None:
            return list(range(len(self._extends)))
        num_lookahead, contents = columns.num_lookahead_tokens, self._contents
        num_granted = 0
        others: list[int] = []
        position = 0
        for sequence, num_tokens in zip(self._extends, columns.num_tokens):  # noqa: B905 - see `run`
            if num_tokens + num_lookahead > sequence.extend_headroom or (
                contents and sequence.handle in contents
            ):
                others.append(position)
            else:
                num_granted += num_tokens - sequence.num_granted_tokens
                sequence.num_granted_tokens = num_tokens
                if num_tokens > sequence.num_tokens:  # noqa: PLR1730 - a call takes three times as long
                    sequence.num_tokens = num_tokens
            position += 1  # noqa: SIM113 - enumerate's pairs take three times as long
        self._sequences.note_granted(num_granted)
        return others

    def _admit(self, admission: Admission, content: Content) -> Admitted | Refused:
        try:
            sequence = self._sequences.admit(self._lease, admission, content, self._step.num_reserved_blocks)
        except (InsufficientBlocks, SequenceExistsElsewhere) as error:
            return Refused(code=error.code, detail=error.detail, **error.figures)
        num_cached_tokens = sequence.num_committed_tokens
        return Admitted(
            sequence=sequence.handle,
            num_cached_tokens=num_cached_tokens,
            num_new_tokens=sequence.num_granted_tokens - num_cached_tokens,
            block_ids=sequence.block_ids,
        )


def _require_equal_length(field: str, column: abc.Sequence[int], sequences: list[Sequence]) -> None:
    if len(column) != len(sequences):
        raise InvalidRequest.of(field, f"has {len(column)} entries for {len(sequences)} sequences")
