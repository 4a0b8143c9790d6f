"""What a pool tells of its prefix index: net of each command, numbered, and the same after a restart."""

from array import array
from typing import Any

import cbor2
import pytest

from blockyard.core.block_store import BlockStore
from blockyard.core.commands import (
    Admission,
    Allocate,
    Commit,
    CreateLease,
    Free,
    PoolCommand,
    RegisterWorker,
    ResetPrefixCache,
)
from blockyard.core.config import EventsConfig, GroupConfig, PoolConfig, Publish
from blockyard.core.errors import InvalidRequest
from blockyard.core.extra_keys import Extras, Lora
from blockyard.core.ids import LeaseId, SequenceId, WorkerId
from blockyard.core.kv_batch import AllBlocksCleared, Batch, BlockRemoved, BlocksStored, StoredBlock
from blockyard.core.kv_events import KvEvents
from blockyard.core.pool import Pool
from blockyard.core.recent_batches import MAX_BATCHES, RecentBatches
from blockyard.core.statistics import Counters

LEASE = LeaseId("lease")
FULL = GroupConfig(kind="full_attention", block_size=2)
A, B, C = b"a" * 32, b"b" * 32, b"c" * 32


class Told:
    """A pool with events, blocks of two tokens, and a lease."""

    def __init__(self, num_blocks: int = 20, **options: Any) -> None:
        events = options.pop("events", EventsConfig())
        config = PoolConfig.of(num_blocks=num_blocks, groups=[FULL], events=events, **options)
        self.pool = Pool(config)
        self.now_ms = 0
        self.do(CreateLease(lease_id=LEASE, holder="test", ttl_ms=10**6))

    def do(self, command: PoolCommand) -> list[Batch]:
        self.now_ms += 1_000
        self.pool.apply(command, self.now_ms)
        assert self.pool.audit().problems == []
        assert self.pool.events is not None
        return self.pool.events.take()

    def allocate(self, name: str, num_tokens: int, **content: Any) -> list[Batch]:
        admission = Admission(sequence_id=SequenceId(name), num_tokens=num_tokens, **content)
        return self.do(Allocate(lease_id=LEASE, admission=admission))

    def commit(self, name: str, num_tokens: int, **content: Any) -> list[Batch]:
        sequence_id = SequenceId(name)
        command = Commit(lease_id=LEASE, sequence_id=sequence_id, num_computed_tokens=num_tokens, **content)
        return self.do(command)

    def free(self, *names: str) -> list[Batch]:
        return self.do(Free(lease_id=LEASE, sequence_ids=[SequenceId(name) for name in names]))


def tokens(*token_ids: int) -> bytes:
    return array("Q", token_ids).tobytes()


def test_consecutive_blocks_are_one_event_with_their_tokens() -> None:
    told = Told()
    assert told.allocate("s", 5, token_ids=[1, 2, 3, 4, 5]) == []
    (batch,) = told.commit("s", 5)
    assert (batch.number, batch.now_ms) == (0, told.now_ms)
    (event,) = batch.events
    assert isinstance(event, BlocksStored)
    first, second = event.blocks
    assert (first.parent_hash, second.parent_hash) == (None, first.block_hash)
    assert (first.token_ids, second.token_ids) == (tokens(1, 2), tokens(3, 4))
    assert (first.extra_keys, first.lora_name, first.num_tokens) == ((), None, 2)


def test_of_hashes_alone_neither_tokens_nor_extra_keys_are_known() -> None:
    told = Told()
    told.allocate("s", 4, block_hashes=[A, B])
    (batch,) = told.commit("s", 4)
    assert batch.events == [BlocksStored(0, [StoredBlock(A, None, 2), StoredBlock(B, A, 2)])]


def test_tokens_beside_hashes_are_told() -> None:
    told = Told()
    told.allocate("s", 6, block_hashes=[A], event_token_ids=[1, 2])
    (batch,) = told.commit("s", 6, block_hashes=[B], event_token_ids=[3, 4])
    assert batch.events == [
        BlocksStored(0, [StoredBlock(A, None, 2, tokens(1, 2)), StoredBlock(B, A, 2, tokens(3, 4))])
    ]


def test_adapters_and_extra_keys_are_told() -> None:
    told = Told()
    told.allocate("s", 4, token_ids=[1, 2, 3, 4], extras=Extras(lora=Lora("l", "/l"), cache_salt="salt"))
    (batch,) = told.commit("s", 4)
    (event,) = batch.events
    assert isinstance(event, BlocksStored)
    assert [block.lora_name for block in event.blocks] == ["l", "l"]
    assert [block.extra_keys for block in event.blocks] == [("l", "salt"), ("l",)]


