"""All claims, by name, and how each is measured."""

from collections.abc import Callable, Collection, Iterator

from benchmarks.claims import (
    cluster,
    core_calls,
    eviction,
    growth,
    memory,
    peer_rounds,
    replayed,
    round_trip,
    saturated,
)
from benchmarks.claims.figure import Figure
from benchmarks.claims.setting import Setting

ALONE: dict[str, Callable[[Setting], Iterator[Figure]]] = {
    module.NAME: module.measure
    for module in (core_calls, eviction, saturated, round_trip, memory, growth, replayed, cluster)
}
NAMES = (*peer_rounds.NAMES, *ALONE)


def measure(setting: Setting, names: Collection[str]) -> Iterator[Figure]:
    """Every row of the claims that ``names`` names."""
    if any(name in names for name in peer_rounds.NAMES):
        yield from peer_rounds.measure(setting, names)
    for name, measure_one in ALONE.items():
        if name in names:
            yield from measure_one(setting)
