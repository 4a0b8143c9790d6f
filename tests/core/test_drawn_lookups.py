"""What is found in a pool of any mixture of kinds, whatever it caches: both pools find the same."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from blockyard.core.config import PoolConfig
from blockyard.core.pool import Pool
from core.drawn_pools import STATE_POOLS, pool_configs
from core.naive_blocks import NaiveKey
from core.naive_kinds import is_found, is_full, is_states
from core.naive_pool import NaivePool

MAX_TOKENS = 64

pools = st.one_of(
    pool_configs(caching=True),
    pool_configs(("sliding_window", "full_attention", "chunked_local_attention"), caching=True, drafts=True),
    pool_configs(("sliding_window",), caching=True, drafts=True),
    pool_configs(STATE_POOLS, caching=True),
)


@settings(max_examples=1_500, deadline=None)
@given(config=pools, num_tokens=st.integers(1, MAX_TOKENS), random=st.randoms(use_true_random=False))
def test_both_pools_find_the_same_prefix(config: PoolConfig, num_tokens: int, random: Random) -> None:
    hashes = [bytes([number]) for number in range(num_tokens // config.hash_block_size)]
    pool, naive = Pool(config), NaivePool(config)
    cache(pool, naive, hashes, random)
    found = pool.lookup(num_tokens=num_tokens, block_hashes=hashes)
    assert found == naive.lookup(num_tokens=num_tokens, block_hashes=hashes)
    assert 0 <= found.num_cached_tokens < num_tokens


def cache(pool: Pool, naive: NaivePool, hashes: list[bytes], random: Random) -> None:
    """Most blocks of a prompt, and of those that hits may end inside of, some parts; each block once."""
    config, share = naive.config, random.choice([0.5, 0.8, 0.9, 0.97])
    blocks = [list(store.free) for store in naive.stores]
    for number, group in enumerate(config.groups):
        is_split = is_full(group) or is_states(group)
        for count, block_hash in enumerate(hashes, start=1):
            num_tokens = count * config.hash_block_size
            is_part = num_tokens % group.block_size > 0
            is_due = is_found(group) and (not is_part or (is_split and random.random() < share / 2))
            free = blocks[group.is_host_resident]
            if not free or not is_due or random.random() > share:
                continue
            block = free.pop()
            store = pool.stores[group.is_host_resident]
            if is_part:
                store.publish_part(block, number, block_hash)
            else:
                store.publish_run([block], number, [block_hash])
            key = NaiveKey(block_hash, number, block, num_tokens)
            naive.stores[group.is_host_resident].register(key)
