"""A random day of pools that combine the kinds as models do, or might, watched by the audit."""

import pytest

from blockyard.core.config import GroupConfig, PoolConfig, Publish
from core.engine_day import EngineDay
from core.worked_pool import group

NUM_CALLS = 1_000
CALLS_PER_AUDIT = 20
BLOCKS_A_GROUP = 50

FULL, FULL_16 = group("full_attention"), group("full_attention", 16)
DRAFT = group("full_attention", is_draft=True)
WINDOW = group("sliding_window", sliding_window=9)
WINDOW_DRAFT = group("sliding_window", sliding_window=9, extra_retained_tokens=3, is_draft=True)
CHUNKED = group("chunked_local_attention", attention_chunk_size=8)
REFERENCE = group("rswa", rswa_window=8)
RUNNING = group("mamba", num_speculative_blocks=2)
STATE = group("mamba", mamba_cache_mode="align", num_speculative_blocks=2)
STATE_16 = group("mamba", 16, mamba_cache_mode="align")
HOST = group("mla_attention", is_host_resident=True)

POOLS: dict[str, tuple[GroupConfig, ...]] = {
    "windows of every kind": (FULL, WINDOW, CHUNKED, REFERENCE),
    "a target and its drafts": (FULL, WINDOW, DRAFT, WINDOW_DRAFT),
    "drafts alone": (DRAFT, WINDOW_DRAFT),
    "states": (FULL, STATE, STATE),
    "states, a window and a draft": (FULL, STATE, WINDOW, DRAFT),
    "states alone": (STATE,),
    "hits inside blocks": (FULL_16, STATE_16),
    "hits inside blocks of two sizes": (FULL, FULL_16, STATE_16, STATE),
    "hits inside blocks, with a draft": (FULL_16, STATE_16, group("full_attention", 16, is_draft=True)),
    "full blocks with finer hashes": (FULL_16, FULL),
    "running states": (FULL, RUNNING, CHUNKED),
    "an encoder": (FULL, group("cross_attention")),
    "circles": (FULL, group("circular_buffer"), group("kpool_tail"), WINDOW),
    "pages on the host": (HOST, FULL, group("hot", num_blocks_per_request=2), group("resident")),
}


def make_config(name: str, publish: Publish, interval: int | None) -> PoolConfig:
    groups = POOLS[name]
    num_host_groups = sum(each.is_host_resident for each in groups)
    return PoolConfig.of(
        num_blocks=1 + BLOCKS_A_GROUP * (len(groups) - num_host_groups),
        num_host_blocks=1 + BLOCKS_A_GROUP * num_host_groups if num_host_groups else None,
        groups=groups,
        hash_block_size=4,
        publish=publish,
        max_model_len=250,
        max_in_flight_tokens=64,
        enable_prefix_caching=name not in ("running states", "an encoder"),
        prefix_cache_retention_interval=interval,
    )


@pytest.mark.parametrize("publish", Publish)
@pytest.mark.parametrize("interval", [None, 0, 32])
@pytest.mark.parametrize("name", POOLS)
def test_a_pool_serves_a_day_and_gets_all_back(name: str, publish: Publish, interval: int | None) -> None:
    day = EngineDay(make_config(name, publish, interval), f"{name} {publish} {interval}")
    for call in range(NUM_CALLS):
        day.call()
        if call % CALLS_PER_AUDIT == 0:
            assert day.pool.audit().problems == []
    assert day.num_refused > 0
    assert (day.num_cached_tokens > 0) is day.pool.config.enable_prefix_caching
    day.end()
    assert day.pool.audit().problems == []
    assert day.pool.num_held_blocks == 0
