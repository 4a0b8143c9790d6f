"""Those who wait for blocks, without a server: nobody starves, and nothing is left of those who go."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blockyard.core.commands import (
    Admission,
    Allocate,
    AllocateBlocks,
    Command,
    Commit,
    CreateLease,
    CreatePin,
    DeleteLease,
    Free,
    FreeBlocks,
    Idempotent,
    RegisterWorker,
    SetQuota,
)
from blockyard.core.config import GroupConfig, PoolConfig
from blockyard.core.errors import (
    BlockyardError,
    InsufficientBlocks,
    LeaseExpired,
    NotReady,
    QuotaExceeded,
    StaleEpoch,
)
from blockyard.core.ids import BlockId, LeaseId, PinId, SequenceId, TenantId, WorkerId
from blockyard.core.pool import Pool
from blockyard.core.quota import Quota
from blockyard.core.replies import BlocksAllocated, Reply
from blockyard.server.waiting_room import Waiter, WaitingRoom
from rounds import NIGHTLY

RED, GREEN, BLUE = TenantId("red"), TenantId("green"), TenantId("blue")
TENANTS = (RED, GREEN, BLUE)
NUM_USABLE = 10
MAX_SIZE = 4
MAX_ROUNDS_HELD = 3

T = TypeVar("T")


@dataclass
class Room:
    """A pool of ten blocks, a lease of each tenant under its name, and the waiting room."""

    pool: Pool
    room: WaitingRoom = field(init=False)
    num_tried: int = 0

    def __post_init__(self) -> None:
        for tenant in TENANTS:
            self.pool.apply(
                CreateLease(tenant=tenant, lease_id=LeaseId(tenant), holder="test", ttl_ms=1_000), 0
            )
        self.room = WaitingRoom(self.pool, self.apply_waiting)

    def apply_waiting(self, command: Command) -> Reply:
        self.num_tried += 1
        return self.pool.apply(command, 0)

    def apply(self, command: Command) -> Reply:
        """As `Pools.apply` does for those who do not wait."""
        try:
            return self.pool.apply(self.room.leaving_reserved(command), 0)
        finally:
            self.room.notice()

    def take(self, tenant: TenantId, num_blocks: int) -> list[BlockId]:
        reply = self.apply(AllocateBlocks(tenant=tenant, lease_id=LeaseId(tenant), num_blocks=num_blocks))
        assert isinstance(reply, BlocksAllocated)
        return reply.block_ids

    def give_back(self, tenant: TenantId, blocks: list[BlockId]) -> None:
        self.apply(FreeBlocks(tenant=tenant, lease_id=LeaseId(tenant), block_ids=blocks))

    def wait(self, tenant: TenantId, num_blocks: int, **key: Any) -> Waiter:
        asked = AllocateBlocks(
            tenant=tenant, lease_id=LeaseId(tenant), num_blocks=num_blocks, is_waiting=True
        )
        return self.room.join(Idempotent(command=asked, **key) if key else asked, None)


def make_room(**quotas: Quota) -> Room:
    groups = [GroupConfig(kind="full_attention", block_size=2)]
    pool = Pool(PoolConfig.of(num_blocks=NUM_USABLE + 1, groups=groups))
    for name, quota in quotas.items():
        pool.apply(SetQuota(holder=TenantId(name), quota=quota), 0)
    return Room(pool)


def run(main: Callable[[], Awaitable[T]]) -> T:
    async def whole() -> T:
        return await main()

    return asyncio.run(whole())


async def turn() -> None:
    """Let the room do what it has noticed."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def blocks_of(waiter: Waiter) -> list[BlockId]:
    reply = waiter.outcome.result()
    assert isinstance(reply, BlocksAllocated)
    return reply.block_ids


def test_who_came_first_is_served_first_though_another_would_fit() -> None:
    async def main() -> None:
        room = make_room()
        held = room.take(RED, 9)
        large, small = room.wait(BLUE, 5), room.wait(BLUE, 1)
        await turn()
        assert not large.outcome.done()
        assert not small.outcome.done()
        room.give_back(RED, held[:4])
        await turn()
        assert len(blocks_of(large)) == 5
        assert not small.outcome.done()
        room.give_back(RED, held[4:])
        await turn()
        assert len(blocks_of(small)) == 1

    run(main)


