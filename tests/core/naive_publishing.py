"""Publishing without shortcuts: which blocks of a sequence become hits for others."""

from blockyard.core.arithmetic import align_down
from blockyard.core.config import PoolConfig, Publish
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId
from core.naive_blocks import NaiveKey
from core.naive_kinds import is_found, is_full, is_sliding, is_states
from core.naive_prefixes import NaivePrefixes, ends_inside_blocks, num_blocks_of_hit
from core.naive_sequence import NaiveSequence


def publish(sequence: NaiveSequence, config: PoolConfig, prefixes: NaivePrefixes) -> int:
    """Full blocks up to what is computed (``on_allocate``) or committed, as far as hashes were sent.

    Returns how many blocks were published.
    """
    if not config.enable_prefix_caching:
        return 0
    length = sequence.num_committed if config.publish is Publish.ON_COMMIT else sequence.num_computed
    length = min(length, len(sequence.content.hashes) * config.hash_block_size)
    num_published = 0
    for number in range(len(config.groups)):
        num_published += _publish_full_blocks(sequence, number, length, config, prefixes)
    for number in range(len(config.groups)):
        _publish_edge(sequence, number, length, config, prefixes)
    return num_published


def _publish_full_blocks(
    sequence: NaiveSequence, number: int, length: int, config: PoolConfig, prefixes: NaivePrefixes
) -> int:
    """With several groups the length is aligned down first, unless hits end inside blocks."""
    group = config.groups[number]
    if not is_found(group):
        return 0
    aligned = length
    if len(config.groups) > 1 and not ends_inside_blocks(config):
        aligned = align_down(length, config.scheduler_block_size)
    end = aligned // group.block_size
    if group.is_draft and length >= (end + 1) * group.block_size:
        end += 1
    store = prefixes.store_of(number)
    begin = sequence.num_published[number]
    if end <= begin:
        return 0
    parent = sequence.tables[number][begin - 1] if begin else NULL_BLOCK
    published: list[BlockId] = []
    hashes: list[BlockHash] = []
    for position in range(begin, end):
        sequence.num_published[number] = position + 1
        block = sequence.tables[number][position]
        num_tokens = (position + 1) * group.block_size
        if is_states(group) and config.publish is Publish.ON_COMMIT and sequence.num_committed != num_tokens:
            continue  # the state there may be that of fewer tokens
        if block == NULL_BLOCK or not is_retained(config, number, position, sequence.num_prompt):
            continue
        if num_tokens in [key.num_tokens for key in store.keys_of(block)]:
            continue  # a fork that has it as well was first
        store.forget(block)  # a key for fewer tokens is lost first
        block_hash = sequence.content.hashes[num_tokens // config.hash_block_size - 1]
        store.register(NaiveKey(block_hash, number, block, num_tokens))
        store.fresh += [block] if is_states(group) else []
        published.append(block)
        hashes.append(block_hash)
    store.note_published(published, hashes, parent)
    return len(published)


def edge_of(sequence: NaiveSequence, config: PoolConfig) -> int:
    """The last hash boundary before the prompt's last token."""
    return align_down(sequence.num_prompt - 1, config.hash_block_size)


def _publish_edge(
    sequence: NaiveSequence, number: int, length: int, config: PoolConfig, prefixes: NaivePrefixes
) -> None:
    """The block that contains the edge, under the hash there, unless a block ends there."""
    group, edge = config.groups[number], edge_of(sequence, config)
    position, num_inside = divmod(edge, group.block_size)
    if edge > length or num_inside == 0:
        return
    if is_full(group):  # where hits end with blocks, as a further key of a block that is published
        is_due = ends_inside_blocks(config) or position < sequence.num_published[number]
    else:
        is_due = is_states(group) and ends_inside_blocks(config) and sequence.num_computed == length == edge
        is_due = is_due and sequence.num_forked != edge
    if not is_due:
        return
    store, block = prefixes.store_of(number), sequence.tables[number][position]
    if block != NULL_BLOCK and edge not in [key.num_tokens for key in store.keys_of(block)]:
        block_hash = sequence.content.hashes[edge // config.hash_block_size - 1]
        if not store.is_cached(block):
            store.note_published([block], [block_hash])
        store.register(NaiveKey(block_hash, number, block, edge))
        store.fresh += [block] if is_states(group) else []
        sequence.num_edge_tokens = edge


def is_retained(config: PoolConfig, number: int, position: int, num_prompt: int) -> bool:
    """Whether a full block is worth publishing: of sliding windows, those that hits at some places need."""
    group, interval = config.groups[number], config.prefix_cache_retention_interval
    if interval is None or not is_sliding(group):
        return True
    num_needed = num_blocks_of_hit(group)
    shift = int(group.is_draft)

    def is_needed_at(num_tokens: int) -> bool:
        end = num_tokens // group.block_size + shift
        return end - num_needed <= position < end

    def aligned(num_tokens: int) -> int:
        return align_down(num_tokens, config.scheduler_block_size)

    replays = [aligned(num_prompt - 1)]
    if any(its.is_draft for its in config.groups):
        below = config.scheduler_block_size
        replays = [aligned(num_prompt - 1) - below, aligned(num_prompt) - below]
    if any(map(is_needed_at, replays)):
        return True
    segment_ends = range(0, (position + 2) * group.block_size + interval, interval) if interval else ()
    return num_needed * group.block_size >= interval > 0 or any(map(is_needed_at, segment_ends))
