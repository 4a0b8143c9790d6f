"""Tenants that do what they like in one pool. What each is told has to agree with a ledger of replies.

After every rule the audit is clean, nobody is charged for more or less than it holds, and whoever holds less
than is guaranteed to it gets the rest at once, were it to ask.
"""

from collections import Counter
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from blockyard.core.arithmetic import div_ceil
from blockyard.core.commands import (
    Admission,
    Allocate,
    AllocateBlocks,
    Commit,
    CreateLease,
    DeleteLease,
    ExpireLeases,
    Free,
    FreeBlocks,
    PoolCommand,
    SetQuota,
)
from blockyard.core.config import GroupConfig, PoolConfig, Publish
from blockyard.core.errors import BlockyardError, InvalidRequest, LeaseExpired
from blockyard.core.ids import NO_TENANT, BlockHash, BlockId, LeaseId, SequenceId, TenantId
from blockyard.core.pool import Pool
from blockyard.core.quota import Quota
from blockyard.core.replies import Allocated, BlocksAllocated, LeasesExpired, Reply
from core.allocator import outcome
from core.tenant_ledger import LedgerLease, TenantLedger

TENANTS = (TenantId("red"), TenantId("green"), TenantId("blue"), NO_TENANT)
BLOCK_SIZE = 2
MAX_TOKENS = 16
SEQUENCE_IDS = [SequenceId(f"s{number}") for number in range(6)]
picks = st.integers(0, 63)
tenants = st.sampled_from(TENANTS)


