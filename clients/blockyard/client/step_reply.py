"""What the reply to a step changes of the sequences that it was for."""

from collections.abc import Sequence

from blockyard.client.prepared_step import PreparedStep
from blockyard.client.step_result import Scheduled, StepResult
from blockyard.client.tracked import Tracked
from blockyard.core.errors import InsufficientBlocks, QuotaExceeded
from blockyard.core.ids import BlockId
from blockyard.core.replies import Admitted, Refused, Stepped


def take_in(step: PreparedStep, reply: Stepped) -> StepResult:
    """Note on each sequence what it got.

    Args:
        step: What was asked for.
        reply: The server's.

    Returns:
        The same by id. Sequences that have ended meanwhile are not told of.
    """
    scheduled: dict[str, Scheduled] = {}
    insufficient: list[str] = []
    refused: dict[str, Refused] = {t.sequence_id: why for t, why in step.refused.items() if not t.has_ended}
    given = dict(zip(reply.extend.sequences, reply.extend.block_ids, strict=True))
    replaced: dict[int, list[tuple[int, int, BlockId]]] = {}
    for handle, group, position, block in reply.replaced or ():
        replaced.setdefault(handle, []).append((group, position, BlockId(block)))
    for tracked, handle, num_new_tokens, num_tokens, num_hashes in step.extended:
        block_ids = given.get(handle)
        if block_ids is not None:
            tracked.note_extended(
                num_counted_tokens=num_tokens,
                num_new_tokens=num_new_tokens,
                num_lookahead_tokens=step.extend.num_lookahead_tokens,
                num_sent_hashes=num_hashes,
            )
            of_it = replaced.get(handle, ()) if replaced else ()
            for entry in of_it:
                tracked.replace_block(*entry)
            _grow(tracked, block_ids, None, num_new_tokens, scheduled, of_it)
        elif not tracked.has_ended:
            insufficient.append(tracked.sequence_id)
    for tracked, admission, answer in zip(step.admitted, step.admit, reply.admit, strict=True):
        if isinstance(answer, Admitted):
            tracked.note_admitted(answer, admission)
            _grow(tracked, answer.block_ids, answer.num_cached_tokens, answer.num_new_tokens, scheduled)
        elif tracked.has_ended:
            continue
        elif _can_wait(answer):
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


_BOUNDS = {error.code: error.bound for error in (InsufficientBlocks, QuotaExceeded)}
"""By code, the figure that says how many blocks can ever be given."""


def _can_wait(answer: Refused) -> bool:
    """Whether the admission can succeed once others, or others of its tenant, free their blocks."""
    bound = _BOUNDS.get(answer.code)
    return bound is not None and (answer.num_required_blocks or 0) <= (getattr(answer, bound) or 0)


def _grow(
    tracked: Tracked,
    block_ids: Sequence[Sequence[BlockId]],
    num_cached_tokens: int | None,
    num_new_tokens: int,
    scheduled: dict[str, Scheduled],
    replaced: Sequence[tuple[int, int, BlockId]] = (),
) -> None:
    tracked.grow(block_ids)
    if not tracked.has_ended:
        scheduled[tracked.sequence_id] = Scheduled(
            num_cached_tokens=num_cached_tokens,
            num_new_tokens=num_new_tokens,
            new_block_ids=block_ids,
            block_ids=tracked.block_ids,
            replaced=replaced,
        )
