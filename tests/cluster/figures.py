"""How long nobody was served: from when acknowledged calls came, as clients saw them."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from cluster.faults import Fault, Struck
from crash.calls import Answer, Call

AFTER_NS = 1_000_000_000
"""A gap that a hand-over made ends in less after it."""


class Acknowledged:
    """When calls of each pool were answered with a success, and by an owner of which number."""

    def __init__(self) -> None:
        self._answers: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._tried_ns: dict[str, int] = defaultdict(int)
        self._is_sorted = True

    def note(self, call: Call, answer: Answer | None) -> None:
        """One more of some client."""
        if answer is not None and answer.is_success and answer.ownership is not None:
            self._answers[call.pool].append((answer.at_ns, answer.ownership))
            self._tried_ns[call.pool] = max(self._tried_ns[call.pool], answer.tried_ns)
            self._is_sorted = False

    @property
    def num_calls(self) -> int:
        return sum(map(len, self._answers.values()))

    def not_since(self, at_ns: int, pools: Iterable[str]) -> list[str]:
        """Those of ``pools`` of which no call was answered that was tried after ``at_ns``."""
        return [pool for pool in pools if self._tried_ns[pool] <= at_ns]

    def taken_over_after_ms(self, pool: str, at_ns: int) -> float | None:
        """From ``at_ns`` to the first by a later owner than at that time; None for none."""
        answers = self._sorted(pool)
        place = bisect_right(answers, (at_ns, 0))
        before = max((ownership for _, ownership in answers[:place]), default=0)
        later = (ended_ns for ended_ns, ownership in answers[place:] if ownership > before)
        first_ns = next(later, None)
        return None if first_ns is None else (first_ns - at_ns) / 1e6

    def longest_gap_ms(self, pool: str, begin_ns: int, end_ns: int) -> float:
        """Between one call and the next, from the last before ``begin_ns`` to the first after ``end_ns``."""
        times = [ended_ns for ended_ns, _ in self._sorted(pool)]
        begin = max(bisect_right(times, begin_ns) - 1, 0)
        end = bisect_right(times, end_ns) + 1
        inside = times[begin:end]
        return max((later - earlier for earlier, later in pairwise(inside)), default=0) / 1e6

    def _sorted(self, pool: str) -> list[tuple[int, int]]:
        if not self._is_sorted:
            for answers in self._answers.values():
                answers.sort()
            self._is_sorted = True
        return self._answers[pool]


@dataclass(slots=True)
class Figures:
    """What a run found.

    Attributes:
        seed: What it was drawn from.
        network: What partitions were made with.
        num_faults: How often each was done.
        num_acknowledged: Calls that were, and none of them was lost.
        num_register_calls: Calls whose histories were checked.
        forced_ms: From the death of an owner to the next acknowledged call of each pool of its.
        planned_ms: Longest gap in the acknowledged calls of each pool that was handed over.
        gaps_ms: Of each fault, the longest gap in the acknowledged calls of any pool.
    """

    seed: int
    network: str = ""
    num_faults: dict[str, int] = field(default_factory=dict)
    num_acknowledged: int = 0
    num_register_calls: int = 0
    forced_ms: list[float] = field(default_factory=list)
    planned_ms: list[float] = field(default_factory=list)
    gaps_ms: dict[str, list[float]] = field(default_factory=dict)

    def note(self, struck: Struck, mended_ns: int, acknowledged: Acknowledged, pools: list[str]) -> None:
        """A fault that was mended by ``mended_ns``."""
        name = struck.fault.name.lower()
        self.num_faults[name] = self.num_faults.get(name, 0) + 1
        if struck.fault is Fault.KILL_OWNER:
            for pool in struck.pools:
                found = acknowledged.taken_over_after_ms(pool, struck.at_ns)
                assert found is not None, f"nobody has answered for {pool} since {struck.whom} was killed"
                self.forced_ms.append(found)
        for at_ns, ended_ns, owned in struck.planned:
            self.planned_ms += [
                acknowledged.longest_gap_ms(pool, at_ns, ended_ns + AFTER_NS) for pool in owned
            ]
        longest = max(acknowledged.longest_gap_ms(pool, struck.at_ns, mended_ns) for pool in pools)
        self.gaps_ms.setdefault(name, []).append(longest)

    def as_json(self) -> dict[str, Any]:
        """All of them, with what they add up to."""
        return {
            **asdict(self),
            "forced_median_ms": _median(self.forced_ms),
            "forced_max_ms": max(self.forced_ms, default=None),
            "planned_median_ms": _median(self.planned_ms),
            "planned_max_ms": max(self.planned_ms, default=None),
        }

    def lines(self) -> list[str]:
        """For people."""
        found = [f"seed {self.seed}, partitions by {self.network}"]
        for name, count in sorted(self.num_faults.items()):
            gaps = self.gaps_ms[name]
            found.append(
                f"{count:5} x {Fault[name.upper()]}: nobody answered for at most "
                f"{median(gaps):,.0f} ms (median), {max(gaps):,.0f} ms (most)"
            )
        found.append(f"{self.num_acknowledged:,} acknowledged calls, none lost")
        found.append(f"{self.num_register_calls:,} calls of registers, linearizable")
        if self.forced_ms:
            found.append(
                f"owner killed, next acknowledged call of each pool of its after "
                f"{median(self.forced_ms):,.0f} ms (median), {max(self.forced_ms):,.0f} ms (most)"
            )
        if self.planned_ms:
            found.append(
                f"handed over, longest gap in a pool's acknowledged calls "
                f"{median(self.planned_ms):,.0f} ms (median), {max(self.planned_ms):,.0f} ms (most)"
            )
        return found


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