def test_a_key_with_two_blocks_is_stored_once_and_removed_with_the_last() -> None:
    told = Told(num_blocks=6)
    told.allocate("one", 2, block_hashes=[A])
    told.allocate("two", 2, block_hashes=[A])
    assert len(told.commit("one", 2)) == 1
    assert told.commit("two", 2) == []
    told.free("one", "two")
    assert told.allocate("most", 8) == []  # evicts one of the two
    (batch,) = told.allocate("last", 2)
    assert batch.events == [BlockRemoved(0, A)]
    assert batch.number == 1


def test_what_is_evicted_and_published_in_one_command_is_told_in_that_order() -> None:
    told = Told(num_blocks=3, publish=Publish.ON_ALLOCATE)
    told.allocate("one", 2, block_hashes=[A])
    told.allocate("two", 2, block_hashes=[B])
    told.free("one", "two")
    (batch,) = told.allocate("three", 2, block_hashes=[C])
    assert batch.events == [BlockRemoved(0, A), BlocksStored(0, [StoredBlock(C, None, 2)])]


def test_what_is_evicted_and_published_again_in_one_command_is_not_told() -> None:
    told = Told(num_blocks=2, publish=Publish.ON_ALLOCATE)
    told.allocate("one", 2, block_hashes=[A])
    told.free("one")
    assert told.allocate("two", 2, block_hashes=[A], skip_prefix_cache=True) == []


def test_runs_are_cut_where_blocks_do_not_follow_each_other() -> None:
    told = Told()
    told.allocate("one", 4, block_hashes=[A, B])
    told.allocate("two", 2, block_hashes=[C])
    told.commit("one", 2)
    (batch,) = told.commit("two", 2)
    assert batch.events == [BlocksStored(0, [StoredBlock(C, None, 2)])]
    (batch,) = told.commit("one", 4)
    assert batch.events == [BlocksStored(0, [StoredBlock(B, A, 2)])]


def test_an_emptied_cache_is_cleared_at_once() -> None:
    told = Told()
    told.allocate("s", 2, block_hashes=[A])
    told.commit("s", 2)
    told.free("s")
    (batch,) = told.do(ResetPrefixCache())
    assert batch.events == [AllBlocksCleared()]
    assert told.pool.events is not None
    assert told.pool.events.stored == [{}]


def test_a_new_epoch_clears() -> None:
    told = Told(needs_all_workers=False)
    told.allocate("s", 2, block_hashes=[A])
    told.commit("s", 2)
    worker = RegisterWorker(worker_id=WorkerId("w"), rank=0, device="cpu", incarnation="a")
    (batch,) = told.do(worker)
    assert batch.events == [AllBlocksCleared()]


def test_a_restored_pool_goes_on_with_numbers_and_knows_what_is_stored() -> None:
    told = Told()
    extras = Extras(lora=Lora("l", "/l"))
    told.allocate("s", 7, token_ids=[1, 2, 3, 4, 5, 6], extras=extras)
    told.commit("s", 4)
    snapshot = told.pool.snapshot()
    before = told.pool.events
    told.pool = Pool.restore(cbor2.loads(cbor2.dumps(snapshot)))
    assert told.pool.snapshot() == snapshot
    assert before is not None
    assert told.pool.events is not None
    assert told.pool.events.stored == before.stored
    (batch,) = told.commit("s", 6)
    assert batch.number == 1
    (event,) = batch.events
    assert isinstance(event, BlocksStored)
    assert event.blocks[0].token_ids == tokens(5, 6)


def test_a_pool_without_events_tells_nothing_and_keeps_no_tokens() -> None:
    pool = Pool(PoolConfig.of(num_blocks=4, groups=[FULL]))
    assert pool.events is None
    pool.apply(CreateLease(lease_id=LEASE, holder="test", ttl_ms=1_000), 0)
    admission = Admission(sequence_id=SequenceId("s"), num_tokens=2, token_ids=[1, 2])
    pool.apply(Allocate(lease_id=LEASE, admission=admission), 0)
    (sequence,) = pool.sequences
    assert sequence.token_ids is None
    assert pool.counters.num_event_batches == 0


def test_batches_that_nobody_takes_are_bounded() -> None:
    events = KvEvents([BlockStore(2, 1, Counters()).index], Counters())
    for _ in range(MAX_BATCHES + 5):
        events.cleared()
        events.end_command(0)
    batches = events.take()
    assert len(batches) == MAX_BATCHES
    assert (batches[0].number, batches[-1].number) == (5, MAX_BATCHES + 4)
    assert events.take() == []


