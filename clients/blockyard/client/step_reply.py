"""What the reply to a step changes of the sequences that it was for."""

from collections.abc import Sequence

from blockyard.client.prepared_step import PreparedStep
from blockyard.client.step_result import Scheduled, StepResult
from blockyard.client.tracked import Tracked
from blockyard.core.errors import InsufficientBlocks
from blockyard.core.ids import BlockId
from blockyard.core.replies import Admitted, Refused, Stepped


def take_in(step: PreparedStep, reply: Stepped) -> StepResult:
    """Note on each sequence what it got.

    Returns:
        The same by id. Sequences that have ended meanwhile are not told of.
    """
    scheduled: dict[str, Scheduled] = {}
    insufficient: list[str] = []
    refused: dict[str, Refused] = {}
    given = dict(zip(reply.extend.sequences, reply.extend.block_ids, strict=True))
    for tracked, handle, num_new_tokens, num_tokens, num_hashes in step.extended:
        block_ids = given.get(handle)
        if block_ids is None:
            insufficient.append(tracked.sequence_id)
            continue
        tracked.note_extended(num_tokens, num_new_tokens, num_hashes)
        _grow(tracked, block_ids, None, num_new_tokens, scheduled)
    for tracked, admission, answer in zip(step.admitted, step.admit, reply.admit, strict=True):
        if isinstance(answer, Admitted):
            num_cached, num_new_tokens = answer.num_cached_tokens, answer.num_new_tokens
            tracked.note_admitted(answer.sequence, num_cached, num_new_tokens, len(admission.block_hashes))
            _grow(tracked, answer.block_ids, num_cached, num_new_tokens, scheduled)
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
