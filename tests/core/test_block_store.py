"""Blocks that are found by several keys: these come, move and go together."""

import cbor2

from blockyard.core.block_store import BlockStore
from blockyard.core.statistics import Counters


def make_store() -> BlockStore:
    """Of six blocks, for two groups; 1 to 3 are held."""
    store = BlockStore(6, 2, Counters())
    assert store.take(3) == [1, 2, 3]
    return store


def found(store: BlockStore, key: bytes, group: int = 1) -> list[int] | None:
    return store.index.find([group], key)


def test_a_full_block_is_found_by_its_key() -> None:
    store = make_store()
    store.publish_run([1], 1, [b"all"])
    assert (store.hashes_of(1), found(store, b"all"), store.num_cached_blocks) == ([b"all"], [1], 1)
    assert found(store, b"all", 0) is None


def test_a_part_of_a_block_that_is_not_full_is_its_first_key() -> None:
    store = make_store()
    store.publish_part(1, 1, b"part")
    assert (store.hashes_of(1), found(store, b"part"), store.num_cached_blocks) == ([b"part"], [1], 1)


def test_a_block_that_gets_full_loses_the_keys_of_its_parts() -> None:
    store = make_store()
    store.publish_part(1, 1, b"part")
    store.publish_run([1], 1, [b"all"])
    assert (store.hashes_of(1), found(store, b"part"), store.num_cached_blocks) == ([b"all"], None, 1)


def test_a_part_of_a_full_block_is_a_further_key() -> None:
    store = make_store()
    store.publish_run([1], 1, [b"all"])
    store.publish_part(1, 1, b"part")
    assert store.hashes_of(1) == [b"all", b"part"]
    assert found(store, b"all") == found(store, b"part") == [1]
    assert store.num_cached_blocks == 1


def test_all_keys_are_forgotten_with_their_block() -> None:
    store = make_store()
    store.publish_run([1], 1, [b"all"])
    store.publish_part(1, 1, b"part")
    store.publish_part(2, 1, b"other part")
    store.release([1, 2])
    assert store.take(5 - 1) == [4, 5, 1, 2]
    assert [store.hashes_of(block) for block in (1, 2)] == [[], []]
    assert [found(store, key) for key in (b"all", b"part", b"other part")] == [None, None, None]
    assert (store.num_cached_blocks, store._counters.num_evicted_blocks) == (0, 2)
    store.publish_run([2], 1, [b"again"])  # not taken for a block that was found by a part
    store.publish_part(2, 1, b"part")
    assert store.hashes_of(2) == [b"again", b"part"]


def test_keys_move_to_the_copy_in_their_order() -> None:
    store = make_store()
    store.publish_run([1], 1, [b"all"])
    store.publish_part(1, 1, b"part")
    store.move_hashes(1, 2)
    assert (store.hashes_of(1), store.hashes_of(2)) == ([], [b"all", b"part"])
    assert found(store, b"all") == found(store, b"part") == [2]
    assert store.num_cached_blocks == 1


def test_a_copy_of_a_block_that_is_not_full_is_not_full() -> None:
    store = make_store()
    store.publish_part(1, 1, b"part")
    store.publish_part(1, 1, b"longer part")
    store.move_hashes(1, 2)
    assert store.hashes_of(2) == [b"part", b"longer part"]
    store.publish_run([2], 1, [b"all"])
    assert store.hashes_of(2) == [b"all"]


def test_of_two_blocks_with_one_key_the_first_one_registered_is_found() -> None:
    store = make_store()
    store.publish_part(2, 1, b"part")
    store.publish_run([1], 1, [b"part"])
    assert found(store, b"part") == [2]
    store.move_hashes(2, 3)
    assert found(store, b"part") == [1]


def test_everything_is_forgotten_at_once() -> None:
    store = make_store()
    store.publish_run([1], 1, [b"all"])
    store.publish_part(1, 1, b"part")
    store.publish_part(2, 1, b"part")
    store.forget_all()
    assert [store.hashes_of(block) for block in (1, 2)] == [[], []]
    assert (store.num_cached_blocks, store.unfilled, store.further_hashes) == (0, set(), {})
    assert found(store, b"part") is None


def test_keys_survive_a_snapshot_with_their_order() -> None:
    store = make_store()
    store.publish_part(2, 1, b"part")
    store.publish_run([1], 1, [b"all"])
    store.publish_part(1, 1, b"part")
    store.publish_part(3, 0, b"part")
    state = cbor2.loads(cbor2.dumps(store.to_state()))
    restored = BlockStore.from_state(state, Counters())
    assert restored.to_state() == store.to_state()
    assert (found(restored, b"part"), found(restored, b"part", 0)) == ([2], [3])
    restored.publish_run([2], 1, [b"all"])
    assert found(restored, b"part") == [1]