class TenantMachine(RuleBasedStateMachine):
    """Three tenants and those that are none's, in a pool of one group."""

    coverage: ClassVar[Counter[str]]

    pool: Pool
    ledger: TenantLedger

    @staticmethod
    def plant(pool: Pool) -> None:
        """Where a subclass breaks the pool on purpose."""

    @initialize(
        num_blocks=st.sampled_from([9, 14, 25]),
        watermark=st.sampled_from([0, 0, 2]),
        share=st.booleans(),
        publish=st.sampled_from(list(Publish)),
    )
    def create(self, *, num_blocks: int, watermark: int, share: bool, publish: Publish) -> None:
        self.pool = Pool(
            PoolConfig.of(
                num_blocks=num_blocks,
                groups=[GroupConfig(kind="full_attention", block_size=BLOCK_SIZE)],
                watermark_blocks=watermark,
                share_across_tenants=share,
                publish=publish,
            )
        )
        self.plant(self.pool)
        self.ledger = TenantLedger(num_blocks, watermark)
        self.now_ms = 1_000
        self.num_leases = 0
        self.readers: dict[BlockId, TenantId] = {}
        """Who alone may find what a block was last given out for; missing where all may."""
        self.lengths: dict[tuple[LeaseId, SequenceId], tuple[int, int]] = {}

    # Quotas

    @rule(
        tenant=st.sampled_from(TENANTS[:3]),
        guaranteed=st.integers(0, 6),
        beyond=st.sampled_from([None, 0, 1, 4]),
    )
    def set_quota(self, *, tenant: TenantId, guaranteed: int, beyond: int | None) -> None:
        quota = Quota(
            guaranteed_blocks=guaranteed, max_blocks=None if beyond is None else guaranteed + beyond, weight=1
        )
        promised = sum(
            quota.guaranteed_blocks for name, quota in self.ledger.quotas.items() if name != tenant
        )
        got = self.ask(SetQuota(holder=tenant, quota=quota))
        if promised + guaranteed > self.ledger.num_usable:
            assert isinstance(got, InvalidRequest)
            self.coverage["too much is promised"] += 1
            return
        assert isinstance(got, Reply)
        self.ledger.quotas[tenant] = quota
        self.ledger.is_promised = False
        self.coverage["quotas"] += 1

    # Leases

    @rule(tenant=tenants, ttl_ms=st.sampled_from([500, 5_000, 50_000]))
    def create_lease(self, *, tenant: TenantId, ttl_ms: int) -> None:
        self.num_leases += 1
        lease_id = LeaseId(f"l{self.num_leases}")
        assert isinstance(
            self.ask(CreateLease(tenant=tenant, lease_id=lease_id, holder="test", ttl_ms=ttl_ms)), Reply
        )
        self.ledger.leases[lease_id] = LedgerLease(tenant)

    create_another_lease = create_lease

    @precondition(lambda self: self.ledger.leases)
    @rule(pick=picks)
    def delete_lease(self, *, pick: int) -> None:
        lease_id, lease = self.pick_lease(pick)
        assert isinstance(self.ask(DeleteLease(tenant=lease.tenant, lease_id=lease_id)), Reply)
        del self.ledger.leases[lease_id]

    @rule(passed_ms=st.sampled_from([0, 200, 600]))
    def pass_time(self, *, passed_ms: int) -> None:
        self.now_ms += passed_ms
        expired = self.ask(ExpireLeases())
        assert isinstance(expired, LeasesExpired)
        for lease_id in expired.lease_ids:
            del self.ledger.leases[lease_id]
        self.coverage["expired"] += len(expired.lease_ids)

    @precondition(lambda self: self.ledger.leases)
    @rule(pick=picks, stranger=tenants)
    def use_foreign_lease(self, *, pick: int, stranger: TenantId) -> None:
        lease_id, lease = self.pick_lease(pick)
        if stranger == lease.tenant:
            return
        commands = (
            DeleteLease(tenant=stranger, lease_id=lease_id),
            AllocateBlocks(tenant=stranger, lease_id=lease_id, num_blocks=1),
            FreeBlocks(tenant=stranger, lease_id=lease_id, block_ids=sorted(lease.raw_blocks)),
            Free(tenant=stranger, lease_id=lease_id, sequence_ids=list(lease.tables)),
        )
        for command in commands:
            assert isinstance(self.ask(command), LeaseExpired)

    # Blocks

    @precondition(lambda self: self.ledger.leases)
    @rule(
        pick=picks,
        name=st.sampled_from(SEQUENCE_IDS),
        prompt=st.integers(0, 1),
        num_tokens=st.integers(1, MAX_TOKENS),
        is_salted=st.sampled_from([False, False, True]),
        num_reserved=st.sampled_from([0, 0, 0, 3]),
    )
    def allocate(
        self,
        *,
        pick: int,
        name: SequenceId,
        prompt: int,
        num_tokens: int,
        is_salted: bool,
        num_reserved: int,
    ) -> None:
        """A new sequence, or more for one that the lease has."""
        lease_id, lease = self.pick_lease(pick)
        tenant, table = lease.tenant, lease.tables.get(name)
        hashes: list[BlockHash] = []
        if table is None:
            if any(name in other.tables for other in self.ledger.leases.values() if other.tenant == tenant):
                return
            hashes = prompt_hashes(prompt)[: num_tokens // BLOCK_SIZE]
            found = self.pool.lookup(
                num_tokens=num_tokens, block_hashes=hashes, tenant=tenant, tenant_only=is_salted
            )
            (hit,) = found.block_ids
            for block in hit:
                assert self.readers.get(block, tenant) == tenant
            self.coverage["hits across tenants"] += any(block not in self.readers for block in hit) and (
                tenant not in self.tenants_of(hit)
            )
        else:
            num_tokens = min(self.lengths[lease_id, name][0] + num_tokens % 5, 2 * MAX_TOKENS)
            hit = []
        num_new = div_ceil(num_tokens, BLOCK_SIZE) - len(hit) - len(table or ())
        verdict = self.ledger.verdict(
            tenant, hit, num_new, num_reserved=num_reserved if table is None else 0, is_new=table is None
        )
        got = self.ask(
            Allocate(
                tenant=tenant,
                lease_id=lease_id,
                admission=Admission(
                    sequence_id=name, num_tokens=num_tokens, block_hashes=hashes, tenant_only=is_salted
                ),
                num_reserved_blocks=num_reserved,
            )
        )
        self.note(verdict, got)
        if not isinstance(got, Allocated):
            return
        (blocks,) = got.block_ids
        assert blocks[: len(hit)] == hit
        self.take(
            blocks[len(hit) :], tenant if is_salted or not self.pool.config.share_across_tenants else None
        )
        lease.tables[name] = [*(table or ()), *blocks]
        self.lengths[lease_id, name] = num_tokens, num_tokens

    # A rule is drawn as often as it is named.
    allocate_again, allocate_once_more, allocate_a_fourth_time = allocate, allocate, allocate

    @precondition(lambda self: any(lease.tables for lease in self.ledger.leases.values()))
    @rule(pick=picks)
    def commit(self, *, pick: int) -> None:
        named = [(id_, name) for id_, lease in self.ledger.leases.items() for name in lease.tables]
        lease_id, name = named[pick % len(named)]
        num_tokens, _ = self.lengths[lease_id, name]
        command = Commit(
            tenant=self.ledger.leases[lease_id].tenant,
            lease_id=lease_id,
            sequence_id=name,
            num_computed_tokens=num_tokens,
        )
        assert isinstance(self.ask(command), Reply)

    commit_again = commit

    @precondition(lambda self: self.ledger.leases)
    @rule(pick=picks, name=st.sampled_from(SEQUENCE_IDS))
    def free(self, *, pick: int, name: SequenceId) -> None:
        lease_id, lease = self.pick_lease(pick)
        names = list(lease.tables)[:1] or [name]
        assert isinstance(self.ask(Free(tenant=lease.tenant, lease_id=lease_id, sequence_ids=names)), Reply)
        lease.tables.pop(names[0], None)

    @precondition(lambda self: self.ledger.leases)
    @rule(pick=picks, num_blocks=st.integers(1, 9), num_reserved=st.sampled_from([0, 0, 0, 3]))
    def allocate_blocks(self, *, pick: int, num_blocks: int, num_reserved: int) -> None:
        lease_id, lease = self.pick_lease(pick)
        verdict = self.ledger.verdict(lease.tenant, [], num_blocks, num_reserved=num_reserved, is_new=False)
        got = self.ask(
            AllocateBlocks(
                tenant=lease.tenant,
                lease_id=lease_id,
                num_blocks=num_blocks,
                num_reserved_blocks=num_reserved,
            )
        )
        self.note(verdict, got)
        if isinstance(got, BlocksAllocated):
            self.take(got.block_ids, lease.tenant)
            lease.raw_blocks |= set(got.block_ids)

    allocate_blocks_again = allocate_blocks

    @precondition(lambda self: any(lease.raw_blocks for lease in self.ledger.leases.values()))
    @rule(pick=picks, num_blocks=st.integers(1, 9))
    def free_blocks(self, *, pick: int, num_blocks: int) -> None:
        holders = [(id_, lease) for id_, lease in self.ledger.leases.items() if lease.raw_blocks]
        lease_id, lease = holders[pick % len(holders)]
        blocks = sorted(lease.raw_blocks)[:num_blocks]
        command = FreeBlocks(tenant=lease.tenant, lease_id=lease_id, block_ids=blocks)
        assert isinstance(self.ask(command), Reply)
        lease.raw_blocks -= set(blocks)

    @rule()
    def restart(self) -> None:
        snapshot = self.pool.snapshot()
        self.pool = Pool.restore(snapshot)
        self.plant(self.pool)
        assert self.pool.snapshot() == snapshot

    # What always holds

    @invariant()
    def adds_up(self) -> None:
        assert self.pool.audit().problems == []
        for tenant in TENANTS:
            state = self.pool.tenant(tenant)
            assert state.num_held_blocks == len(self.ledger.held(tenant)), tenant
            assert state.num_leases == sum(lease.tenant == tenant for lease in self.ledger.leases.values()), (
                tenant
            )
        assert self.pool.store.num_held_blocks == len(self.ledger.held_by_anybody())

    @invariant()
    def guarantees_hold(self) -> None:
        can_keep = self.ledger.can_keep_promises()
        assert can_keep or not self.ledger.is_promised, "what was promised can be kept no more"
        self.ledger.is_promised = can_keep
        if not can_keep:
            self.coverage["guarantees that come too late"] += 1
            return
        for tenant in self.ledger.quotas:
            num_due = self.ledger.num_due(tenant)
            if num_due:
                self.coverage["due"] += 1
                trial = Pool.restore(self.pool.snapshot())
                self.plant(trial)
                trial.apply(
                    CreateLease(tenant=tenant, lease_id=LeaseId("trial"), holder="", ttl_ms=1), self.now_ms
                )
                command = AllocateBlocks(
                    tenant=tenant, lease_id=LeaseId("trial"), num_blocks=num_due, num_reserved_blocks=100
                )
                assert isinstance(outcome(trial, command, self.now_ms), BlocksAllocated)

    # Helpers

    def ask(self, command: PoolCommand) -> Reply | BlockyardError:
        """Its outcome."""
        return outcome(self.pool, command, self.now_ms)

    def pick_lease(self, pick: int) -> tuple[LeaseId, LedgerLease]:
        leases = list(self.ledger.leases.items())
        return leases[pick % len(leases)]

    def note(self, verdict: str, got: Reply | BlockyardError) -> None:
        assert verdict == (got.code if isinstance(got, BlockyardError) else "given")
        self.coverage[verdict] += 1

    def take(self, blocks: list[BlockId], reader: TenantId | None) -> None:
        """New blocks are nobody else's."""
        assert self.ledger.held_by_anybody().isdisjoint(blocks)
        for block in blocks:
            self.readers.pop(block, None)
            if reader is not None:
                self.readers[block] = reader

    def tenants_of(self, blocks: list[BlockId]) -> set[TenantId]:
        return {
            lease.tenant for lease in self.ledger.leases.values() if not lease.blocks().isdisjoint(blocks)
        }


def prompt_hashes(prompt: int) -> list[BlockHash]:
    """Those of a prompt that all tenants send; two prompts share their first blocks."""
    return [f"{prompt if number > 2 else 'both'}-{number}".encode().ljust(32) for number in range(MAX_TOKENS)]