def test_what_the_next_one_needs_is_kept_from_those_that_do_not_wait() -> None:
    async def main() -> None:
        room = make_room()
        held = room.take(RED, 8)
        waiter = room.wait(BLUE, 5)
        await turn()
        with pytest.raises(InsufficientBlocks):
            room.take(GREEN, 1)
        room.give_back(RED, held[:2])
        with pytest.raises(InsufficientBlocks):
            room.take(RED, 1)
        room.give_back(RED, held[2:])
        await turn()
        assert len(blocks_of(waiter)) == 5
        room.take(GREEN, 5)

    run(main)


def test_what_is_guaranteed_is_given_past_those_who_wait() -> None:
    async def main() -> None:
        room = make_room(green=Quota(guaranteed_blocks=2))
        room.take(RED, 8)
        room.wait(BLUE, 5)
        await turn()
        waiter = room.wait(GREEN, 1)
        await turn()
        assert len(blocks_of(waiter)) == 1
        room.take(GREEN, 1)

    run(main)


def test_a_tenant_at_its_maximum_holds_up_nobody_else() -> None:
    async def main() -> None:
        room = make_room(red=Quota(max_blocks=3))
        held = room.take(RED, 3)
        at_most = room.wait(RED, 2)
        await turn()
        assert isinstance(at_most.refusal, QuotaExceeded)
        room.take(BLUE, 7)
        room.give_back(RED, held[:1])
        await turn()
        assert not at_most.outcome.done()
        room.give_back(RED, held[1:])
        await turn()
        assert len(blocks_of(at_most)) == 2

    run(main)


def test_who_goes_leaves_nothing_behind() -> None:
    async def main() -> None:
        room = make_room()
        held = room.take(RED, 10)
        first, second = room.wait(BLUE, 8), room.wait(BLUE, 1)
        await turn()
        room.give_back(RED, held[:1])
        await turn()
        room.room.leave(first)
        await turn()
        assert len(blocks_of(second)) == 1
        assert list(room.room._line) == []
        room.give_back(RED, held[1:])
        room.take(GREEN, 9)  # nothing is reserved any more
        assert room.pool.audit().ok

    run(main)


def test_a_hard_pin_leaves_what_is_reserved() -> None:
    async def main() -> None:
        room = make_room()
        kept = Admission(sequence_id=SequenceId("s"), num_tokens=8, block_hashes=[b"1", b"2", b"3", b"4"])
        lease: dict[str, Any] = {"tenant": GREEN, "lease_id": LeaseId(GREEN)}
        room.apply(Allocate(admission=kept, **lease))
        room.apply(Commit(sequence_id=kept.sequence_id, num_computed_tokens=8, **lease))
        room.apply(Free(sequence_ids=[kept.sequence_id], **lease))
        room.take(RED, 5)
        room.wait(BLUE, 6)
        await turn()
        pin = CreatePin(tenant=GREEN, pin_id=PinId("p"), ttl_ms=500, hard=True, block_hashes=[b"1", b"2"])
        with pytest.raises(InsufficientBlocks):
            room.apply(pin)
        room.pool.apply(pin, 0)

    run(main)


def test_a_waiter_whose_lease_has_ended_is_told_so_and_holds_up_nobody() -> None:
    async def main() -> None:
        room = make_room()
        held = room.take(RED, 10)
        gone, other = room.wait(BLUE, 8), room.wait(GREEN, 1)
        await turn()
        room.apply(DeleteLease(tenant=BLUE, lease_id=LeaseId(BLUE)))
        room.give_back(RED, held[:1])
        await turn()
        assert isinstance(gone.outcome.exception(), LeaseExpired)
        assert len(blocks_of(other)) == 1

    run(main)


