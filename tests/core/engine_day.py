"""An engine's day with a pool: every kind of call at random, in an order in which an engine may make them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

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
    RenewLease,
    Step,
    StepCommit,
    StepExtend,
)
from blockyard.core.config import PoolConfig
from blockyard.core.errors import InsufficientBlocks
from blockyard.core.ids import BlockHash, LeaseId, SequenceHandle, SequenceId
from blockyard.core.pool import Pool
from blockyard.core.replies import Admitted, Allocated, BlocksAllocated, Stepped

MAX_LIVE = 24
NUM_TEXTS = 4
MAX_GUESSES = 3
LEASE_MS = 50


@dataclass(slots=True, eq=False)
class Request:
    """A live sequence as its engine knows it.

    ``num_tokens`` are certain; ``num_granted_tokens`` have slots, guesses beyond the certain ones included;
    ``num_sent_hashes`` are known to the pool.
    """

    sequence_id: SequenceId
    handle: SequenceHandle
    text: Sequence[BlockHash]
    num_tokens: int
    num_granted_tokens: int
    num_sent_hashes: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Slots that a request asks for, and how it stands once it has them."""

    request: Request
    num_computed_tokens: int
    num_tokens: int
    block_hashes: Sequence[BlockHash]


class EngineDay:
    """Calls of two schedulers to one pool, one of which forgets its lease now and then.

    Both have all their tokens written between two calls, so what was granted may always be committed. A guess
    is a token that is not certain yet: no hash speaks of it, and the next call may take it back.
    """

    def __init__(self, config: PoolConfig, seed: object) -> None:
        self.pool = Pool(config)
        self.num_refused = 0
        self.num_cached_tokens = 0
        self._draw = random.Random(str(seed))
        self._now_ms = 0
        self._num_made = 0
        self._leases: list[LeaseId] = []
        self._live: dict[LeaseId, list[Request]] = {}
        self._raw: dict[LeaseId, list[int]] = {}
        limit = 1_000_000 if config.max_model_len is None else config.max_model_len
        self._max_tokens = min(limit, max(6 * config.scheduler_block_size, 200))
        num_hashes = self._max_tokens // config.hash_block_size + 1
        # Two texts have their first half in common, as have the other two.
        self._texts = [
            [
                f"{text // 2 if position < num_hashes // 2 else text + 2}-{position}".encode()
                for position in range(num_hashes)
            ]
            for text in range(NUM_TEXTS)
        ]
        for _ in range(2):
            self._open_lease()

    def call(self) -> None:
        """Make one call."""
        lease = self._leases[0] if self._draw.random() < 0.7 else self._leases[1]
        live = self._live[lease]
        actions = [self._admit, self._step, self._step, self._look_up, self._use_raw_blocks, self._restore]
        weights = [20, 25, 5, 4, 2, 0.3]
        if live:
            actions += [self._extend, self._commit, self._free]
            weights += [30, 10, 12 if len(live) > MAX_LIVE // 2 else 5]
        (action,) = self._draw.choices(actions, weights)
        action(lease)
        if self._draw.random() < 0.01:
            self._let_expire()

    def end(self) -> None:
        """Give everything back."""
        for lease in self._leases:
            self.pool.apply(DeleteLease(lease_id=lease), self._now_ms)
        self._leases.clear()

    # Leases

    def _open_lease(self) -> None:
        self._num_made += 1
        lease = LeaseId(f"lease {self._num_made}")
        self.pool.apply(CreateLease(lease_id=lease, holder="engine", ttl_ms=LEASE_MS), self._now_ms)
        self._leases.append(lease)
        self._live[lease], self._raw[lease] = [], []

    def _let_expire(self) -> None:
        """All that one of the leases holds comes back; the other was renewed in time."""
        kept, lost = self._leases
        for lease in self._leases:
            self.pool.apply(RenewLease(lease_id=lease), self._now_ms)
        self._now_ms += LEASE_MS - 1
        self.pool.apply(RenewLease(lease_id=kept), self._now_ms)
        self._now_ms += 1
        self.pool.apply(ExpireLeases(), self._now_ms)
        assert lost not in self.pool.leases
        self._leases.remove(lost)
        del self._live[lost], self._raw[lost]
        self._open_lease()

    # Single calls

    def _admit(self, lease: LeaseId) -> None:
        if len(self._live[lease]) >= MAX_LIVE:
            return self._free(lease)
        admission, text = self._admission()
        try:
            reply = self.pool.apply(Allocate(lease_id=lease, admission=admission), self._now_ms)
        except InsufficientBlocks:
            self.num_refused += 1
            return None
        assert isinstance(reply, Allocated)
        assert reply.num_cached_tokens is not None
        self._note_admitted(
            lease, admission, text, reply.sequence, reply.num_cached_tokens, reply.num_new_tokens
        )
        return None

    def _extend(self, lease: LeaseId) -> None:
        growth = self._growth(self._draw.choice(self._live[lease]))
        admission = Admission(
            sequence_id=growth.request.sequence_id,
            num_tokens=growth.num_tokens,
            num_lookahead_tokens=self._draw.choice([0, 0, 2]),
            block_hashes=growth.block_hashes,
        )
        command = Allocate(
            lease_id=lease, admission=admission, num_computed_tokens=growth.num_computed_tokens
        )
        try:
            self.pool.apply(command, self._now_ms)
        except InsufficientBlocks:
            self.num_refused += 1
        else:
            self._note_grown(growth)

    def _commit(self, lease: LeaseId) -> None:
        request = self._draw.choice(self._live[lease])
        num_tokens = min(request.num_tokens, request.num_granted_tokens)
        command = Commit(lease_id=lease, sequence_id=request.sequence_id, num_computed_tokens=num_tokens)
        self.pool.apply(command, self._now_ms)

    def _free(self, lease: LeaseId) -> None:
        live = self._live[lease]
        ended = self._draw.sample(live, min(len(live), self._draw.choice([1, 1, 2, 5])))
        for request in ended:
            live.remove(request)
        sequence_ids = [request.sequence_id for request in ended]
        self.pool.apply(Free(lease_id=lease, sequence_ids=sequence_ids), self._now_ms)

    def _look_up(self, _: LeaseId) -> None:
        num_tokens = self._draw.randint(1, self._max_tokens)
        text = self._draw.choice(self._texts)
        self.pool.lookup(num_tokens=num_tokens, block_hashes=text)

    def _use_raw_blocks(self, lease: LeaseId) -> None:
        raw = self._raw[lease]
        if raw:
            self.pool.apply(FreeBlocks(lease_id=lease, block_ids=raw), self._now_ms)
            self._raw[lease] = []
            return
        try:
            reply = self.pool.apply(AllocateBlocks(lease_id=lease, num_blocks=3), self._now_ms)
        except InsufficientBlocks:
            self.num_refused += 1
        else:
            assert isinstance(reply, BlocksAllocated)
            raw += reply.block_ids

    def _restore(self, _: LeaseId) -> None:
        """Go on with a copy."""
        snapshot = self.pool.snapshot()
        self.pool = Pool.restore(snapshot)
        assert self.pool.snapshot() == snapshot

    # Steps

    def _step(self, lease: LeaseId) -> None:
        draw, live = self._draw, self._live[lease]
        ended = [request for request in live if draw.random() < 0.05]
        going_on = [request for request in live if request not in ended]
        for request in live:
            self._settle(request)
        written = [request for request in live if draw.random() < 0.7]
        num_written = [request.num_granted_tokens for request in written]
        growths = [self._growth(request) for request in going_on if draw.random() < 0.8]
        admissions = [self._admission() for _ in range(draw.choice([0, 0, 1, 3]))]
        if len(live) + len(admissions) > MAX_LIVE:
            admissions = []
        step = Step(
            lease_id=lease,
            commit=StepCommit(
                sequences=[request.handle for request in written],
                num_computed_tokens=num_written,
            ),
            free=[request.handle for request in ended],
            extend=StepExtend(
                sequences=[growth.request.handle for growth in growths],
                num_tokens=[growth.num_tokens for growth in growths],
                num_computed_tokens=[growth.num_computed_tokens for growth in growths],
                num_lookahead_tokens=draw.choice([0, 0, 2]),
                block_hashes={g.request.handle: g.block_hashes for g in growths if g.block_hashes},
            ),
            admit=[admission for admission, _ in admissions],
        )
        reply = self.pool.apply(step, self._now_ms)
        assert isinstance(reply, Stepped)
        self._live[lease] = going_on
        granted = set(reply.extend.sequences)
        for growth in growths:
            if growth.request.handle in granted:
                self._note_grown(growth)
        self.num_refused += len(reply.extend.insufficient)
        for (admission, text), answer in zip(admissions, reply.admit, strict=True):
            if isinstance(answer, Admitted):
                numbers = answer.sequence, answer.num_cached_tokens, answer.num_new_tokens
                self._note_admitted(lease, admission, text, *numbers)
            else:
                assert answer.code == InsufficientBlocks.code
                self.num_refused += 1

    # What is asked for

    def _admission(self) -> tuple[Admission, Sequence[BlockHash]]:
        draw, text = self._draw, self._draw.choice(self._texts)
        num_tokens = draw.randint(1, self._max_tokens if draw.random() < 0.5 else min(40, self._max_tokens))
        config = self.pool.config
        whole_blocks = draw.randint(1, 3) * config.scheduler_block_size
        self._num_made += 1
        return Admission(
            sequence_id=SequenceId(f"s{self._num_made}"),
            num_tokens=num_tokens,
            max_new_tokens=draw.choice([None, whole_blocks, draw.randint(1, num_tokens)]),
            num_lookahead_tokens=draw.choice([0, 0, 2]),
            block_hashes=text[: num_tokens // config.hash_block_size],
            full_sequence_must_fit=draw.random() < 0.1,
            skip_prefix_cache=draw.random() < 0.1,
            num_prompt_tokens=draw.choice([None, draw.randint(1, num_tokens)]),
            num_encoder_tokens=draw.choice([0, 100]),
        ), text

    def _growth(self, request: Request) -> Growth:
        """Slots for known tokens in a chunk, or for a token more and guesses."""
        draw, config = self._draw, self.pool.config
        self._settle(request)
        num_computed = request.num_granted_tokens
        if num_computed < request.num_tokens:
            size = draw.choice([1, draw.randint(1, 64), config.scheduler_block_size])
            num_tokens = min(request.num_tokens, num_computed + size)
            if draw.random() < 0.7:
                whole = num_tokens // config.scheduler_block_size * config.scheduler_block_size
                num_tokens = max(whole, num_computed + 1)
        else:
            request.num_tokens = min(request.num_tokens + 1, self._max_tokens)
            num_guesses = draw.choice([0, 0, draw.randint(0, MAX_GUESSES)])
            num_tokens = min(request.num_tokens + num_guesses, self._max_tokens)
        num_hashes = min(request.num_tokens, num_tokens) // config.hash_block_size
        return Growth(request, num_computed, num_tokens, request.text[request.num_sent_hashes : num_hashes])

    def _settle(self, request: Request) -> None:
        """Some of the guesses were right."""
        num_guesses = request.num_granted_tokens - request.num_tokens
        if num_guesses > 0:
            request.num_tokens += self._draw.randint(0, num_guesses)
            request.num_granted_tokens = request.num_tokens

    def _note_grown(self, growth: Growth) -> None:
        growth.request.num_granted_tokens = growth.num_tokens
        growth.request.num_sent_hashes += len(growth.block_hashes)

    def _note_admitted(
        self,
        lease: LeaseId,
        admission: Admission,
        text: Sequence[BlockHash],
        handle: SequenceHandle,
        num_cached_tokens: int,
        num_new_tokens: int,
    ) -> None:
        self.num_cached_tokens += num_cached_tokens
        self._live[lease].append(
            Request(
                sequence_id=admission.sequence_id,
                handle=handle,
                text=text,
                num_tokens=admission.num_tokens,
                num_granted_tokens=num_cached_tokens + num_new_tokens,
                num_sent_hashes=len(admission.block_hashes),
            )
        )
