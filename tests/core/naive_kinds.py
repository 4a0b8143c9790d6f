"""Kinds of layer without shortcuts: what a group's table needs, and what of it may be dropped."""

from collections.abc import Callable

from blockyard.core.config import GroupConfig
from blockyard.core.ids import NULL_BLOCK, BlockId

FULL_KINDS = ("full_attention", "mla_attention", "hidden_state", "sink_full_attention")
SLIDING_KINDS = ("sliding_window", "sliding_window_mla")


def is_full(group: GroupConfig) -> bool:
    return group.kind in FULL_KINDS


def is_sliding(group: GroupConfig) -> bool:
    return group.kind in SLIDING_KINDS


def is_states(group: GroupConfig) -> bool:
    """Whether a few blocks of a table are states, and the others null."""
    return group.kind == "mamba" and group.mamba_cache_mode == "align"


def is_found(group: GroupConfig) -> bool:
    """Whether later sequences can find its blocks."""
    return (
        is_full(group)
        or is_sliding(group)
        or is_states(group)
        or group.kind in ("chunked_local_attention", "rswa")
    )


def div_ceil(value: int, divisor: int) -> int:
    return (value + divisor - 1) // divisor


def num_required(group: GroupConfig, num_tokens: int, num_slots: int, num_encoder_tokens: int) -> int:
    """Length of a table for so many tokens, and slots for these and the lookahead."""
    if group.kind == "cross_attention":
        return div_ceil(num_encoder_tokens, group.block_size)
    if group.kind in ("circular_buffer", "kpool_tail"):
        return 1
    if group.kind == "hot":
        return group.num_blocks_per_request or 0
    if is_states(group):
        return div_ceil(num_tokens, group.block_size) + group.num_speculative_blocks
    return div_ceil(num_slots, group.block_size) + group.num_speculative_blocks


def num_required_at_once(
    group: GroupConfig, num_required: int, max_in_flight_tokens: int, max_model_len: int | None
) -> int:
    """A windowed kind caps its share at what one request can hold at a time."""
    num_tokens = max_in_flight_tokens
    if is_sliding(group):
        num_tokens += (group.sliding_window or 0) - 1 + group.extra_retained_tokens
    elif group.kind == "chunked_local_attention":
        num_tokens += group.attention_chunk_size or 0
    elif group.kind != "resident":
        return num_required
    if max_model_len is not None:
        num_tokens = min(num_tokens, max_model_len)
    may_begin_inside_block = group.kind != "chunked_local_attention"
    return min(num_required, div_ceil(num_tokens, group.block_size) + may_begin_inside_block)


def num_new_blocks(group: GroupConfig, table: list[BlockId], num_required: int, *, is_first: bool) -> int:
    """Blocks to take for a table of that length; of states, one, and the speculative ones at first."""
    num_missing = max(num_required - len(table), 0)
    if is_states(group):
        return min(num_missing, 1 + (group.num_speculative_blocks if is_first else 0))
    return num_missing


def fill(
    group: GroupConfig,
    table: list[BlockId],
    num_required: int,
    take: Callable[[int], list[BlockId]],
    *,
    is_first: bool,
) -> list[BlockId]:
    """Let the table have that length; returns what was appended.

    Of states: nulls up to the running one, and speculative blocks that would stay behind move to the end.
    """
    length = len(table)
    if is_states(group) and num_required > length:
        running = num_required - group.num_speculative_blocks - 1
        table.extend([NULL_BLOCK] * (running - length))
        first_speculative = length if is_first else length - group.num_speculative_blocks
        for position in range(first_speculative, min(length, running)):
            table.append(table[position])
            table[position] = NULL_BLOCK
    table.extend(take(max(num_required - len(table), 0)))
    return table[length:]


def num_skipped_tokens(group: GroupConfig, num_computed: int) -> int:
    """Leading tokens whose blocks are kept for none of those to come."""
    if is_sliding(group):
        kept = (group.sliding_window or 0) - 1 + group.extra_retained_tokens
        return max(0, num_computed - kept)
    if group.attention_chunk_size is not None:
        return num_computed // group.attention_chunk_size * group.attention_chunk_size
    if group.kind == "mamba":
        return max(0, num_computed - 1)
    if group.kind == "resident":
        return num_computed
    return 0


def num_skipped_blocks(group: GroupConfig, num_computed: int) -> int:
    return num_skipped_tokens(group, num_computed) // group.block_size


def positions_to_drop(
    group: GroupConfig, table: list[BlockId], num_computed: int, num_prompt: int
) -> list[int]:
    """From the last one backwards until a null is met; where tables have states, nulls are passed over.

    The state that the running one was copied from needs no rule of its own: ``div_ceil(c, b) - 1`` and
    ``(c - 1) // b`` are the same, so it is one of those below.
    """
    start, end = 0, num_skipped_blocks(group, num_computed)
    if group.rswa_window is not None:
        start = div_ceil(num_prompt, group.block_size)
        end = max(num_prompt, num_computed - group.rswa_window) // group.block_size
    dropped = []
    for position in reversed(range(start, min(end, len(table)))):
        if table[position] != NULL_BLOCK:
            dropped.append(position)
        elif not is_states(group):
            break
    return dropped


def positions_seen(group: GroupConfig, table: list[BlockId], num_computed: int, num_prompt: int) -> list[int]:
    """What of the table the next token needs, and what goes on behind it."""
    first = num_skipped_blocks(group, num_computed)
    if is_sliding(group):  # what is retained beyond the window, no token looks at
        first = max(0, num_computed - (group.sliding_window or 0) + 1) // group.block_size
    seen = range(first, len(table))
    if group.rswa_window is not None:
        start = div_ceil(num_prompt, group.block_size)
        end = max(num_prompt, num_computed - group.rswa_window) // group.block_size
        return [position for position in seen if not start <= position < end]
    return [*seen]
