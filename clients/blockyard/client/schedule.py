"""A scheduler's sequences between and during steps, as pure state: what to send, and what a reply changes.

At most one step is under way. Nothing counts as sent before its reply is applied, so a step that was refused
leaves all of it for the next, and a step whose reply was lost can be sent again as it was. Meanwhile, tokens
may be appended, sequences finished or preempted: what is under way refers to a sequence itself, not its id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from blockyard.client.step_result import Scheduled, StepResult
from blockyard.client.tracked import Tracked
from blockyard.core.commands import Admission, StepCommit, StepExtend
from blockyard.core.errors import InsufficientBlocks, InvalidRequest, SequenceNotFound
from blockyard.core.extra_keys import Extras
from blockyard.core.hash_chain import Hasher
from blockyard.core.ids import BlockId, SequenceHandle, SequenceId
from blockyard.core.replies import Admitted, Refused, Stepped


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedStep:
    """A step that is to be sent, or was: its body's parts, and beside each what it stands for."""

    step_id: int
    commit: StepCommit
    free: Sequence[SequenceHandle]
    extend: StepExtend
    admit: Sequence[Admission]
    committed: Sequence[Tracked]
    ended: Sequence[Tracked]
    extended: Sequence["_Extension"]
    admitted: Sequence[Tracked]


class _Extension(NamedTuple):
    tracked: Tracked
    handle: SequenceHandle
    num_new_tokens: int
    num_tokens: int
    num_hashes: int