def test_what_was_given_to_a_waiter_is_given_again_to_its_repeat_alone() -> None:
    async def main() -> None:
        room = make_room()
        held = room.take(RED, 10)
        waiter = room.wait(BLUE, 2, key="k", fingerprint=b"f")
        await turn()
        room.give_back(RED, held[:2])
        await turn()
        blocks = blocks_of(waiter)
        assert room.pool.remembers(waiter.command)
        again = room.wait(BLUE, 2, key="k", fingerprint=b"f")
        await turn()
        assert blocks_of(again) == blocks
        assert room.pool.store.num_free_blocks == 0

    run(main)


def test_all_are_told_when_the_room_closes() -> None:
    async def main() -> None:
        room = make_room()
        room.take(RED, 10)
        waiters = [room.wait(tenant, 1) for tenant in TENANTS]
        await turn()
        room.room.close(NotReady("the server stops", {"retry_after_ms": 1}))
        for waiter in waiters:
            assert isinstance(waiter.outcome.exception(), NotReady)
        assert list(room.room._line) == []

    run(main)


def test_what_cannot_help_is_not_tried_again() -> None:
    """Each try is written to the journal."""

    async def main() -> None:
        room = make_room()
        held = room.take(RED, 10)
        room.wait(BLUE, 8)
        await turn()
        assert room.num_tried == 1
        for block in held[:7]:
            room.give_back(RED, [block])
            await turn()
        assert room.num_tried == 1
        room.give_back(RED, held[7:8])
        await turn()
        assert room.num_tried == 2

    run(main)


@settings(max_examples=400 if NIGHTLY else 20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    weights=st.tuples(*[st.integers(1, 3)] * 3),
    guaranteed=st.integers(0, 4),
)
def test_no_waiter_starves_while_what_is_held_is_given_back(
    seed: int, weights: tuple[int, int, int], guaranteed: int
) -> None:
    """Newcomers come all the time, most do not wait, and they hold what they get for three rounds at most.

    Whoever waits is served within as many rounds as all who may be before it can take.
    """
    draw = random.Random(seed)

    async def main() -> None:
        room = make_room(
            **{
                tenant: Quota(weight=weight, guaranteed_blocks=guaranteed if tenant == RED else 0)
                for tenant, weight in zip(TENANTS, weights, strict=True)
            }
        )
        waiting: list[tuple[int, TenantId, Waiter]] = []
        held: list[tuple[int, TenantId, list[BlockId]]] = []
        most_rounds = 0
        for round_number in range(400):
            for due, tenant, blocks in list(held):
                if due <= round_number:
                    held.remove((due, tenant, blocks))
                    room.give_back(tenant, blocks)
            for _ in range(draw.randrange(4)):
                tenant, size = draw.choice(TENANTS), draw.randint(1, MAX_SIZE)
                if draw.random() < 0.4 and sum(of == tenant for _, of, _ in waiting) < 3:
                    waiting.append((round_number, tenant, room.wait(tenant, size)))
                else:
                    try:
                        blocks = room.take(tenant, size)
                    except BlockyardError:
                        continue
                    held.append((round_number + draw.randint(1, MAX_ROUNDS_HELD), tenant, blocks))
            await turn()
            assert room.pool.audit().ok
            for since, tenant, waiter in list(waiting):
                if waiter.outcome.done():
                    waiting.remove((since, tenant, waiter))
                    held.append((round_number + MAX_ROUNDS_HELD, tenant, blocks_of(waiter)))
                    most_rounds = max(most_rounds, round_number - since)
                # Two of its tenant are before it at most; for each of the three turns, either other tenant is
                # given 3 * (4 + 4) blocks at most, if it weighs three times as much, one by one.
                assert round_number - since <= 3 * (2 * 24 + 1) * MAX_ROUNDS_HELD
        assert waiting == [] or most_rounds > 0

    run(main)


