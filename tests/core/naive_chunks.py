"""Where a chunk ends that is to end at a state others can find, without shortcuts: every place is tried."""

from blockyard.core.config import PoolConfig
from core.naive_kinds import is_states
from core.naive_prefixes import ends_inside_blocks


def chunk_end(config: PoolConfig, begin: int, end: int, num_prompt: int, num_tokens: int) -> int:
    """At most ``end``.

    The chunk aims at the first place ahead: where the prompt, sent again, would be hit, or the last block end
    before the last token. Where that is not reached it goes as far as whole blocks, or as far as it may.
    """
    if not config.enable_prefix_caching or not any(is_states(group) for group in config.groups):
        return end
    block_ends = range(0, num_tokens, config.scheduler_block_size)
    ahead = [place for place in (_replayed(config, num_prompt), block_ends[-1]) if place > begin]
    if not ahead:
        return end
    if ahead[0] <= end:
        return ahead[0]
    within = range(begin + 1, end + 1)
    return max((place for place in within if place % config.scheduler_block_size == 0), default=end)


def _replayed(config: PoolConfig, num_prompt: int) -> int:
    """The longest hit of the same prompt: not all of it; with drafts, a further match lies behind it."""
    size = config.scheduler_block_size
    match = config.hash_block_size if ends_inside_blocks(config) else size
    if any(group.is_draft for group in config.groups):
        return max((place for place in range(0, num_prompt, size) if place + match <= num_prompt), default=0)
    return range(0, num_prompt, match)[-1]
