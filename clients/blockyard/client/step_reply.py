"""What the reply to a step changes of the sequences that it was for."""

from collections.abc import Sequence
from dataclasses import replace

from blockyard.client.prepared_step import PreparedStep
from blockyard.client.step_result import Scheduled, StepResult
from blockyard.client.tracked import Tracked
from blockyard.core.errors import InsufficientBlocks
from blockyard.core.ids import BlockId
from blockyard.core.replies import Admitted, Refused, Stepped


def take_in(step: PreparedStep, reply: Stepped, num_usable_blocks: int) -> StepResult:
    """Note on each sequence what it got.

    Args:
        step: What was asked for.
        reply: The server's.
        num_usable_blocks: All that the pool can have free: an admission that needs more is refused.

    Returns:
        The same by id. Sequences that have ended meanwhile are not told of.
    """
    scheduled: dict[str, Scheduled] = {}
    insufficient: list[str] = []
    refused: dict[str, Refused] = {t.sequence_id: why for t, why in step.refused.items() if not t.has_ended}
    given = dict(zip(reply.extend.sequences, reply.extend.block_ids, strict=True))
    for tracked, handle, num_new_tokens, num_tokens, num_hashes in step.extended:
        block_ids = given.get(handle)
        if block_ids is not None:
            tracked.note_extended(
                num_counted_tokens=num_tokens,
                num_new_tokens=num_new_tokens,
                num_lookahead_tokens=step.extend.num_lookahead_tokens,
                num_sent_hashes=num_hashes,
            )
            _grow(tracked, block_ids, None, num_new_tokens, scheduled)
        elif not tracked.has_ended:
            insufficient.append(tracked.sequence_id)
    for tracked, admission, answer in zip(step.admitted, step.admit, reply.admit, strict=True):
        if isinstance(answer, Admitted):
            tracked.note_admitted(answer, admission)
            _grow(tracked, answer.block_ids, answer.num_cached_tokens, answer.num_new_tokens, scheduled)
        elif tracked.has_ended:
            continue
        elif (why := _beyond_waiting(answer, num_usable_blocks)) is not None:
            refused[tracked.sequence_id] = why
        else:
            insufficient.append(tracked.sequence_id)
    return StepResult(
        step_id=step.step_id,
        epoch=reply.epoch,
        scheduled=scheduled,
        insufficient=insufficient,
        refused=refused,
        copies=reply.copies,
        num_free_blocks=reply.num_free_blocks,
    )


def _beyond_waiting(answer: Refused, num_usable_blocks: int) -> Refused | None:
    """Why the admission fails even once others free their blocks; None if it can succeed then."""
    if answer.code != InsufficientBlocks.code:
        return answer
    num_required = answer.num_required_blocks or 0
    if num_required <= num_usable_blocks:
        return None
    sentence = f"{num_required} blocks are needed at once, and the pool has {num_usable_blocks} in all"
    return replace(answer, detail=f"{sentence}: schedule fewer tokens at a time, or finish the sequence")


def _grow(
    tracked: Tracked,
    block_ids: Sequence[Sequence[BlockId]],
    num_cached_tokens: int | None,
    num_new_tokens: int,
    scheduled: dict[str, Scheduled],
) -> None:
    tracked.grow(block_ids)
    if not tracked.has_ended:
        scheduled[tracked.sequence_id] = Scheduled(
            num_cached_tokens=num_cached_tokens,
            num_new_tokens=num_new_tokens,
            new_block_ids=block_ids,
            block_ids=tracked.block_ids,
        )
