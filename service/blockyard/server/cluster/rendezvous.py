"""Which node a pool belongs to: rendezvous hashing, the highest weight wins.

Each node has a weight for each pool, by their names alone. So every node finds the same order by itself;
where a node goes, its pools go to the next one of each, and no others move; where one comes, it gets those
for which it weighs the most.

Source: D. G. Thaler, C. V. Ravishankar, "Using name-based mappings to increase hit rates" (1998).
"""

from collections.abc import Iterable

import xxhash


def candidates(pool: str, nodes: Iterable[str]) -> list[str]:
    """``nodes`` in the order in which they are to own the pool of this name: the owner first."""
    return sorted(nodes, key=lambda node: (weight(pool, node), node), reverse=True)


def weight(pool: str, node: str) -> int:
    """What the node weighs for the pool, by their names: 64 bits."""
    return xxhash.xxh3_64_intdigest(f"{node}\n{pool}".encode())