def test_what_can_never_be_given_holds_up_nobody_once_its_turn_comes() -> None:
    async def main() -> None:
        room = make_room()
        held = room.take(RED, 9)
        first, impossible, last = room.wait(BLUE, 2), room.wait(BLUE, NUM_USABLE + 1), room.wait(BLUE, 1)
        await turn()
        room.give_back(RED, held[:2])
        await turn()
        assert len(blocks_of(first)) == 2
        assert isinstance(impossible.outcome.exception(), InsufficientBlocks)
        assert len(blocks_of(last)) == 1
        room.give_back(RED, held[2:])
        room.take(GREEN, 7)

    run(main)


def test_what_is_guaranteed_to_others_can_never_be_given() -> None:
    async def main() -> None:
        room = make_room(red=Quota(guaranteed_blocks=4))
        too_much, most = room.wait(BLUE, 7), room.wait(BLUE, 6)
        await turn()
        refusal = too_much.outcome.exception()
        assert isinstance(refusal, InsufficientBlocks)
        assert refusal.figures == {
            "num_required_blocks": 7,
            "num_free_blocks": 6,
            "num_usable_blocks": 6,
        }
        assert len(blocks_of(most)) == 6

    run(main)


@pytest.mark.parametrize(
    ("holder", "quota"), [(BLUE, Quota(max_blocks=4)), (RED, Quota(guaranteed_blocks=6))]
)
def test_a_quota_that_makes_it_impossible_ends_a_wait(holder: TenantId, quota: Quota) -> None:
    async def main() -> None:
        room = make_room()
        held = room.take(RED, 10)
        waiter = room.wait(BLUE, 5)
        await turn()
        assert not waiter.outcome.done()
        room.apply(SetQuota(holder=holder, quota=quota))
        await turn()
        assert isinstance(waiter.outcome.exception(), InsufficientBlocks)
        room.give_back(RED, held)
        room.take(GREEN, 4)

    run(main)


def test_a_maximum_that_is_lowered_ends_the_wait_for_more() -> None:
    async def main() -> None:
        room = make_room(blue=Quota(max_blocks=5))
        room.take(BLUE, 3)
        waiter, small = room.wait(BLUE, 4), room.wait(BLUE, 1)
        await turn()
        assert isinstance(waiter.refusal, QuotaExceeded)
        assert not waiter.outcome.done()
        room.apply(SetQuota(holder=BLUE, quota=Quota(max_blocks=3)))
        await turn()
        assert isinstance(waiter.outcome.exception(), QuotaExceeded)
        assert not small.outcome.done()

    run(main)


def extension(tenant: TenantId, num_tokens: int) -> Allocate:
    """Of the tenant's sequence, of two tokens a block."""
    admission = Admission(sequence_id=SequenceId("running"), num_tokens=num_tokens)
    return Allocate(tenant=tenant, lease_id=LeaseId(tenant), admission=admission, is_waiting=True)


@pytest.mark.parametrize("tenant", [BLUE, GREEN])
def test_a_running_sequence_that_waits_passes_new_ones_so_that_it_ends(tenant: TenantId) -> None:
    async def main() -> None:
        room = make_room()
        room.apply(extension(tenant, 10))
        held = room.take(RED, 5)
        new = room.wait(BLUE, 6)
        await turn()
        running = room.room.join(extension(tenant, 14), None)
        behind = room.room.join(extension(tenant, 16), None)
        await turn()
        assert not running.outcome.done()
        room.give_back(RED, held[:2])
        await turn()
        assert running.outcome.done()
        assert not behind.outcome.done()
        room.give_back(RED, held[2:3])
        await turn()
        assert behind.outcome.done()
        assert not new.outcome.done()
        room.apply(DeleteLease(tenant=tenant, lease_id=LeaseId(tenant)))
        await turn()
        assert new.outcome.done()

    run(main)


def test_an_epoch_that_begins_ends_the_waits_under_leases_of_the_one_before() -> None:
    async def main() -> None:
        room = make_room()
        room.take(RED, 10)
        waiter = room.wait(BLUE, 5)
        await turn()
        assert not waiter.outcome.done()
        worker = RegisterWorker(worker_id=WorkerId("w"), rank=0, device="cpu", incarnation="1")
        room.apply(worker)
        await turn()
        assert isinstance(waiter.outcome.exception(), StaleEpoch)

    run(main)
