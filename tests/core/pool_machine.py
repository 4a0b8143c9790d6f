"""The pool beside the naive one: the same commands, drawn at random, must have the same outcomes.

After every rule both must agree in full: the order of the free queue, every block table, the index with the
order of its entries, leases and figures; and the pool's own audit must find nothing. A refused command must
have changed nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from hypothesis.strategies import SearchStrategy

from blockyard.core.commands import (
    AllocateBlocks,
    DeleteLease,
    ExpireLeases,
    Free,
    FreeBlocks,
    Heartbeat,
    Idempotent,
    LeaseCommand,
    RegisterWorker,
    RemoveWorker,
    RenewLease,
    ResetPrefixCache,
    Resume,
    Step,
)
from blockyard.core.config import PoolConfig
from blockyard.core.errors import InsufficientBlocks, InvalidRequest, LeaseExpired, StaleEpoch
from blockyard.core.ids import NO_TENANT, SequenceId, TenantId, WorkerId
from blockyard.core.pool import Pool
from blockyard.core.replies import CacheReset, LeasesExpired
from core.allocator import plain
from core.drawn_pools import pool_configs, rarely
from core.drawn_requests import (
    MAX_TOKENS,
    TWO_TENANTS,
    DrawnAdmission,
    DrawnExtension,
    DrawnStep,
    admissions,
    extensions,
    often,
    picks,
    prompts,
    steps,
    tokens,
)
from core.faulty_requests import faulty_requests
from core.naive_adaptive import NaiveAdaptive
from core.pool_pair import PoolPair
from core.schedulers import SEQUENCE_IDS, Schedulers

TENANTS = ((NO_TENANT,), (NO_TENANT,), TWO_TENANTS, (NO_TENANT, *TWO_TENANTS))
"""Whose the leases of a run are, in turns."""

SETTINGS = settings(
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
"""A run goes through fifty rules."""


class PoolMachine(RuleBasedStateMachine):
    """Rules draw a request, schedulers make a command of it, and both pools are given it."""

    coverage: ClassVar[Counter[str]]
    """What has happened, over all runs."""

    compares: ClassVar[bool] = True
    """Whether the naive pool is asked; if not, all hangs on the audit."""

    pools: ClassVar[SearchStrategy[PoolConfig]] = pool_configs()
    """What is drawn from."""

    has_workers: ClassVar[bool] = False
    """Whether workers register."""

    pair: PoolPair
    schedulers: Schedulers
    tenants: tuple[TenantId, ...]

    @staticmethod
    def plant(pool: Pool) -> None:
        """Where a subclass breaks the pool on purpose."""

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        config = data.draw(self.pools)
        self.pair = PoolPair(config, plant=self.plant, compares=self.compares, coverage=self.coverage)
        self.tenants = data.draw(st.sampled_from(TENANTS))
        self.schedulers = Schedulers(self.pair, self.tenants)

    @invariant()
    def both_agree(self) -> None:
        assert self.pair.num_asked > 0, "a rule did nothing"
        self.pair.num_asked = 0
        self.coverage["steps"] += 1
        self.pair.check()

    def teardown(self) -> None:
        if hasattr(self, "pair"):
            self.coverage["evictions"] += sum(store.num_evictions for store in self.pair.naive.stores)
            adaptive = [store for store in self.pair.naive.stores if isinstance(store, NaiveAdaptive)]
            self.coverage["evictions by grade"] += sum(store.num_by_grade for store in adaptive)
            self.coverage["counts come back"] += sum(store.num_come_back for store in adaptive)
            self.coverage["the weight changes"] += sum(len(store.weights) > 1 for store in adaptive)
            self.pair.check_snapshots()

    # Sequences

    @rule(lease=picks, drawn=admissions, once=rarely)
    def admit(self, *, lease: int, drawn: DrawnAdmission, once: bool) -> None:
        holder = self.schedulers.pick_lease(lease)
        command = self.schedulers.admit(holder, drawn)
        if isinstance(self.pair.do(command, once=once), InsufficientBlocks):
            self.schedulers.preempt(holder, lease)

    @rule(drawn=extensions, once=rarely)
    def extend(self, *, drawn: DrawnExtension, once: bool) -> None:
        sequence = self.schedulers.pick_sequence(drawn.pick)
        if sequence is None:
            return
        command = self.schedulers.extend(sequence, drawn)
        if isinstance(self.pair.do(command, once=once), InsufficientBlocks):
            self.schedulers.preempt(self.pair.naive.leases[sequence.lease_id], drawn.pick)

    @rule(pick=picks, num_behind=st.sampled_from([0, 0, 1, 3, 8]), with_content=rarely, once=rarely)
    def commit(self, *, pick: int, num_behind: int, with_content: bool, once: bool) -> None:
        sequence = self.schedulers.pick_sequence(pick)
        if sequence is not None:
            command = self.schedulers.commit(sequence, num_behind=num_behind, with_content=with_content)
            self.pair.do(command, once=once)

    @rule(chosen=st.lists(picks, min_size=1, max_size=3), foreign=rarely, once=rarely)
    def free(self, *, chosen: Sequence[int], foreign: bool, once: bool) -> None:
        holder = self.schedulers.pick_lease(chosen[0])
        own = self.schedulers.held_by(holder)
        ids = [own[pick % len(own)].sequence_id for pick in chosen] if own else [SEQUENCE_IDS[chosen[0] % 9]]
        if foreign:
            ids += [SequenceId("nobody's"), *[name for _, name in self.pair.naive.sequences.live][:1]]
        self.pair.do(Free(lease_id=holder.lease_id, sequence_ids=ids), once=once)

    @rule(lease=picks, drawn=steps, once=rarely)
    def step(self, *, lease: int, drawn: DrawnStep, once: bool) -> None:
        command = self.schedulers.step(self.schedulers.pick_lease(lease), drawn)
        self.pair.do(command, once=once)

    @rule(drawn=extensions, num_forks=st.integers(1, 3), with_content=often, once=rarely)
    def fork(self, *, drawn: DrawnExtension, num_forks: int, with_content: bool, once: bool) -> None:
        """Mostly, parent and forks go on by different ways at once."""
        sequence = self.schedulers.pick_sequence(drawn.pick)
        if sequence is None:
            return
        self.pair.do(self.schedulers.fork(sequence, num_forks, with_content=with_content), once=once)
        both = (self.schedulers.held_by(self.pair.naive.leases[sequence.lease_id])[-1], sequence)
        if drawn.pick % 4 == 1:
            self.pair.do(self.schedulers.go_on(list({each.handle: each for each in both}.values())))
        elif drawn.pick % 4:
            on_and_on = replace(drawn, num_rejected=0, num_more=max(drawn.num_more, 1))
            self.pair.do(self.schedulers.extend(both[drawn.pick % 2], on_and_on))

    # A rule is drawn as often as it is named: these three times, the others once.
    admit_again, admit_once_more = admit, admit
    extend_again, extend_once_more = extend, extend
    commit_again, commit_once_more = commit, commit
    step_again, step_once_more = step, step

    # Raw blocks and what is cached

    @rule(lease=picks, num_blocks=st.integers(1, 5), once=rarely)
    def allocate_blocks(self, *, lease: int, num_blocks: int, once: bool) -> None:
        holder = self.schedulers.pick_lease(lease)
        self.pair.do(AllocateBlocks(lease_id=holder.lease_id, num_blocks=num_blocks), once=once)

    @rule(chosen=st.lists(picks, min_size=1, max_size=4), once=rarely)
    def free_blocks(self, *, chosen: Sequence[int], once: bool) -> None:
        holders = [lease for lease in self.schedulers.live_leases() if lease.raw_blocks]
        if not holders:
            self.pair.do(AllocateBlocks(lease_id=self.schedulers.pick_lease(0).lease_id, num_blocks=2))
            return
        holder = holders[chosen[0] % len(holders)]
        blocks = dict.fromkeys(holder.raw_blocks[pick % len(holder.raw_blocks)] for pick in chosen)
        self.pair.do(FreeBlocks(lease_id=holder.lease_id, block_ids=list(blocks)), once=once)

    @rule(prompt=prompts, num_tokens=tokens, by_token_ids=st.booleans())
    def lookup(self, *, prompt: int, num_tokens: int, by_token_ids: bool) -> None:
        num_sent = num_tokens if by_token_ids else MAX_TOKENS  # hashes beyond what is asked for do no harm
        content = self.schedulers.prompt(prompt, num_sent, by_token_ids=by_token_ids)
        for tenant in self.tenants:
            self.pair.lookup(num_tokens=num_tokens, tenant=tenant, **content)

    @rule(drained=st.sampled_from([False] * 15 + [True]))
    def reset(self, *, drained: bool) -> None:
        if drained:
            for lease in self.schedulers.standing_leases():
                self.pair.do(DeleteLease(lease_id=lease.lease_id))
        reply = self.pair.do(ResetPrefixCache())
        assert isinstance(reply, CacheReset)
        self.coverage[f"reset: {reply.ok}"] += 1

    # Leases and time

    @rule(
        lease=picks,
        action=st.sampled_from(["renew", "renew", "create", "create", "create", "delete"]),
        ttl_ms=st.integers(1, 3_000),
        once=rarely,
    )
    def change_lease(self, *, lease: int, action: str, ttl_ms: int, once: bool) -> None:
        lease_id = self.schedulers.pick_lease(lease).lease_id
        if action == "delete":
            self.pair.do(DeleteLease(lease_id=lease_id))
        elif action == "create" and len(self.pair.naive.leases) < 4:
            self.schedulers.create_lease(ttl_ms, once=once)
        else:
            self.pair.do(RenewLease(lease_id=lease_id))

    @rule(passed_ms=st.sampled_from([0, 1, 300, 300, 1_500, 2_500, -200]), expire=st.booleans())
    def pass_time(self, *, passed_ms: int, expire: bool) -> None:
        self.pair.now_ms += passed_ms
        if not expire:
            self.pair.do(RenewLease(lease_id=self.schedulers.pick_lease(passed_ms).lease_id))
            return
        reply = self.pair.do(ExpireLeases())
        assert isinstance(reply, LeasesExpired)
        self.coverage["expired leases"] += len(reply.lease_ids)
        self.coverage["expired pins"] += len(reply.pin_ids)
        self.coverage["sequences freed by expiry"] += reply.num_freed_sequences

    # Workers

    def all_workers_call(self) -> None:
        for worker in list(self.pair.naive.workers.known):
            self.pair.do(Heartbeat(worker_id=WorkerId(worker.worker_id), incarnation=worker.incarnation))

    @precondition(lambda self: self.has_workers)
    @rule(worker=picks, rank=picks, incarnation=st.sampled_from(["first"] * 3 + ["second"]))
    def register_worker(self, *, worker: int, rank: int, incarnation: str) -> None:
        """Mostly the worker of its rank, as it was."""
        known = self.pair.naive.workers.known
        rank %= self.pair.pool.config.num_ranks or 3
        worker_id = WorkerId(f"w{rank if worker % 4 else worker % 3}")
        epoch, num_held = self.pair.naive.epoch, self.pair.pool.num_held_blocks
        is_pinned = any(pin.hard for pin in self.pair.naive.pins.live.values())
        self.pair.do(
            RegisterWorker(worker_id=worker_id, rank=rank, device=f"cuda:{rank}", incarnation=incarnation)
        )
        has_begun = self.pair.naive.epoch > epoch
        self.coverage["epoch begins while blocks are held"] += has_begun and num_held > 0
        self.coverage["worker registers again"] += not has_begun and bool(known)
        self.coverage["epoch ends hard pins"] += has_begun and is_pinned
        assert self.pair.pool.num_held_blocks == num_held or (has_begun and is_pinned)

    register_again = register_worker

    @precondition(lambda self: self.pair.naive.workers.known)
    @rule(worker=picks, incarnation=st.sampled_from(["first", "second", None]))
    def heartbeat(self, *, worker: int, incarnation: str | None) -> None:
        caller = self.pair.naive.workers.known[worker % len(self.pair.naive.workers.known)]
        self.pair.do(Heartbeat(worker_id=WorkerId(caller.worker_id), incarnation=incarnation))

    @precondition(lambda self: self.pair.naive.workers.known)
    @rule(worker=picks)
    def lose_worker(self, *, worker: int) -> None:
        """Time passes, and one does not call: until it does, nobody gets blocks, unless that is allowed."""
        lost = self.pair.naive.workers.known[worker % len(self.pair.naive.workers.known)]
        self.pair.now_ms += self.pair.naive.workers.timeout_ms
        for known in list(self.pair.naive.workers.known):
            if known is not lost:
                self.pair.do(Heartbeat(worker_id=WorkerId(known.worker_id)))
        for holder in self.schedulers.live_leases():
            self.pair.do(AllocateBlocks(lease_id=holder.lease_id, num_blocks=1), once=bool(worker % 2))

    @precondition(lambda self: self.pair.naive.workers.known)
    @rule(
        worker=picks,
        is_known=st.sampled_from([True] * 3 + [False]),
        incarnation=st.sampled_from(["first", None]),
    )
    def remove_worker(self, *, worker: int, is_known: bool, incarnation: str | None) -> None:
        known = self.pair.naive.workers.known[worker % len(self.pair.naive.workers.known)]
        worker_id = WorkerId(known.worker_id if is_known else "nobody")
        self.pair.do(RemoveWorker(worker_id=worker_id, incarnation=incarnation))

    @precondition(lambda self: self.schedulers.stale_leases())
    @rule(pick=picks, give_back=st.booleans(), once=rarely)
    def use_stale_lease(self, *, pick: int, give_back: bool, once: bool) -> None:
        """Nothing goes on under a lease of an earlier epoch, but what it holds can be given back."""
        leases = self.schedulers.stale_leases()
        holder = leases[pick % len(leases)]
        lease_id, own = holder.lease_id, self.schedulers.held_by(holder)
        if give_back:
            self.pair.do(Free(lease_id=lease_id, sequence_ids=[each.sequence_id for each in own[:1]]))
            self.pair.do(FreeBlocks(lease_id=lease_id, block_ids=holder.raw_blocks[:1]))
            self.pair.do(DeleteLease(lease_id=lease_id) if pick % 2 else RenewLease(lease_id=lease_id))
            self.coverage["sequences of earlier epochs are freed"] += bool(own)
            return
        going_on = [AllocateBlocks(lease_id=lease_id, num_blocks=1), Step(lease_id=lease_id)]
        if own:
            sequence = own[pick % len(own)]
            going_on.append(self.schedulers.commit(sequence, num_behind=0, with_content=False))
            self.coverage["sequences of earlier epochs go no further"] += 1
        for command in going_on:
            assert isinstance(self.pair.do(command, once=once), StaleEpoch)

    @rule(pick=picks, action=st.sampled_from([RenewLease, DeleteLease, Step]))
    def use_foreign_lease(self, *, pick: int, action: type[LeaseCommand]) -> None:
        """Another tenant's lease is none."""
        holder = self.schedulers.pick_lease(pick)
        stranger = TenantId("stranger" if pick % 2 else f"{holder.tenant}x")
        command = action(lease_id=holder.lease_id, tenant=stranger)
        assert isinstance(self.pair.do(command, as_it_is=True), LeaseExpired)

    # Repeats, restarts and faults

    @rule(pick=picks, other_request=rarely)
    def repeat(self, *, pick: int, other_request: bool) -> None:
        if not self.pair.keyed:
            lease_id = self.schedulers.pick_lease(pick).lease_id
            self.pair.do(AllocateBlocks(lease_id=lease_id, num_blocks=1), once=True)
            return
        first, outcome = self.pair.keyed[pick % len(self.pair.keyed)]
        before = self.pair.settled()
        command = first
        if other_request:
            command = Idempotent(key=first.key, fingerprint=b"another", command=first.command)
        again = self.pair.do(command)
        assert self.pair.settled() == before
        standing = {lease.lease_id for lease in self.schedulers.standing_leases()}
        stale = {lease.lease_id for lease in self.schedulers.stale_leases()}
        holder = first.command.lease_id if isinstance(first.command, LeaseCommand) else None
        if holder is not None and holder not in standing:
            assert isinstance(again, LeaseExpired)
        elif holder in stale and not isinstance(first.command, (Free, FreeBlocks)):
            assert isinstance(again, StaleEpoch)
        elif other_request:
            assert isinstance(again, InvalidRequest)
        else:
            assert plain(again) == outcome

    @rule(lease=picks)
    def repeat_last_step(self, *, lease: int) -> None:
        holder = self.schedulers.pick_lease(lease)
        if holder.last_step is None:
            self.pair.do(self.schedulers.empty_step(holder))
            return
        before = self.pair.settled()
        again = self.pair.do(Step(lease_id=holder.lease_id, step_id=holder.last_step.step_id))
        assert plain(again) == plain(holder.last_step)
        assert self.pair.settled() == before

    @rule(through_cbor=st.booleans(), passed_ms=st.sampled_from([0, 10, 3_000]))
    def restart(self, *, through_cbor: bool, passed_ms: int) -> None:
        self.pair.restart(through_cbor=through_cbor)
        since_ms = self.pair.naive.now_ms
        self.pair.now_ms += passed_ms
        self.pair.do(Resume(since_ms=since_ms))
        self.pair.do(RenewLease(lease_id=self.schedulers.pick_lease(0).lease_id))

    @rule(lease=picks, first=st.sampled_from(range(8)))
    def err(self, *, lease: int, first: int) -> None:
        """Every eighth of the faults that can be made now."""
        self.all_workers_call()
        if self.pair.naive.has_vacant_rank():
            self.pair.do(RenewLease(lease_id=self.schedulers.pick_lease(lease).lease_id))
            return
        made = faulty_requests(self.pair.naive, self.schedulers.pick_lease(lease))
        for fault in sorted(made)[first::8]:
            command, expected = made[fault]
            assert type(self.pair.do(command)) is expected, fault
            self.coverage[f"fault: {fault}"] += 1


def run(machine: type[PoolMachine], run_settings: settings) -> Counter[str]:
    """Run ``machine`` and count what happened."""
    machine.coverage = Counter()
    run_state_machine_as_test(machine, settings=run_settings)
    return machine.coverage
