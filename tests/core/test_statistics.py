"""The hit rate over the last thousand requests, and a pool's figures of the moment."""

from blockyard.core.statistics import WINDOW_REQUESTS, HitWindow
from core.worked_pool import WorkedPool, group


def test_no_queries_is_not_a_rate() -> None:
    assert HitWindow().hit_rate is None


def test_no_hits_is_a_rate_of_zero() -> None:
    window = HitWindow()
    window.add(10, 0)
    assert window.hit_rate == 0.0


def test_tokens_are_weighed_not_requests() -> None:
    window = HitWindow()
    window.add(90, 0)
    window.add(10, 10)
    assert window.hit_rate == 0.1


def test_only_the_last_thousand_requests_count() -> None:
    window = HitWindow()
    window.add(10, 10)
    for _ in range(WINDOW_REQUESTS):
        window.add(10, 5)
    assert window.hit_rate == 0.5


def test_a_window_survives_a_snapshot() -> None:
    window = HitWindow()
    for number in range(1, WINDOW_REQUESTS + 5):
        window.add(number, number // 2)
    restored = HitWindow.from_state(window.to_state())
    assert restored.hit_rate == window.hit_rate
    assert restored.to_state() == window.to_state()


def test_the_hosts_blocks_are_told_beside_the_devices() -> None:
    host = group("full_attention", is_host_resident=True)
    pool = WorkedPool(group("full_attention"), host, num_blocks=10, num_host_blocks=20)
    pool.allocate("a", 9)
    told = pool.pool.statistics()
    assert (told.num_blocks, told.num_free_blocks, told.num_held_blocks) == (10, 6, 3)
    assert (told.num_host_blocks, told.num_free_host_blocks) == (20, 16)
    assert told.usage == 3 / 9


def test_a_pool_without_a_host_tells_nothing_of_one() -> None:
    told = WorkedPool(group("full_attention")).pool.statistics()
    assert (told.num_host_blocks, told.num_free_host_blocks) == (None, None)


def test_a_block_with_several_keys_is_one_cached_block() -> None:
    pool = WorkedPool(group("full_attention", 8), hash_block_size=4)
    pool.allocate("a", 16)
    assert pool.keys(2) == ["16 tokens", "12 tokens"]
    assert pool.pool.statistics().num_cached_blocks == 2
    assert pool.pool.statistics().counters["num_published_blocks"] == 2


def test_blocks_held_for_a_copy_are_held_blocks() -> None:
    state = group("mamba", 8, mamba_cache_mode="align")
    pool = WorkedPool(group("full_attention", 8), state, hash_block_size=4)
    pool.allocate("a", 15, max_new_tokens=12)
    pool.free("a")
    pool.allocate("b", 15)  # 1, copies 4 and 5; 2 and 3 are held for these alone
    assert pool.pool.statistics().num_held_blocks == 5
