"""What a large pool costs: to create, hold, audit, snapshot and restore.

python tests/benchmarks/bench_pool.py [--num-blocks N] [--eviction lru|adaptive] [--json]

Creation runs in a process of its own, so that the growth of its resident memory is the pool's alone. A full
pool is one whose every block caches a block hash of 32 bytes.
"""

import argparse
import gc
import json
import resource
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from blockyard.core.commands import Admission, Allocate, Commit, CreateLease, Free
from blockyard.core.config import Eviction, GroupConfig, PoolConfig
from blockyard.core.ids import LeaseId, SequenceId
from blockyard.core.pool import Pool

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.report.as_json import add_json_option, tell_as_json

BLOCK_SIZE, PROMPT_BLOCKS = 16, 1_000
LEASE = LeaseId("benchmark")


def make_config(num_blocks: int, eviction: Eviction) -> PoolConfig:
    return PoolConfig(
        num_blocks=num_blocks,
        groups=(GroupConfig(kind="full_attention", block_size=BLOCK_SIZE),),
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        eviction=eviction,
    )


def resident_bytes() -> int:
    """The memory that this process has now; where that is not told, the most that it has had."""
    gc.collect()
    pages = Path("/proc/self/statm")
    if pages.exists():
        return int(pages.read_text().split()[1]) * resource.getpagesize()
    return most_resident_bytes()


def most_resident_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fill(pool: Pool) -> None:
    """Have every block cache a hash: prompts are allocated, committed and freed until all are used."""
    pool.apply(CreateLease(lease_id=LEASE, holder="benchmark", ttl_ms=10**9), 0)
    for first in range(1, pool.config.num_blocks, PROMPT_BLOCKS):
        num_blocks = min(PROMPT_BLOCKS, pool.config.num_blocks - first)
        name, num_tokens = SequenceId(f"prompt-{first}"), num_blocks * BLOCK_SIZE
        hashes = [(first + number).to_bytes(32, "big") for number in range(num_blocks)]
        admission = Admission(sequence_id=name, num_tokens=num_tokens, block_hashes=hashes)
        pool.apply(Allocate(lease_id=LEASE, admission=admission), 0)
        pool.apply(Commit(lease_id=LEASE, sequence_id=name, num_computed_tokens=num_tokens), 0)
        pool.apply(Free(lease_id=LEASE, sequence_ids=[name]), 0)
    assert pool.store.num_cached_blocks == pool.config.num_blocks - 1


def measure(num_blocks: int, eviction: Eviction) -> dict[str, Any]:
    """Figures of a pool of ``num_blocks``; to be called once in a process."""
    before, num_objects = resident_bytes(), len(gc.get_objects())
    seconds: dict[str, float] = {}

    def timed(name: str, start: float) -> None:
        seconds[name] = perf_counter() - start

    start = perf_counter()
    pool = Pool(make_config(num_blocks, eviction))
    timed("create", start)
    empty = resident_bytes() - before
    fill(pool)
    peak = most_resident_bytes() - before
    full = resident_bytes() - before
    num_objects = len(gc.get_objects()) - num_objects
    start = perf_counter()
    assert pool.audit().ok
    timed("audit", start)
    start = perf_counter()
    snapshot = pool.snapshot()
    timed("snapshot", start)
    start = perf_counter()
    Pool.restore(snapshot)
    timed("restore", start)
    return {
        "num_blocks": num_blocks,
        "bytes_a_block_empty": round(empty / num_blocks, 1),
        "bytes_a_block_full": round(full / num_blocks, 1),
        "bytes_a_block_peak": round(peak / num_blocks, 1),
        "collector_objects": num_objects,
        **{f"{name}_ms": round(value * 1e3, 1) for name, value in seconds.items()},
    }


def main() -> int:
    """Print the figures as a table, or as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num-blocks", type=int, default=1_000_000)
    parser.add_argument("--eviction", type=Eviction, default=Eviction.LRU, choices=list(Eviction))
    add_json_option(parser)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.num_blocks, args.eviction)))
        return 0
    options = ["--num-blocks", str(args.num_blocks), "--eviction", args.eviction]
    command = [sys.executable, __file__, "--measure", *options]
    figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if tell_as_json(args.json, figures):
        return 0
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):<24}{value:>12,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
