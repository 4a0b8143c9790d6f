"""The sequences whose histories are checked: each is read by all clients, and some are written by all.

They stand in pools of their own, under one lease a pool that all clients share.
"""

from dataclasses import dataclass
from hashlib import sha256

from crash.drawn_pools import DrawnPool

NUM_SHARED, NUM_OWN = 4, 2
"""Of a pool, written by every client; and of a client, written by that one alone."""
MAX_BLOCKS = 20
"""Of a register; then it is freed."""
LEASE_TTL_MS = 600_000

REGISTER_POOLS = tuple(
    DrawnPool(name=f"registers-{number}", num_blocks=200, is_windowed=(False,), num_prefixes=0)
    for number in range(2)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """``writer``: the number of the client that writes it, and knows its content; None: all do, without."""

    pool: str
    sequence_id: str
    writer: int | None = None

    def block_hashes(self, begin: int, end: int) -> list[str]:
        """Of its blocks from ``begin`` up to ``end``, always the same; none where nobody knows it."""
        if self.writer is None:
            return []
        return [sha256(f"{self.sequence_id} {place}".encode()).hexdigest() for place in range(begin, end)]


def registers(num_clients: int) -> list[Register]:
    """All of them."""
    shared = [
        Register(pool=pool.name, sequence_id=f"shared-{number}")
        for pool in REGISTER_POOLS
        for number in range(NUM_SHARED)
    ]
    own = [
        Register(
            pool=REGISTER_POOLS[number % len(REGISTER_POOLS)].name,
            sequence_id=f"own-{client}-{number}",
            writer=client,
        )
        for client in range(num_clients)
        for number in range(NUM_OWN)
    ]
    return shared + own
