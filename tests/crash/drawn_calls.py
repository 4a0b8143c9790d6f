"""What a client asks for next: drawn, and allowed by all that it was answered so far."""

import random
from typing import Any

from crash.calls import Call, Verb
from crash.drawn_pools import BLOCK_SIZE, POOLS, DrawnPool
from crash.ledger import HeldSequence, LeaseBook, Ledger

LEASE_TTL_MS = 60_000
MAX_SEQUENCES = 10
"""Of a lease; then some are freed."""
NUM_LONG_BLOCKS = 1_500
WAITS_MS = (0, 0, 0, 30)
"""How long an allocation may wait."""
LONG_SHARE = 0.02
"""Of a long prompt: its record, with 64 bytes a hash, takes 24 pages of the journal to append, and time."""
HASH_BYTES = 64

WEIGHTS = {
    Verb.STEP: 30,
    Verb.ALLOCATE: 30,
    Verb.COMMIT: 12,
    Verb.FREE: 12,
    Verb.TAKE: 8,
    Verb.GIVE: 6,
    Verb.RELEASE: 0.5,
}


class DrawnCalls:
    """Of the client of ``name``, which holds what ``ledger`` says."""

    def __init__(self, name: str, seed: int, ledger: Ledger) -> None:
        self._name = name
        self._draw = random.Random(seed)
        self._ledger = ledger
        self._num_calls = 0
        self._num_sequences = 0

    def next(self) -> Call:
        leased = {book.pool for book in self._ledger.leases.values()}
        for pool in POOLS:
            if pool.name not in leased:
                return self._call(Verb.LEASE, pool, {"holder": self._name, "ttl_ms": LEASE_TTL_MS})
        book = self._draw.choice(list(self._ledger.leases.values()))
        pool = next(pool for pool in POOLS if pool.name == book.pool)
        verb = self._verb(book)
        return self._call(verb, pool, {"lease_id": book.lease_id, **self._fields(verb, book, pool)})

    def _call(self, verb: Verb, pool: DrawnPool, body: dict[str, Any]) -> Call:
        self._num_calls += 1
        key = f"{self._name}-{self._num_calls}"
        return Call(number=self._num_calls, verb=verb, pool=pool.name, key=key, body=body)

    def _verb(self, book: LeaseBook) -> Verb:
        (verb,) = self._draw.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if len(book.sequences) > MAX_SEQUENCES:
            return self._draw.choice([Verb.FREE, Verb.FREE, Verb.STEP, Verb.COMMIT, verb])
        if not book.sequences and verb in (Verb.COMMIT, Verb.FREE):
            return Verb.ALLOCATE
        return Verb.TAKE if verb is Verb.GIVE and not book.raw_blocks else verb

    def _fields(self, verb: Verb, book: LeaseBook, pool: DrawnPool) -> dict[str, Any]:
        draw = self._draw
        fields: dict[str, Any] = {}
        match verb:
            case Verb.ALLOCATE if book.sequences and draw.random() < 0.5:
                fields = self._extension(draw.choice(list(book.sequences.values()))) | self._wait()
            case Verb.ALLOCATE:
                fields = self._admission(pool) | self._wait()
            case Verb.COMMIT:
                held = draw.choice(list(book.sequences.values()))
                count = draw.randint(0, held.num_tokens)
                fields = {"sequence_id": held.sequence_id, "num_computed_tokens": count}
            case Verb.FREE:
                fields = {"sequence_ids": self._some(list(book.sequences), 3)}
            case Verb.STEP:
                fields = self._step(book, pool)
            case Verb.TAKE:
                fields = {"num_blocks": draw.randint(1, 6)} | self._wait()
            case Verb.GIVE:
                fields = {"block_ids": self._some(list(book.raw_blocks), 8)}
        return fields

    def _step(self, book: LeaseBook, pool: DrawnPool) -> dict[str, Any]:
        held = list(book.sequences.values())
        commit, free = self._some(held, 4), self._some(held, 2)
        extend = [each for each in self._some(held, 4) if each not in free]
        told = [self._extension(each) for each in extend]
        room = MAX_SEQUENCES - len(held)
        return {
            "step_id": book.next_step_id,
            "commit": {
                "sequences": [each.handle for each in commit],
                "num_computed_tokens": [self._draw.randint(0, each.num_tokens) for each in commit],
            },
            "free": {"sequences": [each.handle for each in free]},
            "extend": {
                "sequences": [each.handle for each in extend],
                "num_tokens": [each["num_tokens"] for each in told],
                "block_hashes": {
                    str(each.handle): fields["block_hashes"]
                    for each, fields in zip(extend, told, strict=True)
                },
            },
            "admit": [self._admission(pool) for _ in range(self._draw.randint(0, max(0, min(room, 2))))],
        }

    def _admission(self, pool: DrawnPool) -> dict[str, Any]:
        draw = self._draw
        self._num_sequences += 1
        is_long = pool.num_prefixes == 0 and draw.random() < LONG_SHARE
        num_tokens = NUM_LONG_BLOCKS * BLOCK_SIZE if is_long else draw.randint(1, 12 * BLOCK_SIZE)
        num_full = num_tokens // BLOCK_SIZE
        num_shared = draw.randint(0, num_full) if pool.num_prefixes else 0
        prefix = draw.randrange(max(pool.num_prefixes, 1))
        shared = [f"{prefix:064x}{position:064x}" for position in range(num_shared)]
        return {
            "sequence_id": f"{self._name}-{self._num_sequences}",
            "num_tokens": num_tokens,
            "block_hashes": shared + self._own_hashes(num_full - num_shared),
            "skip_prefix_cache": draw.random() < 0.1,
        }

    def _extension(self, held: HeldSequence) -> dict[str, Any]:
        num_tokens = held.num_tokens + self._draw.randint(1, 2 * BLOCK_SIZE)
        num_new = num_tokens // BLOCK_SIZE - len(held.block_hashes)
        return {
            "sequence_id": held.sequence_id,
            "num_tokens": num_tokens,
            "block_hashes": self._own_hashes(num_new),
        }

    def _wait(self) -> dict[str, Any]:
        wait_ms = self._draw.choice(WAITS_MS)
        return {"wait_ms": wait_ms} if wait_ms else {}

    def _own_hashes(self, count: int) -> list[str]:
        return [self._draw.randbytes(HASH_BYTES).hex() for _ in range(count)]

    def _some(self, items: list[Any], most: int) -> list[Any]:
        """1 to ``most`` of ``items``; none where there are none."""
        return self._draw.sample(items, self._draw.randint(min(1, len(items)), min(most, len(items))))
