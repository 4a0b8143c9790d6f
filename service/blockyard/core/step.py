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
from blockyard.core.ids import SequenceHandle
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
        self._extends = self._resolve("extend", step.extend.sequences)
        self._contents = self._check_extends()
        self._admissions = self._check_admissions()

    def run(self) -> tuple[StepExtended, list[Admitted | Refused]]:
        """Do the step. Nothing else may have changed since it was planned but blocks that became free."""
        for sequence, num_tokens in zip(self._commits, self._step.commit.num_computed_tokens, strict=True):
            self._sequences.commit(sequence, num_tokens)
        for sequence in self._frees:
            self._sequences.free(self._lease, sequence)
        extended = self._extend()
        admitted = [
            self._admit(admission, content)
            for admission, content in zip(self._step.admit, self._admissions, strict=True)
        ]
        return extended, admitted

    def _resolve(self, column: str, handles: abc.Sequence[SequenceHandle]) -> list[Sequence]:
        found = []
        for handle in handles:
            sequence = self._sequences.by_handle(handle)
            if sequence is None or sequence.lease_id != self._lease.lease_id:
                raise SequenceNotFound(
                    f"{column}.sequences: the lease holds no sequence of handle {handle}; nothing was done"
                )
            found.append(sequence)
        if len(set(handles)) != len(handles):
            raise InvalidRequest.of(f"{column}.sequences", "names a sequence twice")
        return found

    def _check_commits(self) -> None:
        counts = self._step.commit.num_computed_tokens
        _require_equal_length("commit.num_computed_tokens", counts, self._commits)
        for position, (sequence, num_tokens) in enumerate(zip(self._commits, counts, strict=True)):
            try:
                self._sequences.check_commit(sequence, num_tokens)
            except InvalidRequest as error:
                raise error.inside(f"commit.{position}") from None

    def _check_extends(self) -> list[Content]:
        columns, commit = self._step.extend, self._step.commit
        if columns.num_lookahead_tokens < 0:
            raise InvalidRequest.of("extend.num_lookahead_tokens", "must be at least 0")
        _require_equal_length("extend.num_tokens", columns.num_tokens, self._extends)
        computed = columns.num_computed_tokens
        if computed is not None:
            _require_equal_length("extend.num_computed_tokens", computed, self._extends)
        handles = set(columns.sequences)
        if not handles.isdisjoint(self._step.free):
            raise InvalidRequest.of("extend.sequences", "a sequence is freed and extended in one step")
        for name in ("block_hashes", "token_ids", "event_token_ids"):
            if not getattr(columns, name).keys() <= handles:
                raise InvalidRequest.of(f"extend.{name}", "names a sequence that is not extended")
        committed = dict(zip(commit.sequences, commit.num_computed_tokens, strict=True))
        contents = []
        for position, (sequence, num_tokens) in enumerate(
            zip(self._extends, columns.num_tokens, strict=True)
        ):
            handle = sequence.handle
            num_computed = None if computed is None else computed[position]
            told = Told(
                columns.block_hashes.get(handle, ()),
                columns.token_ids.get(handle, ()),
                columns.event_token_ids.get(handle, ()),
            )
            try:
                self._sequences.check_extension(sequence, num_tokens, num_computed, committed.get(handle, 0))
                known_tokens = max(num_tokens, sequence.num_tokens)
                contents.append(self._sequences.check_content(sequence, known_tokens, told))
            except InvalidRequest as error:
                raise error.inside(f"extend.{position}") from None
        return contents

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
                contents.append(self._sequences.check_admission(admission, None))
            except InvalidRequest as error:
                raise error.inside(f"admit.{position}") from None
            named.add(sequence_id)
        return contents

    def _extend(self) -> StepExtended:
        columns = self._step.extend
        computed: abc.Sequence[int | None] = columns.num_computed_tokens or [None] * len(self._extends)
        granted, block_ids, insufficient = [], [], []
        for sequence, num_tokens, num_computed_tokens, content in zip(
            self._extends, columns.num_tokens, computed, self._contents, strict=True
        ):
            try:
                _, appended = self._sequences.extend(
                    self._lease,
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

    def _admit(self, admission: Admission, content: Content) -> Admitted | Refused:
        try:
            return self._sequences.admit(self._lease, admission, content)
        except (InsufficientBlocks, SequenceExistsElsewhere) as error:
            return Refused(code=error.code, detail=error.detail, **error.figures)


def _require_equal_length(field: str, column: abc.Sequence[int], sequences: list[Sequence]) -> None:
    if len(column) != len(sequences):
        raise InvalidRequest.of(field, f"has {len(column)} entries for {len(sequences)} sequences")
