"""What a pool's blocks take of memory once all of them cache a hash: see `benchmarks.bench_pool`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.claims.figure import Figure
from benchmarks.claims.setting import Setting
from blockyard.core.config import Eviction

NAME, BYTES_BOUND, OBJECTS_BOUND = "memory", 150, 1.2
SCRIPT = Path(__file__).parents[1] / "bench_pool.py"


def measure(setting: Setting) -> Iterator[Figure]:
    """A pool's bytes, and what the collector has to look at: each pool in a process of its own."""
    num_blocks, num_few = setting.pick(1_000_000, 20_000), setting.pick(10_000, 2_000)
    setting.note(f"pools of {num_few:,} and {num_blocks:,} blocks")
    small, large = pool_figures(num_few), pool_figures(num_blocks)
    yield Figure(
        claim=NAME,
        what=f"{num_blocks:,} blocks, all cached, hashes of 32 bytes",
        value=large["bytes_a_block_full"],
        unit="bytes a block",
        bound=BYTES_BOUND,
        ours=f"{large['bytes_a_block_full'] * num_blocks / 2**20:,.0f} MiB",
        note=f"while it was filled, at most {large['bytes_a_block_peak']:.0f}",
    )
    figure = Figure(
        claim=NAME,
        what=f"objects for the garbage collector: {num_blocks:,} blocks beside {num_few:,}",
        bound=OBJECTS_BOUND,
    )
    counts = ([each["collector_objects"]] for each in (large, small))
    yield figure.measured(*counts, unit="objects")


def pool_figures(num_blocks: int, eviction: Eviction = Eviction.LRU) -> dict[str, Any]:
    options = ["--num-blocks", str(num_blocks), "--eviction", eviction]
    command = [sys.executable, str(SCRIPT), "--measure", *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures
