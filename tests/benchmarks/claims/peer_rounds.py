"""The claims that stand beside what the peer's own script tells: each round runs it once, and ours after it.

It times all its jobs in one run of some fifteen seconds, so these claims share its runs.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from benchmarks.beside.peer import PeerMissing
from benchmarks.claims.decode_step import DecodeStep
from benchmarks.claims.figure import Figure
from benchmarks.claims.hashing import Hashing
from benchmarks.claims.lookup import Lookup
from benchmarks.claims.setting import Setting

SIDES = (DecodeStep, Hashing, Lookup)
NAMES = tuple(side.name for side in SIDES)


def measure(setting: Setting, names: Collection[str]) -> Iterator[Figure]:
    """Rows of those claims among `NAMES` that are in ``names``."""
    sides = [side for side in SIDES if side.name in names]
    rounds: dict[str, dict[str, list[float]]] = {side.name: defaultdict(list) for side in sides}
    peer: list[Mapping[str, Any]] = []
    missing = ""
    with ExitStack() as stack:
        ours = [side(setting, stack) for side in sides]
        for number in range(setting.rounds):
            if not missing:
                setting.note(f"round {number + 1}: the peer's own jobs")
                try:
                    peer.append(setting.peer.own_figures())
                except PeerMissing as error:
                    missing = f"no peer: {error}"
            for each in ours:
                setting.note(f"round {number + 1}: {each.name}")
                for what, value in each.measure().items():
                    rounds[each.name][what].append(value)
    for side in sides:
        yield from side.figures(rounds[side.name], peer, missing)
