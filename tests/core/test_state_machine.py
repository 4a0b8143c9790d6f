"""The pool beside the naive one: the same commands, drawn at random, must have the same outcomes.

After every rule both must agree in full: the order of the free queue, every block table, the index with the
order of its entries, leases and figures; and the pool's own audit must find nothing. A refused command must
have changed nothing.
"""

import copy
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import cbor2
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from blockyard.core.block_store import BlockStore
from blockyard.core.block_tables import BlockTables
from blockyard.core.commands import (
    Admission,
    Allocate,
    AllocateBlocks,
    Command,
    Commit,
    CreateLease,
    DeleteLease,
    ExpireLeases,
    Free,
    FreeBlocks,
    Idempotent,
    LeaseCommand,
    PoolCommand,
    RenewLease,
    ResetPrefixCache,
    Step,
    StepCommit,
    StepExtend,
)
from blockyard.core.config import GroupConfig, PoolConfig, Publish
from blockyard.core.errors import (
    BlockyardError,
    InsufficientBlocks,
    InvalidRequest,
    LeaseExpired,
)
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId, LeaseId, SequenceHandle, SequenceId
from blockyard.core.lease import Lease
from blockyard.core.pool import Pool
from blockyard.core.prefix_index import PrefixIndex
from blockyard.core.replies import Admitted, Allocated, CacheReset, LeasesExpired, Refused, Reply, Stepped
from blockyard.core.sequence import Sequence as LiveSequence
from core.naive_pool import NaiveLease, NaivePool, NaiveSequence
from core.support import faults, make_naive_pool, outcome, plain

NIGHTLY = os.environ.get("BLOCKYARD_NIGHTLY") == "1"

NUM_STEPS = 50
"""Rules that one run of the machine goes through."""

NUM_RUNS = 8_000 if NIGHTLY else 240
"""Times NUM_STEPS: 400,000 steps at night, 12,000 by day. What came of it is counted and asserted."""

MIN_STEPS = 100_000 if NIGHTLY else 5_000
"""Steps that were really gone through, or the run counts for nothing."""

MIN_FAULTS = 45
"""Kinds of faulty request that were really made, of about sixty."""

MUST_HAPPEN = (
    "hit",
    "hit in step",
    "lookup that hits",
    "evictions",
    "dropped blocks stand",
    "a hash has two blocks",
    "Allocate: InsufficientBlocks",
    "AllocateBlocks: InsufficientBlocks",
    "admission in step: insufficient_blocks",
    "admission in step: sequence_exists_elsewhere",
    "extension in step: insufficient",
    "FreeBlocks: DoubleFree",
    "FreeBlocks: NotOwner",
    "Idempotent: Allocated",
    "Idempotent: InsufficientBlocks",
    "Idempotent: Stepped",
    "reset: True",
    "reset: False",
    "restarts",
    "expired leases",
    "sequences freed by expiry",
)
"""Without these a run would have shown little."""