class Schedule:
    """No sequences at first. Not thread-safe.

    Args:
        hasher: Hashes tokens for the prefix cache, at the pool's algorithm and hash block size; see
            `Pool.hasher`. None: nothing is hashed, and no prefix is found or offered.
    """

    def __init__(self, hasher: Hasher | None) -> None:
        self._hasher = hasher
        self._sequences: dict[str, Tracked] = {}
        self._uncommitted: dict[Tracked, None] = {}
        self._ended: list[Tracked] = []
        self._under_way: PreparedStep | None = None

    @property
    def waiting(self) -> Sequence[str]:
        """Ids without blocks yet or any more, in the order of their addition."""
        return [name for name, tracked in self._sequences.items() if tracked.handle is None]

    @property
    def running(self) -> Sequence[str]:
        """Ids with blocks, in the order of their addition."""
        return [name for name, tracked in self._sequences.items() if tracked.handle is not None]

    def add(
        self,
        sequence_id: str,
        token_ids: Sequence[int],
        extras: Extras | None = None,
        *,
        full_sequence_must_fit: bool = False,
        skip_prefix_cache: bool = False,
    ) -> None:
        """Queue a sequence; a later step admits it.

        Args:
            sequence_id: Not that of another live sequence.
            token_ids: Its prompt, at least one token.
            extras: What its KV depends on beside the tokens.
            full_sequence_must_fit: Admit it only if all its tokens would fit, even if chunk by chunk.
            skip_prefix_cache: Admit it without a cached prefix.

        Raises:
            InvalidRequest: The id is in use, or there are no tokens.
        """
        if sequence_id in self._sequences:
            raise InvalidRequest.of("sequence_id", f"{sequence_id!r} is in use: finish it first")
        if not token_ids:
            raise InvalidRequest.of("token_ids", "give at least one token")
        tracked = Tracked(
            sequence_id=SequenceId(sequence_id),
            chain=None if self._hasher is None else self._hasher.start(extras or Extras()),
            full_sequence_must_fit=full_sequence_must_fit,
            skip_prefix_cache=skip_prefix_cache,
        )
        tracked.append(token_ids)
        self._sequences[sequence_id] = tracked

    def append(self, sequence_id: str, token_ids: Sequence[int]) -> None:
        """Tokens that were generated, or accepted after speculation: certain from now on.

        Raises:
            SequenceNotFound: No such sequence.
        """
        self._get(sequence_id).append(token_ids)

    def computed(self, sequence_id: str, num_tokens: int) -> None:
        """The KV of the sequence's first ``num_tokens`` tokens is written; the next step commits them.

        Raises:
            InvalidRequest: Not so many tokens are known, or have slots.
            SequenceNotFound: No such sequence.
        """
        tracked = self._get(sequence_id)
        if tracked.handle is None:
            raise InvalidRequest.of("sequence_id", f"{sequence_id!r} has no slots: it waits")
        tracked.compute(num_tokens)
        self._uncommitted[tracked] = None

    def reject(self, sequence_id: str, num_tokens: int) -> None:
        """The last ``num_tokens`` speculated tokens were wrong; their slots are used again.

        Raises:
            InvalidRequest: That would take back computed tokens.
            SequenceNotFound: No such sequence.
        """
        self._get(sequence_id).reject(num_tokens)

    def finish(self, sequence_id: str) -> None:
        """The sequence is over; the next step commits what was computed and frees its blocks.

        Raises:
            SequenceNotFound: No such sequence.
        """
        self._end(self._get(sequence_id))
        del self._sequences[sequence_id]

    def preempt(self, sequence_id: str) -> None:
        """Give up the sequence's blocks with the next step and queue it again, at its old place.

        What it had computed stays a likely hit until its blocks are needed.

        Raises:
            SequenceNotFound: No such sequence.
        """
        tracked = self._get(sequence_id)
        self._end(tracked)
        self._sequences[sequence_id] = tracked.successor()

    def block_ids(self, sequence_id: str) -> Sequence[Sequence[BlockId]]:
        """The sequence's block tables, one a group; see `Scheduled.block_ids`. Empty while it waits.

        Raises:
            SequenceNotFound: No such sequence.
        """
        return self._get(sequence_id).block_ids

    def prepare(
        self,
        step_id: int,
        schedule: Mapping[str, int | None] | None,
        speculated: Mapping[str, int] | None,
        num_lookahead_tokens: int,
    ) -> PreparedStep:
        """The next step, from now on under way. See `Scheduler.step` for the arguments.

        Raises:
            RuntimeError: A step is under way.
            SequenceNotFound: ``schedule`` names no live sequence.
            InvalidRequest: A count is negative.
        """
        if self._under_way is not None:
            raise RuntimeError("a step is under way, or its outcome is unknown: resume() first")
        if schedule is None:
            schedule = dict.fromkeys(self._sequences)
        counts = [*schedule.values(), *(speculated or {}).values(), num_lookahead_tokens]
        if any(count is not None and count < 0 for count in counts):
            raise InvalidRequest.of("schedule", "no count of tokens is negative")
        ended = tuple(self._ended)
        written = [tracked for tracked in self._uncommitted if tracked.handle is not None]
        committed = [t for t in written if t.num_committable_tokens > t.num_committed_tokens]
        extended: list[_Extension] = []
        admitted: list[tuple[Tracked, int | None]] = []
        for name, budget in schedule.items():
            tracked = self._get(name)
            if tracked.handle is None:
                if budget != 0:
                    admitted.append((tracked, budget))
                continue
            num_new = _num_new_tokens(tracked, budget, (speculated or {}).get(name, 0))
            if num_new > 0:
                extended.append(self._extension(tracked, tracked.handle, num_new))
        self._under_way = PreparedStep(
            step_id=step_id,
            commit=StepCommit(
                sequences=_handles(committed),
                num_computed_tokens=[t.num_committable_tokens for t in committed],
            ),
            free=_handles(ended),
            extend=_columns(extended, num_lookahead_tokens),
            admit=[tracked.admission(budget, num_lookahead_tokens) for tracked, budget in admitted],
            committed=committed,
            ended=ended,
            extended=extended,
            admitted=[tracked for tracked, _ in admitted],
        )
        return self._under_way

    def apply(self, reply: Stepped) -> StepResult:
        """The step under way was done."""
        step = self._require_under_way()
        self._under_way = None
        for tracked, num_tokens in zip(step.committed, step.commit.num_computed_tokens, strict=True):
            tracked.num_committed_tokens = max(tracked.num_committed_tokens, num_tokens)
            if tracked.num_committed_tokens >= tracked.num_computed_tokens:
                self._uncommitted.pop(tracked, None)
        del self._ended[: len(step.ended)]  # those that ended meanwhile stand behind
        for tracked in step.ended:
            self._uncommitted.pop(tracked, None)
        scheduled: dict[str, Scheduled] = {}
        insufficient: list[str] = []
        refused: dict[str, Refused] = {}
        self._apply_extended(step, reply, scheduled, insufficient)
        for tracked, admission, answer in zip(step.admitted, step.admit, reply.admit, strict=True):
            if isinstance(answer, Admitted):
                self._apply_admitted(tracked, admission, answer, scheduled)
            elif answer.code == InsufficientBlocks.code:
                insufficient.append(tracked.sequence_id)
            else:
                refused[tracked.sequence_id] = answer
        return StepResult(
            step_id=step.step_id,
            epoch=reply.epoch,
            scheduled=scheduled,
            insufficient=insufficient,
            refused=refused,
            copies=reply.copies,
            num_free_blocks=reply.num_free_blocks,
        )

    def give_up(self) -> None:
        """The step under way was refused, and nothing of it done: all of it goes out again with the next."""
        self._under_way = None

    def forget_blocks(self) -> None:
        """The lease has ended, or the pool has lost what was cached: every sequence waits again."""
        self._under_way = None
        self._ended.clear()
        self._uncommitted.clear()
        self._sequences = {name: tracked.successor() for name, tracked in self._sequences.items()}

    def _require_under_way(self) -> PreparedStep:
        if self._under_way is None:
            raise RuntimeError("no step is under way")
        return self._under_way

    def _get(self, sequence_id: str) -> Tracked:
        tracked = self._sequences.get(sequence_id)
        if tracked is None:
            raise SequenceNotFound(f"this scheduler has no sequence {sequence_id!r}: add it first")
        return tracked

    def _end(self, tracked: Tracked) -> None:
        tracked.has_ended = True
        if tracked.handle is not None:  # else an admission under way is undone once it is answered
            self._ended.append(tracked)

    def _extension(self, tracked: Tracked, handle: SequenceHandle, num_new_tokens: int) -> _Extension:
        num_tokens = tracked.num_granted_tokens + num_new_tokens
        num_hashes = len(tracked.block_hashes)
        if self._hasher is not None:  # of the tokens that this call speaks of
            num_hashes = min(num_hashes, num_tokens // self._hasher.block_size)
        return _Extension(
            tracked, handle, num_new_tokens, num_tokens, max(num_hashes, tracked.num_sent_hashes)
        )

    @staticmethod
    def _apply_extended(
        step: PreparedStep, reply: Stepped, scheduled: dict[str, Scheduled], insufficient: list[str]
    ) -> None:
        given = dict(zip(reply.extend.sequences, reply.extend.block_ids, strict=True))
        for extension in step.extended:
            tracked, block_ids = extension.tracked, given.get(extension.handle)
            if block_ids is None:
                insufficient.append(tracked.sequence_id)
                continue
            tracked.extended(extension.num_tokens, extension.num_new_tokens, extension.num_hashes)
            tracked.grow(block_ids)
            if not tracked.has_ended:
                scheduled[tracked.sequence_id] = Scheduled(
                    num_cached_tokens=None,
                    num_new_tokens=extension.num_new_tokens,
                    new_block_ids=block_ids,
                    block_ids=tracked.block_ids,
                )

    def _apply_admitted(
        self, tracked: Tracked, admission: Admission, answer: Admitted, scheduled: dict[str, Scheduled]
    ) -> None:
        num_cached = answer.num_cached_tokens or 0
        tracked.admitted(answer.sequence, num_cached, answer.num_new_tokens, len(admission.block_hashes))
        tracked.grow(answer.block_ids)
        if tracked.has_ended:
            self._ended.append(tracked)
            return
        scheduled[tracked.sequence_id] = Scheduled(
            num_cached_tokens=num_cached,
            num_new_tokens=answer.num_new_tokens,
            new_block_ids=answer.block_ids,
            block_ids=tracked.block_ids,
        )


def _handles(sequences: Sequence[Tracked]) -> list[SequenceHandle]:
    return [tracked.handle for tracked in sequences if tracked.handle is not None]


def _num_new_tokens(tracked: Tracked, budget: int | None, num_speculated: int) -> int:
    num_known = tracked.num_tokens - tracked.num_granted_tokens
    if num_known < 0:
        return 0  # earlier guesses are still open
    if budget is not None and budget < num_known:
        return budget
    return num_known + num_speculated


def _columns(extended: Sequence[_Extension], num_lookahead_tokens: int) -> StepExtend:
    is_recount = any(e.tracked.num_granted_tokens != e.tracked.num_counted_tokens for e in extended)
    hashes = {e.handle: e.tracked.block_hashes[e.tracked.num_sent_hashes : e.num_hashes] for e in extended}
    return StepExtend(
        sequences=[e.handle for e in extended],
        num_tokens=[e.num_tokens for e in extended],
        num_computed_tokens=[e.tracked.num_granted_tokens for e in extended] if is_recount else None,
        num_lookahead_tokens=num_lookahead_tokens if extended else 0,
        block_hashes={handle: new for handle, new in hashes.items() if new},
    )
