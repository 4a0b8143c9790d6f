"""A cell of the laboratory: one workload at one capacity, under each policy and the optimum."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context

from benchmarks.laboratory.optimum import optimal_hits
from benchmarks.laboratory.replay import fits, replay
from benchmarks.laboratory.workload import Workload
from benchmarks.laboratory.workloads import Source
from blockyard.core.config import Eviction

CAPACITIES = (300, 1_000, 2_000, 3_000, 5_000, 10_000, 30_000, 100_000)

LEAST_GAP = 0.005
"""Of all blocks. Where foresight gains less, a share of what it gains says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What came of a workload at a capacity.

    Attributes:
        workload: Its name.
        capacity: Blocks, the null block not among them.
        block_size: Tokens a block.
        num_requests: Those that were replayed.
        num_skipped: Those that need more blocks than there are, for every policy alike.
        num_blocks: Full blocks of the inputs that were replayed.
        num_tokens: Tokens of these inputs.
        num_cached_tokens: By policy.
        num_optimal_hits: Blocks, see `benchmarks.laboratory.optimum`.
    """

    workload: str
    capacity: int
    block_size: int
    num_requests: int
    num_skipped: int
    num_blocks: int
    num_tokens: int
    num_cached_tokens: Mapping[str, int]
    num_optimal_hits: int

    def num_hits(self, policy: Eviction) -> int:
        """Blocks that were found under ``policy``."""
        return self.num_cached_tokens[policy] // self.block_size

    def hit_ratio(self, policy: Eviction) -> float:
        """The same, of all full blocks."""
        return self.num_hits(policy) / max(self.num_blocks, 1)

    @property
    def optimal_hit_ratio(self) -> float:
        """What no policy exceeds."""
        return self.num_optimal_hits / max(self.num_blocks, 1)

    def against_lru(self, policy: Eviction) -> float | None:
        """Cached tokens under ``policy`` for one under lru; None where lru has none."""
        by_lru = self.num_cached_tokens[Eviction.LRU]
        return self.num_cached_tokens[policy] / by_lru if by_lru else None

    def gap_closed(self, policy: Eviction) -> float | None:
        """The share that ``policy`` gains of what foresight would, over lru; None where that is little."""
        gap = self.num_optimal_hits - self.num_hits(Eviction.LRU)
        if gap < LEAST_GAP * self.num_blocks or gap <= 0:
            return None
        return (self.num_hits(policy) - self.num_hits(Eviction.LRU)) / gap


def measure(workload: Workload, capacity: int) -> Cell:
    """``workload`` at ``capacity``, under all policies."""
    num_blocks = capacity + 1  # and the null block
    served = [each for each in workload.requests if fits(each.num_tokens, workload.block_size, num_blocks)]
    return Cell(
        workload=workload.name,
        capacity=capacity,
        block_size=workload.block_size,
        num_requests=len(served),
        num_skipped=len(workload.requests) - len(served),
        num_blocks=sum(len(each.block_hashes) for each in served),
        num_tokens=sum(each.num_tokens for each in served),
        num_cached_tokens={policy: replay(workload, num_blocks, policy) for policy in Eviction},
        num_optimal_hits=optimal_hits([each.block_hashes for each in served], capacity),
    )


def measure_all(sources: Sequence[Source], capacities: Sequence[int], num_jobs: int) -> Iterator[Cell]:
    """Every source at every capacity, in their order, ``num_jobs`` cells at a time."""
    pairs = [(source, capacity) for source in sources for capacity in capacities]
    if num_jobs == 1:
        yield from (_measure(*pair) for pair in pairs)
        return
    # Spawned, as the caller may have threads, and one that shows the progress does.
    with ProcessPoolExecutor(num_jobs, get_context("spawn")) as processes:
        yield from processes.map(_measure, *zip(*pairs, strict=True))


def _measure(source: Source, capacity: int) -> Cell:
    return measure(_workload(source), capacity)


@lru_cache(maxsize=1)
def _workload(source: Source) -> Workload:
    """Made once by each process, for all capacities of it that come to it."""
    return source.workload()