SETTINGS = settings(
    max_examples=NUM_RUNS,
    stateful_step_count=NUM_STEPS,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

MAX_TOKENS = 48
SHARED_TOKENS = (MAX_TOKENS, 32, 16, 7, 0)
"""Per prompt, how many of its tokens all prompts begin with; those behind them are its own."""

SEQUENCE_IDS = [SequenceId(f"s{number}") for number in range(9)]

small = st.integers(0, 6)
tokens = st.integers(1, MAX_TOKENS)
picks = st.sampled_from(range(64))
prompts = st.integers(0, len(SHARED_TOKENS) - 1)
rarely = st.sampled_from([False] * 7 + [True])
often = st.sampled_from([True] * 3 + [False])
lookaheads = st.sampled_from([0, 0, 0, 1, 2, 5])
new_token_bounds = st.one_of(st.none(), st.integers(1, 20))


def prompt_tokens(prompt: int) -> list[int]:
    shared = SHARED_TOKENS[prompt]
    return [7] * shared + [100 + prompt] * (MAX_TOKENS - shared)


@st.composite
def group_configs(draw: st.DrawFn) -> GroupConfig:
    block_size = draw(st.sampled_from([2, 4, 8]))
    kind = draw(st.sampled_from(["full_attention", "sliding_window", "chunked_local_attention"]))
    window = draw(st.integers(2, 18)) if kind == "sliding_window" else None
    chunk = block_size * draw(st.integers(1, 4)) if kind == "chunked_local_attention" else None
    return GroupConfig(kind=kind, block_size=block_size, sliding_window=window, attention_chunk_size=chunk)


@st.composite
def pool_configs(draw: st.DrawFn) -> PoolConfig:
    groups = draw(st.lists(group_configs(), min_size=1, max_size=3))
    if len(groups) == 2 and draw(st.booleans()):
        groups.append(groups[1])  # groups with equal specs, which are looked up together
    sizes = [group.block_size for group in groups]
    num_blocks = draw(st.sampled_from([6, 9, 14, 20, 28])) * len(groups)
    return PoolConfig(
        num_blocks=num_blocks,
        groups=tuple(groups),
        scheduler_block_size=math.lcm(*sizes) * draw(st.sampled_from([1, 1, 1, 2])),
        hash_block_size=math.gcd(*sizes) // draw(st.sampled_from([1, 1, 2])),
        max_model_len=draw(st.sampled_from([None, None, 20, 37])),
        max_in_flight_tokens=draw(st.sampled_from([4, 10, 8192])),
        enable_prefix_caching=not draw(rarely),
        publish=draw(st.sampled_from(list(Publish))),
        watermark_blocks=draw(st.sampled_from([0, 0, 0, 1, 3])),
    )


def settled(pool: Pool) -> dict[str, Any]:
    """The pool's state but for what even a refused call changes: time, renewals, counters, kept replies."""
    state = pool.snapshot()
    for name in ("now_ms", "counters", "replies"):
        del state[name]
    for lease in state["leases"]:
        del lease["expires_at_ms"], lease["replies"]
    return state


class PoolMachine(RuleBasedStateMachine):
    """Both pools, and what their schedulers know."""

    coverage: ClassVar[Counter[str]]
    """What has happened, over all runs."""

    compares: ClassVar[bool] = True
    """Whether the naive pool is asked; if not, all hangs on the audit."""

    pool: Pool
    naive: NaivePool

    @staticmethod
    def plant(pool: Pool) -> None:
        """Where a subclass breaks the pool on purpose."""

    @initialize(config=pool_configs())
    def create(self, config: PoolConfig) -> None:
        self.pool = Pool(config)
        self.plant(self.pool)
        self.naive = make_naive_pool(config)
        self.now_ms = 1_000
        self.prompts: dict[SequenceId, int] = {}
        self.hashes = [self.naive.hash_tokens(prompt_tokens(prompt)) for prompt in range(len(SHARED_TOKENS))]
        self.num_commands = 0
        self.num_leases = 0
        self.num_keys = 0
        self.last_step_id = 0
        self.once: list[tuple[Idempotent, Any]] = []
        self.snapshots: list[tuple[dict[str, Any], bytes]] = []
        for _ in range(2):
            self.create_lease()

    # Rules that give and take blocks of sequences

    @rule(
        lease=picks,
        prompt=prompts,
        num_tokens=tokens,
        max_new=new_token_bounds,
        lookahead=lookaheads,
        by_tokens=rarely,
        withheld=st.sampled_from([0, 0, 0, 1, 3]),
        skip=rarely,
        must_fit=rarely,
        once=rarely,
    )
    def admit(  # noqa: PLR0913 - one argument for each way in which admissions differ
        self,
        *,
        lease: int,
        prompt: int,
        num_tokens: int,
        max_new: int | None,
        lookahead: int,
        by_tokens: bool,
        withheld: int,
        skip: bool,
        must_fit: bool,
        once: bool,
    ) -> None:
        holder = self.pick_lease(lease)
        admission = self.admission(
            self.unused_ids()[0],
            prompt,
            num_tokens,
            max_new_tokens=max_new,
            num_lookahead_tokens=lookahead,
            by_tokens=by_tokens,
            withheld=withheld,
            skip_prefix_cache=skip,
            full_sequence_must_fit=must_fit,
        )
        command = Allocate(lease_id=holder.lease_id, admission=admission)
        if isinstance(self.do(command, once=once), InsufficientBlocks):
            self.preempt(holder, lease)

    @rule(
        pick=picks,
        more=st.sampled_from([0, 1, 1, 2, 3, 5, 9, 14, 30]),
        max_new=new_token_bounds,
        lookahead=lookaheads,
        rejected=st.sampled_from([0, 0, 1, 3, 9]),
        with_content=often,
        must_fit=rarely,
        once=rarely,
    )
    def extend(
        self,
        *,
        pick: int,
        more: int,
        max_new: int | None,
        lookahead: int,
        rejected: int,
        with_content: bool,
        must_fit: bool,
        once: bool,
    ) -> None:
        sequence = self.pick_sequence(pick)
        if sequence is None:
            return
        num_computed, num_tokens = self.progress(sequence, sequence.num_committed, more, rejected)
        admission = Admission(
            sequence_id=sequence.sequence_id,
            num_tokens=num_tokens,
            max_new_tokens=max_new,
            num_lookahead_tokens=lookahead,
            full_sequence_must_fit=must_fit,
            **(self.content(sequence, num_tokens) if with_content else {}),
        )
        command = Allocate(
            lease_id=sequence.lease_id,
            admission=admission,
            num_computed_tokens=num_computed if rejected else None,
        )
        if isinstance(self.do(command, once=once), InsufficientBlocks):
            self.preempt(self.naive.leases[sequence.lease_id], pick)

    @rule(pick=picks, back=st.sampled_from([0, 0, 1, 3, 8]), with_content=rarely, once=rarely)
    def commit(self, *, pick: int, back: int, with_content: bool, once: bool) -> None:
        sequence = self.pick_sequence(pick)
        if sequence is None:
            return
        command = Commit(
            lease_id=sequence.lease_id,
            sequence_id=sequence.sequence_id,
            num_computed_tokens=max(0, sequence.num_computed - back),
            **(self.content(sequence, sequence.num_tokens) if with_content else {}),
        )
        self.do(command, once=once)

    @rule(chosen=st.lists(picks, min_size=1, max_size=3), foreign=rarely, once=rarely)
    def free(self, *, chosen: Sequence[int], foreign: bool, once: bool) -> None:
        holder = self.pick_lease(chosen[0])
        own = self.held_by(holder)
        ids = [own[pick % len(own)].sequence_id for pick in chosen] if own else [SEQUENCE_IDS[chosen[0] % 9]]
        if foreign:
            ids += [SequenceId("nobody's"), *list(self.naive.sequences)[:1]]
        self.do(Free(lease_id=holder.lease_id, sequence_ids=ids), once=once)

    @rule(
        lease=picks,
        commits=st.lists(st.tuples(picks, small), max_size=4),
        frees=st.lists(picks, max_size=2),
        extends=st.lists(st.tuples(picks, st.integers(0, 12), st.sampled_from([0, 0, 2])), max_size=4),
        admits=st.lists(st.tuples(prompts, tokens, new_token_bounds, rarely, rarely), max_size=3),
        lookahead=lookaheads,
        with_content=often,
        numbered=often,
        elsewhere=rarely,
        once=rarely,
    )
    def step(  # noqa: PLR0913
        self,
        *,
        lease: int,
        commits: Sequence[tuple[int, int]],
        frees: Sequence[int],
        extends: Sequence[tuple[int, int, int]],
        admits: Sequence[tuple[int, int, int | None, bool, bool]],
        lookahead: int,
        with_content: bool,
        numbered: bool,
        elsewhere: bool,
        once: bool,
    ) -> None:
        holder = self.pick_lease(lease)
        own = self.held_by(holder)
        commit_column: dict[SequenceHandle, int] = {}
        free_column: list[SequenceHandle] = []
        extend_column: dict[SequenceHandle, tuple[int, int]] = {}
        block_hashes = {}
        token_ids = {}
        if own:
            for pick, back in commits:
                sequence = own[pick % len(own)]
                commit_column[sequence.handle] = max(0, sequence.num_computed - back)
            free_column = list(dict.fromkeys(own[pick % len(own)].handle for pick in frees))
            for pick, more, rejected in extends:
                sequence = own[pick % len(own)]
                if sequence.handle not in free_column:
                    committed = max(sequence.num_committed, commit_column.get(sequence.handle, 0))
                    extend_column[sequence.handle] = self.progress(sequence, committed, more, rejected)
                    content = self.content(sequence, extend_column[sequence.handle][1])
                    block_hashes[sequence.handle] = content.get("block_hashes", ())
                    token_ids[sequence.handle] = content.get("token_ids", ())
        ids = [name for name in SEQUENCE_IDS if name not in self.naive.sequences]
        ids += [sequence.sequence_id for sequence in own if sequence.handle in free_column]
        if elsewhere:
            others = [known for known in self.naive.sequences.values() if known.lease_id != holder.lease_id]
            ids = [known.sequence_id for known in others[:1]] + ids
        self.last_step_id += numbered
        command = Step(
            lease_id=holder.lease_id,
            step_id=self.last_step_id if numbered else None,
            commit=StepCommit(
                sequences=list(commit_column), num_computed_tokens=list(commit_column.values())
            ),
            free=free_column,
            extend=StepExtend(
                sequences=list(extend_column),
                num_tokens=[num_tokens for _, num_tokens in extend_column.values()],
                num_computed_tokens=[num_computed for num_computed, _ in extend_column.values()],
                num_lookahead_tokens=lookahead,
                block_hashes=block_hashes if with_content else {},
                token_ids=token_ids if with_content else {},
            ),
            admit=[
                self.admission(
                    sequence_id,
                    prompt,
                    num_tokens,
                    max_new_tokens=max_new,
                    num_lookahead_tokens=lookahead,
                    by_tokens=by_tokens,
                    full_sequence_must_fit=must_fit,
                )
                for sequence_id, (prompt, num_tokens, max_new, by_tokens, must_fit) in zip(
                    ids, admits, strict=False
                )
            ],
        )
        reply = self.do(command, once=once)
        if isinstance(reply, Stepped):
            refused = [entry.code for entry in reply.admit if isinstance(entry, Refused)]
            self.coverage.update(f"admission in step: {code}" for code in refused)
            self.coverage["extension in step: insufficient"] += len(reply.extend.insufficient)

    # Rules about raw blocks, leases and time

    @rule(lease=picks, num_blocks=st.integers(1, 5), once=rarely)
    def allocate_blocks(self, *, lease: int, num_blocks: int, once: bool) -> None:
        self.do(AllocateBlocks(lease_id=self.pick_lease(lease).lease_id, num_blocks=num_blocks), once=once)

    @rule(chosen=st.lists(picks, min_size=1, max_size=4), once=rarely)
    def free_blocks(self, *, chosen: Sequence[int], once: bool) -> None:
        holders = [lease for lease in self.leases() if lease.raw_blocks]
        if not holders:
            self.do(AllocateBlocks(lease_id=self.pick_lease(0).lease_id, num_blocks=2))
            return
        holder = holders[chosen[0] % len(holders)]
        blocks = dict.fromkeys(holder.raw_blocks[pick % len(holder.raw_blocks)] for pick in chosen)
        self.do(FreeBlocks(lease_id=holder.lease_id, block_ids=list(blocks)), once=once)

    @rule(prompt=prompts, num_tokens=tokens, by_tokens=st.booleans())
    def lookup(self, *, prompt: int, num_tokens: int, by_tokens: bool) -> None:
        before = self.pool.snapshot()
        content: dict[str, Any] = {"block_hashes": self.hashes[prompt]}
        if by_tokens:
            content = {"token_ids": prompt_tokens(prompt)[:num_tokens]}
        found = self.pool.lookup(num_tokens=num_tokens, **content)
        assert plain(found) == plain(self.naive.lookup(num_tokens=num_tokens, **content))
        assert self.pool.snapshot() == before
        self.num_commands += 1
        self.coverage["lookup that hits"] += found.num_cached_tokens > 0

    @rule(drained=st.sampled_from([False] * 15 + [True]))
    def reset(self, *, drained: bool) -> None:
        if drained:
            for lease in self.leases():
                self.do(DeleteLease(lease_id=lease.lease_id))
        reply = self.do(ResetPrefixCache())
        assert isinstance(reply, CacheReset)
        self.coverage[f"reset: {reply.ok}"] += 1

    @rule(
        lease=picks,
        action=st.sampled_from(["renew", "renew", "create", "create", "create", "delete"]),
        ttl_ms=st.integers(1, 3_000),
        once=rarely,
    )
    def change_lease(self, *, lease: int, action: str, ttl_ms: int, once: bool) -> None:
        lease_id = self.pick_lease(lease).lease_id
        if action == "delete":
            self.do(DeleteLease(lease_id=lease_id), once=once)
        elif action == "create" and len(self.naive.leases) < 4:
            self.create_lease(ttl_ms, once=once)
        else:
            self.do(RenewLease(lease_id=lease_id), once=once)

    @rule(passed_ms=st.sampled_from([0, 1, 300, 300, 1_500, 2_500, -200]), expire=st.booleans())
    def pass_time(self, *, passed_ms: int, expire: bool) -> None:
        self.now_ms += passed_ms
        if not expire:
            self.do(RenewLease(lease_id=self.pick_lease(passed_ms).lease_id))
            return
        reply = self.do(ExpireLeases())
        assert isinstance(reply, LeasesExpired)
        self.coverage["expired leases"] += len(reply.lease_ids)
        self.coverage["sequences freed by expiry"] += reply.num_freed_sequences

    # Rules that repeat, restart and err

    @rule(pick=picks, other_request=rarely)
    def repeat(self, *, pick: int, other_request: bool) -> None:
        if not self.once:
            self.do(RenewLease(lease_id=self.pick_lease(pick).lease_id), once=True)
            return
        first, reply = self.once[pick % len(self.once)]
        before = settled(self.pool)
        command = first
        if other_request:
            command = Idempotent(key=first.key, fingerprint=b"another", command=first.command)
        again = self.do(command)
        assert settled(self.pool) == before
        live = {lease.lease_id for lease in self.leases()}
        if isinstance(first.command, LeaseCommand) and first.command.lease_id not in live:
            assert isinstance(again, LeaseExpired)
        elif other_request:
            assert isinstance(again, InvalidRequest)
        else:
            assert plain(again) == reply

    @rule(lease=picks)
    def repeat_last_step(self, *, lease: int) -> None:
        holder = self.pick_lease(lease)
        if holder.last_step is None:
            self.last_step_id += 1
            self.do(Step(lease_id=holder.lease_id, step_id=self.last_step_id))
            return
        before = settled(self.pool)
        again = self.do(Step(lease_id=holder.lease_id, step_id=holder.last_step.step_id))
        assert plain(again) == plain(holder.last_step)
        assert settled(self.pool) == before

    @rule(through_cbor=st.booleans())
    def restart(self, *, through_cbor: bool) -> None:
        snapshot = self.pool.snapshot()
        kept = cbor2.dumps(snapshot)
        self.pool = Pool.restore(cbor2.loads(kept) if through_cbor else copy.deepcopy(snapshot))
        self.plant(self.pool)
        assert self.pool.snapshot() == snapshot
        self.snapshots.append((snapshot, kept))
        self.do(RenewLease(lease_id=self.pick_lease(0).lease_id))
        self.coverage["restarts"] += 1

    @rule(lease=picks, first=st.sampled_from(range(8)))
    def err(self, *, lease: int, first: int) -> None:
        """Every eighth of the faults that can be made now."""
        made = faults(self.naive, self.pick_lease(lease))
        for fault in sorted(made)[first::8]:
            command, expected = made[fault]
            assert type(self.do(command)) is expected, fault
            self.coverage[f"fault: {fault}"] += 1

    # A rule is drawn as often as it is named: sequences' rules three times, the others once.
    admit_again, admit_once_more = admit, admit
    extend_again, extend_once_more = extend, extend
    commit_again, commit_once_more = commit, commit
    step_again, step_once_more = step, step

    # What is checked

    def do(self, command: Command, *, once: bool = False) -> Reply | BlockyardError:
        """Apply ``command`` to both pools. What is refused must have changed nothing."""
        if once:
            assert isinstance(command, PoolCommand)
            self.num_keys += 1
            command = Idempotent(key=f"k{self.num_keys}", fingerprint=b"first", command=command)
        before = settled(self.pool)
        expected = outcome(self.naive, command, self.now_ms)
        got = outcome(self.pool, command, self.now_ms)
        assert plain(got) == plain(expected) or not self.compares, command
        if isinstance(command, Idempotent) and once:
            self.once.append((command, plain(got)))
        may_drop_blocks = isinstance(got, InsufficientBlocks) and isinstance(command, (Allocate, Idempotent))
        if isinstance(got, BlockyardError) and not may_drop_blocks:
            assert settled(self.pool) == before, command
        self.num_commands += 1
        self.coverage[f"{type(command).__name__}: {type(got).__name__}"] += 1
        if isinstance(got, Allocated):
            self.coverage["hit"] += bool(got.num_cached_tokens)
        if isinstance(got, Stepped):
            admitted = [entry for entry in got.admit if isinstance(entry, Admitted)]
            self.coverage["admitted in step"] += len(admitted)
            self.coverage["hit in step"] += sum(bool(entry.num_cached_tokens) for entry in admitted)
        return got

    @invariant()
    def both_agree(self) -> None:
        assert self.num_commands > 0, "a rule did nothing"
        self.num_commands = 0
        self.coverage["steps"] += 1
        assert self.pool.audit().problems == [], "the audit found"
        if self.compares:
            assert_equal_pools(self.pool, self.naive)
        self.coverage["dropped blocks stand"] += any(
            NULL_BLOCK in table for known in self.naive.sequences.values() for table in known.tables
        )
        self.coverage["a hash has two blocks"] += len({entry[:2] for entry in self.naive.index}) < len(
            self.naive.index
        )

    def teardown(self) -> None:
        if hasattr(self, "naive"):
            self.coverage["evictions"] += self.naive.num_evictions
            for snapshot, kept in self.snapshots:
                assert cbor2.dumps(snapshot) == kept, "a snapshot changed as the pool went on"

    # What schedulers know and choose

    def create_lease(self, ttl_ms: int = 2_000, *, once: bool = False) -> None:
        self.num_leases += 1
        self.do(CreateLease(lease_id=LeaseId(f"l{self.num_leases}"), holder="test", ttl_ms=ttl_ms), once=once)

    def leases(self) -> list[NaiveLease]:
        """Those that have not run out; one is created if need be."""
        now_ms = max(self.now_ms, self.naive.now_ms)
        live = [lease for lease in self.naive.leases.values() if lease.expires_at_ms > now_ms]
        if live:
            return live
        self.do(ExpireLeases())
        self.create_lease()
        return self.leases()

    def pick_lease(self, pick: int) -> NaiveLease:
        leases = self.leases()
        return leases[pick % len(leases)]

    def held_by(self, lease: NaiveLease) -> list[NaiveSequence]:
        return [known for known in self.naive.sequences.values() if known.lease_id == lease.lease_id]

    def pick_sequence(self, pick: int) -> NaiveSequence | None:
        """A sequence of a live lease. If there is none, one is asked for, and the rule ends there."""
        live = {lease.lease_id for lease in self.leases()}
        known = [known for known in self.naive.sequences.values() if known.lease_id in live]
        if known:
            return known[pick % len(known)]
        admission = self.admission(self.unused_ids()[0], pick % len(SHARED_TOKENS), 1 + pick % MAX_TOKENS)
        self.do(Allocate(lease_id=self.pick_lease(pick).lease_id, admission=admission))
        return None

    def preempt(self, lease: NaiveLease, pick: int) -> None:
        """What schedulers do when blocks are short, and mostly must: a sequence of the lease is freed."""
        held = self.held_by(lease)
        if held and pick % 4:
            self.do(Free(lease_id=lease.lease_id, sequence_ids=[held[pick % len(held)].sequence_id]))

    def unused_ids(self) -> list[SequenceId]:
        """Ids that no sequence has; one lease's sequences are freed if need be."""
        unused = [name for name in SEQUENCE_IDS if name not in self.naive.sequences]
        if unused:
            return unused
        self.do(ExpireLeases())
        for lease in self.leases():
            ids = [known.sequence_id for known in self.held_by(lease)]
            self.do(Free(lease_id=lease.lease_id, sequence_ids=ids))
        return self.unused_ids()

    def admission(
        self,
        sequence_id: SequenceId,
        prompt: int,
        num_tokens: int,
        *,
        by_tokens: bool = False,
        withheld: int = 0,
        **options: Any,
    ) -> Admission:
        """An admission with the prompt's content, but for its last ``withheld`` hashes."""
        self.prompts[sequence_id] = prompt
        num_tokens = min(num_tokens, self.pool.config.max_model_len or MAX_TOKENS)
        num_hashes = max(0, num_tokens // self.pool.config.hash_block_size - withheld)
        return Admission(
            sequence_id=sequence_id,
            num_tokens=num_tokens,
            block_hashes=() if by_tokens else self.hashes[prompt][:num_hashes],
            token_ids=prompt_tokens(prompt)[:num_tokens] if by_tokens else (),
            **options,
        )

    def content(self, sequence: NaiveSequence, num_tokens: int) -> dict[str, Any]:
        """Hashes or tokens of a sequence's first ``num_tokens`` tokens that were not sent yet."""
        prompt = self.prompts[sequence.sequence_id]
        if sequence.tokens:
            return {"token_ids": prompt_tokens(prompt)[len(sequence.tokens) : num_tokens]}
        num_hashes = num_tokens // self.pool.config.hash_block_size
        return {"block_hashes": self.hashes[prompt][len(sequence.hashes) : num_hashes]}

    def progress(
        self, sequence: NaiveSequence, num_committed: int, more: int, rejected: int
    ) -> tuple[int, int]:
        """Computed tokens after ``rejected`` ones were taken back, and all tokens after ``more`` came."""
        num_computed = max(num_committed, sequence.num_computed - rejected)
        limit = min(self.pool.config.max_model_len or MAX_TOKENS, MAX_TOKENS)
        return num_computed, min(max(num_computed, sequence.num_tokens - rejected, 1) + more, limit)


def assert_equal_pools(pool: Pool, naive: NaivePool) -> None:
    """Everything that can make a difference is the same, and the pool's own books are in order."""
    assert list(pool.store.queue) == naive.free
    assert list(pool.store.reference_counts) == naive.reference_counts
    assert index_of(pool) == index_of_naive(naive)
    for sequence_id in naive.sequences:
        assert plain(pool.sequence(sequence_id)) == plain(naive.sequence(sequence_id))
    assert {lease_id: leased(lease) for lease_id, lease in pool.leases.items()} == {
        lease_id: leased(lease) for lease_id, lease in naive.leases.items()
    }
    if naive.leases:
        assert pool.next_expiry_ms is not None
        assert pool.next_expiry_ms <= min(lease.expires_at_ms for lease in naive.leases.values())

    audit = pool.audit()
    assert audit.ok
    assert audit.num_free_blocks + audit.num_held_blocks + audit.num_null_blocks == pool.config.num_blocks
    statistics = pool.statistics()
    num_held = sum(count > 0 for count in naive.reference_counts)
    num_asked = sum(asked for asked, _ in naive.lookups)
    assert statistics.num_blocks == pool.config.num_blocks
    assert statistics.num_free_blocks == audit.num_free_blocks == len(naive.free)
    assert statistics.num_held_blocks == audit.num_held_blocks == num_held
    assert statistics.num_cached_blocks == len(naive.index)
    assert statistics.num_sequences == len(naive.sequences)
    assert statistics.num_leases == len(naive.leases)
    assert statistics.counters["num_evicted_blocks"] == naive.num_evictions
    assert statistics.usage == pytest.approx(num_held / (pool.config.num_blocks - 1))
    assert statistics.hit_rate == (
        pytest.approx(sum(found for _, found in naive.lookups) / num_asked) if num_asked else None
    )


def index_of(pool: Pool) -> dict[tuple[BlockHash, int], list[BlockId]]:
    return {
        (block_hash, group): [entry] if isinstance(entry, int) else list(entry)
        for group in range(len(pool.config.groups))
        for block_hash, entry in pool.store.index.table(group).items()
    }


def index_of_naive(naive: NaivePool) -> dict[tuple[BlockHash, int], list[BlockId]]:
    index = defaultdict(list)
    for block_hash, group, block in naive.index:
        index[block_hash, group].append(block)
    return dict(index)


def leased(lease: Lease | NaiveLease) -> list[Any]:
    return [lease.expires_at_ms, list(lease.raw_blocks), plain(lease.last_step)]


def run(machine: type[PoolMachine], run_settings: settings) -> Counter[str]:
    """Run ``machine`` and count what happened."""
    machine.coverage = Counter()
    run_state_machine_as_test(machine, settings=run_settings)
    return machine.coverage


# Bugs planted in the pool, each of which the machine must find


class HeadFirst(BlockTables):
    def free(self, sequence: LiveSequence) -> int:
        return sum(self._store.release(table) for table in sequence.tables)


class LookaheadPublished(BlockTables):
    def publish(self, sequence: LiveSequence) -> int:
        num_computed = sequence.num_computed_tokens
        sizes = [group.block_size for group in self._config.groups]
        slots = [len(table) * size for table, size in zip(sequence.tables, sizes, strict=True)]
        sequence.num_computed_tokens = max(num_computed, min(slots))
        num_published = super().publish(sequence)
        sequence.num_computed_tokens = num_computed
        return num_published


class WindowDroppedEarly(BlockTables):
    def _drop_skipped(self, sequence: LiveSequence, num_computed_tokens: int) -> None:
        super()._drop_skipped(sequence, num_computed_tokens + 2)


class RefusalTakesBackTokens(BlockTables):
    def extend(
        self, sequence: LiveSequence, *, num_computed_tokens: int, **asked: Any
    ) -> list[list[BlockId]]:
        try:
            return super().extend(sequence, num_computed_tokens=num_computed_tokens, **asked)
        except InsufficientBlocks:
            sequence.num_computed_tokens = num_computed_tokens
            raise


class HashKeptOnEviction(BlockStore):
    __slots__ = ()

    def take(self, num_blocks: int) -> list[BlockId]:
        blocks = self.queue.pop(num_blocks)
        for block in blocks:
            self.reference_counts[block] = 1
        return blocks


class SharedBlockReleasedTwice(BlockStore):
    __slots__ = ()

    def release(self, blocks: Iterable[BlockId]) -> int:
        released = list(blocks)
        num_freed = super().release(released)
        for block in released:
            self.reference_counts[block] = max(self.reference_counts[block] - 1, 0)
        return num_freed


class NullTouched(BlockStore):
    __slots__ = ()

    def touch(self, blocks: Iterable[BlockId]) -> None:
        touched = list(blocks)
        super().touch(touched)
        self.reference_counts[NULL_BLOCK] += touched.count(NULL_BLOCK)


class TouchedBlockStaysFree(BlockStore):
    __slots__ = ()

    def touch(self, blocks: Iterable[BlockId]) -> None:
        for block in blocks:
            self.reference_counts[block] += block != NULL_BLOCK


class NewestEvictedFirst(BlockStore):
    __slots__ = ()

    def release(self, blocks: Iterable[BlockId]) -> int:
        num_free = len(self.queue)
        num_freed = super().release(blocks)
        order = list(self.queue)
        self.queue.pop(len(order))
        self.queue.append(order[num_free:] + order[:num_free])
        return num_freed


class NewestDuplicateFirst(PrefixIndex):
    __slots__ = ()

    def add(self, group: int, block_hash: BlockHash, block: BlockId) -> None:
        entry = self._tables[group].get(block_hash, {})
        others = [entry] if isinstance(entry, int) else list(entry)
        self._tables[group][block_hash] = dict.fromkeys([block, *others]) if others else block


class RawBlocksLost(Pool):
    def _end(self, lease: Lease) -> tuple[int, int]:
        lease.raw_blocks.clear()
        return super()._end(lease)


class RepeatsDone(Pool):
    def apply(self, command: Command, now_ms: int) -> Reply:
        return super().apply(command.command if isinstance(command, Idempotent) else command, now_ms)


class StepHalfDone(Pool):
    def apply(self, command: Command, now_ms: int) -> Reply:
        if isinstance(command, Step):
            for handle in command.commit.sequences:
                sequence = self.sequences.by_handle(handle)
                if sequence is not None:
                    sequence.num_committed_tokens = sequence.num_computed_tokens
        return super().apply(command, now_ms)


class ResetWhileHeld(Pool):
    def apply(self, command: Command, now_ms: int) -> Reply:
        if isinstance(command, ResetPrefixCache) and command.epoch is None:
            self.store.forget_all()
        return super().apply(command, now_ms)


class DuplicatesUnorderedInSnapshot(Pool):
    def snapshot(self) -> dict[str, Any]:
        state = super().snapshot()
        state["store"]["shared_hashes"] = []
        return state


def publish_before_commit(pool: Pool) -> None:
    pool.sequences._tables._publishes_on_allocate = True


def swap(part: Callable[[Pool], Any], broken: type) -> Callable[[Pool], None]:
    """Make a part of the pool an instance of ``broken``, its subclass."""

    def plant(pool: Pool) -> None:
        part(pool).__class__ = broken

    return plant


PLANTED_BUGS = {
    "publish before commit": publish_before_commit,
    **{bug.__name__: swap(lambda pool: pool, bug) for bug in Pool.__subclasses__()},
    **{bug.__name__: swap(lambda pool: pool.store, bug) for bug in BlockStore.__subclasses__()},
    **{bug.__name__: swap(lambda pool: pool.store.index, bug) for bug in PrefixIndex.__subclasses__()},
    **{bug.__name__: swap(lambda pool: pool.sequences._tables, bug) for bug in BlockTables.__subclasses__()},
}

CORRUPTING_BUGS = (NullTouched, TouchedBlockStaysFree, RawBlocksLost)
"""Those that leave books which do not add up."""

UNTIL_FOUND = settings(
    SETTINGS,
    max_examples=1_000,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


@pytest.mark.parametrize("bug", PLANTED_BUGS)
def test_the_machine_finds_a_planted_bug(bug: str) -> None:
    class BrokenMachine(PoolMachine):
        @staticmethod
        def plant(pool: Pool) -> None:
            PLANTED_BUGS[bug](pool)

    with pytest.raises(AssertionError):
        run(BrokenMachine, UNTIL_FOUND)


@pytest.mark.parametrize("bug", [bug.__name__ for bug in CORRUPTING_BUGS])
def test_the_audit_alone_finds_books_that_do_not_add_up(bug: str) -> None:
    class AuditedMachine(PoolMachine):
        compares = False

        @staticmethod
        def plant(pool: Pool) -> None:
            PLANTED_BUGS[bug](pool)

    with pytest.raises(AssertionError, match="the audit found"):
        run(AuditedMachine, UNTIL_FOUND)


def test_the_pool_does_what_the_naive_pool_does() -> None:
    coverage = run(PoolMachine, SETTINGS)
    print("\n".join(f"{count:7} {what}" for what, count in sorted(coverage.items())))
    assert coverage["steps"] >= MIN_STEPS
    assert [what for what in MUST_HAPPEN if not coverage[what]] == []
    assert sum(what.startswith("fault: ") for what in coverage) >= MIN_FAULTS