def test_recent_batches_are_bounded_by_their_hashes_too() -> None:
    recent = RecentBatches(max_batches=10, max_hashes=5)
    small, large = [BlockRemoved(0, A)], [BlocksStored(0, [StoredBlock(A, None, 2)] * 9)]
    for number in range(5):
        recent.append(Batch(number, 0, small))
    assert recent.first_number == 0
    recent.append(Batch(5, 0, small))
    assert recent.first_number == 1
    recent.append(Batch(6, 0, large))
    assert [batch.number for batch in recent.since(0, 10)] == [6]
    recent.append(Batch(7, 0, small))
    assert [batch.number for batch in recent.since(0, 10)] == [7]


@pytest.mark.parametrize(("number", "found"), [(0, [3, 4]), (3, [3, 4]), (4, [4]), (5, []), (2**70, [])])
def test_recent_batches_are_found_by_number(number: int, found: list[int]) -> None:
    recent = RecentBatches(max_batches=2)
    for each in range(5):
        recent.append(Batch(each, 0, [AllBlocksCleared()]))
    assert [batch.number for batch in recent.since(number, 10)] == found
    assert [batch.number for batch in recent.since(number, 1)] == found[:1]


def test_the_audit_finds_events_that_told_something_else() -> None:
    told = Told()
    told.allocate("s", 2, block_hashes=[A])
    told.commit("s", 2)
    assert told.pool.events is not None
    told.pool.events.stored[0].clear()
    assert "events told of 0" in told.pool.audit().problems[0]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"block_hashes": [A, B], "event_token_ids": [1, 2]}, "4 tokens, and 2 are told"),
        ({"block_hashes": [A], "event_token_ids": [1, 2, 3, 4, 5]}, "more than 4 tokens"),
        ({"token_ids": [1, 2], "event_token_ids": [1, 2]}, "leave them out"),
        ({"block_hashes": [A], "event_token_ids": [1, -2]}, "every id"),
    ],
)
def test_tokens_that_do_not_fit_their_hashes_are_refused(content: dict[str, Any], complaint: str) -> None:
    told = Told()
    with pytest.raises(InvalidRequest, match=complaint):
        told.allocate("s", 4, **content)
    assert len(told.pool.sequences) == 0


def test_tokens_for_events_are_refused_by_a_pool_without_events() -> None:
    told = Told(events=EventsConfig())
    told.pool = Pool(PoolConfig.of(num_blocks=4, groups=[FULL]))
    told.pool.apply(CreateLease(lease_id=LEASE, holder="test", ttl_ms=1_000), 0)
    admission = Admission(sequence_id=SequenceId("s"), num_tokens=2, block_hashes=[A], event_token_ids=[1, 2])
    with pytest.raises(InvalidRequest, match="the pool has no events"):
        told.pool.apply(Allocate(lease_id=LEASE, admission=admission), 0)


def test_a_sequence_that_tells_its_tokens_is_not_to_tell_them_twice() -> None:
    told = Told()
    told.allocate("s", 4, token_ids=[1, 2])
    with pytest.raises(InvalidRequest, match="leave them out"):
        told.commit("s", 4, event_token_ids=[3, 4])


def test_a_pool_that_needs_tokens_refuses_hashes_without_them() -> None:
    told = Told(events=EventsConfig(needs_token_ids=True))
    with pytest.raises(InvalidRequest, match="2 tokens, and 0 are told"):
        told.allocate("s", 2, block_hashes=[A])
    told.allocate("s", 4, block_hashes=[A], event_token_ids=[1, 2])
    with pytest.raises(InvalidRequest, match="4 tokens, and 2 are told"):
        told.commit("s", 4, block_hashes=[B])
    told.allocate("t", 4, token_ids=[1, 2, 3, 4])


def test_a_lookup_needs_no_tokens_beside_its_hashes() -> None:
    told = Told(events=EventsConfig(needs_token_ids=True))
    assert told.pool.lookup(num_tokens=3, block_hashes=[A]).num_cached_tokens == 0


def test_recent_batches_are_found_by_hashes_one_at_least() -> None:
    recent = RecentBatches()
    for number in range(4):
        recent.append(Batch(number, 0, [BlocksStored(0, [StoredBlock(A, None, 2)] * 3)]))
    for max_hashes, found in ((None, [1, 2, 3]), (9, [1, 2, 3]), (8, [1, 2]), (3, [1]), (1, [1])):
        assert [batch.number for batch in recent.since(1, 10, max_hashes)] == found
