"""A scheduler's step as it is sent: columns of the wire, and beside each the sequence that it stands for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

from blockyard.client.tracked import Tracked
from blockyard.core.chunk_ends import ChunkEnds
from blockyard.core.commands import Admission, StepCommit, StepExtend
from blockyard.core.errors import InvalidRequest, SequenceNotFound
from blockyard.core.ids import BlockHash, SequenceHandle
from blockyard.core.replies import Refused


class Extension(NamedTuple):
    """Slots for ``num_new_tokens`` more tokens of a running sequence, ``num_tokens`` in all.

    ``num_hashes``: how many of its block hashes the server has once this is done.
    """

    tracked: Tracked
    handle: SequenceHandle
    num_new_tokens: int
    num_tokens: int
    num_hashes: int


class StepArguments(TypedDict):
    """What `Lease.step` is called with."""

    commit: StepCommit
    free: Sequence[SequenceHandle]
    extend: StepExtend
    admit: Sequence[Admission]
    step_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedStep:
    """A step that is to be sent, or was. ``refused``: those left out of it, since the server refuses them."""

    step_id: int
    commit: StepCommit
    free: Sequence[SequenceHandle]
    extend: StepExtend
    admit: Sequence[Admission]
    committed: Sequence[Tracked]
    ended: Sequence[Tracked]
    extended: Sequence[Extension]
    admitted: Sequence[Tracked]
    refused: Mapping[Tracked, Refused]

    @property
    def arguments(self) -> StepArguments:
        """Those of `Lease.step`."""
        return StepArguments(
            commit=self.commit, free=self.free, extend=self.extend, admit=self.admit, step_id=self.step_id
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a caller wants of a step; see `blockyard.client.scheduler.Scheduler.step`."""

    schedule: Mapping[str, int | None]
    speculated: Mapping[str, int]
    num_lookahead_tokens: int

    def check(self, live: Mapping[str, Tracked]) -> None:
        """Refuse what cannot be meant, given the ``live`` sequences.

        Raises:
            SequenceNotFound: A sequence is not one of them.
            InvalidRequest: A count is negative, or guesses are for a sequence that is not scheduled.
        """
        for name in (*self.schedule, *self.speculated):
            if name not in live:
                raise SequenceNotFound(f"this scheduler has no sequence {name!r}: add it first")
        for field, counts in (
            ("schedule", self.schedule.values()),
            ("speculated", self.speculated.values()),
            ("num_lookahead_tokens", (self.num_lookahead_tokens,)),
        ):
            if any(count is not None and count < 0 for count in counts):
                raise InvalidRequest.of(field, "no count of tokens is negative")
        unscheduled = [name for name in self.speculated if name not in self.schedule]
        if unscheduled:
            raise InvalidRequest.of("speculated", f"{unscheduled[0]!r} is not in schedule")


def prepare_step(
    step_id: int,
    wanted: Wanted,
    *,
    live: Mapping[str, Tracked],
    written: Sequence[Tracked],
    ended: Sequence[Tracked],
    chunk_ends: ChunkEnds | None,
) -> PreparedStep:
    """The step that brings about what is wanted, has ``written`` committed and ``ended`` freed.

    Args:
        step_id: Its number.
        wanted: What has ended since it was checked is passed over.
        live: The sequences by id.
        written: Some of their tokens are computed, and perhaps not committed.
        ended: Those that hold blocks still.
        chunk_ends: Where a prompt's chunks should end; None for anywhere.
    """
    committed = [t for t in written if t.num_committable_tokens > t.num_committed_tokens]
    extended: list[Extension] = []
    admitted: list[Tracked] = []
    admit: list[Admission] = []
    refused: dict[Tracked, Refused] = {}
    for name, budget in wanted.schedule.items():
        tracked = live.get(name)
        if tracked is None:
            continue
        if tracked.refusal is not None:
            refused[tracked] = tracked.refusal
        elif tracked.handle is not None:
            num_new = _num_new_tokens(tracked, budget, wanted.speculated.get(name, 0), chunk_ends)
            if num_new > 0:
                extended.append(_extension(tracked, tracked.handle, num_new))
        elif budget != 0:
            admitted.append(tracked)
            end_at_state = chunk_ends is not None  # of the first chunk only the server knows where it begins
            admit.append(tracked.admission(budget, wanted.num_lookahead_tokens, end_at_state=end_at_state))
    return PreparedStep(
        step_id=step_id,
        commit=StepCommit(
            sequences=_handles(committed),
            num_computed_tokens=[tracked.num_committable_tokens for tracked in committed],
        ),
        free=_handles(ended),
        extend=_columns(extended, wanted.num_lookahead_tokens),
        admit=admit,
        committed=committed,
        ended=tuple(ended),
        extended=extended,
        admitted=admitted,
        refused=refused,
    )


def _handles(sequences: Sequence[Tracked]) -> list[SequenceHandle]:
    handles = []
    for tracked in sequences:
        assert tracked.handle is not None, "only what was admitted is written or freed"
        handles.append(tracked.handle)
    return handles


def _num_new_tokens(
    tracked: Tracked, budget: int | None, num_speculated: int, chunk_ends: ChunkEnds | None
) -> int:
    begin = tracked.num_granted_tokens
    num_known = tracked.num_tokens - begin
    if num_known < 0:
        return 0  # earlier guesses are still open
    num_new = num_known if budget is None else min(budget, num_known)
    if chunk_ends is not None and num_new > 0:
        known = tracked.num_prompt_tokens, tracked.num_admitted_tokens
        num_new = chunk_ends.end_of_chunk(begin, begin + num_new, *known) - begin
    return num_new if num_new < num_known else num_known + num_speculated


def _extension(tracked: Tracked, handle: SequenceHandle, num_new_tokens: int) -> Extension:
    num_tokens = tracked.num_granted_tokens + num_new_tokens
    num_hashes = tracked.num_sent_hashes
    if tracked.chain is not None:  # of the tokens that this call speaks of
        num_speakable = num_tokens // tracked.chain.hasher.block_size
        num_hashes = max(num_hashes, min(len(tracked.block_hashes), num_speakable))
    return Extension(tracked, handle, num_new_tokens, num_tokens, num_hashes)


def _columns(extended: Sequence[Extension], num_lookahead_tokens: int) -> StepExtend:
    is_recount = any(e.tracked.num_granted_tokens != e.tracked.num_counted_tokens for e in extended)
    hashes: dict[SequenceHandle, Sequence[BlockHash]] = {}
    event_token_ids: dict[SequenceHandle, Sequence[int]] = {}
    for tracked, handle, _, _, num_hashes in extended:
        num_sent = tracked.num_sent_hashes
        if num_hashes > num_sent:
            hashes[handle] = tracked.block_hashes[num_sent:num_hashes]
            if token_ids := tracked.event_token_ids(num_sent, num_hashes):
                event_token_ids[handle] = token_ids
    return StepExtend(
        sequences=[e.handle for e in extended],
        num_tokens=[e.num_tokens for e in extended],
        num_computed_tokens=[e.tracked.num_granted_tokens for e in extended] if is_recount else None,
        num_lookahead_tokens=num_lookahead_tokens if extended else 0,
        block_hashes=hashes,
        event_token_ids=event_token_ids,
    )
