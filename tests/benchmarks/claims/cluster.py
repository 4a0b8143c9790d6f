"""A cluster's figures: how fast a large pool is taken over, and what two nodes do beside one.

See `benchmarks.bench_cluster`. Nodes, NATS servers and clients share this machine's processors: two nodes do
as much more as these have left, and the note says how much that is.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.claims.figure import Figure, with_unit
from benchmarks.claims.setting import Setting

NAME, TAKE_OVER_BOUND_MS, SCALE_BOUND = "cluster", 2_000.0, 1.8
SCRIPT = Path(__file__).parents[1] / "bench_cluster.py"


def measure(setting: Setting) -> Iterator[Figure]:
    """All rows, of one run."""
    num_blocks, seconds = setting.pick(1_000_000, 2_000), setting.pick(3, 1)
    setting.note(f"a cluster, and a pool of {num_blocks:,} blocks")
    words = ["--num-blocks", num_blocks, "--take-overs", setting.rounds, "--seconds", seconds]
    command = [sys.executable, SCRIPT, *words, "--rounds", setting.rounds, "--json"]
    done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    one, two = figures["one_node"], figures["two_nodes"]
    yield Figure(
        claim=NAME,
        what=f"take-over of {num_blocks:,} blocks after the lease's end",
        value=figures["take_over_ms"],
        bound=TAKE_OVER_BOUND_MS,
        unit="ms",
        ours=with_unit(figures["take_over_ms"], "ms"),
        note=f"from the owner's death to the first answer {figures['killed_to_answer_ms']:,.0f} ms",
    )
    yield Figure(
        claim=NAME,
        what="two nodes with a pool each beside one with two",
        value=figures["two_beside_one"],
        bound=SCALE_BOUND,
        is_floor=True,
        ours=with_unit(two["calls_a_second"], "/s"),
        beside=with_unit(one["calls_a_second"], "/s"),
        note=(
            f"{two['cores_busy']:.2f} and {one['cores_busy']:.2f} of {figures['num_cores']} processors busy; "
            f"a call takes {two['nodes_us_a_call']:.0f} µs of nodes, {two['nats_us_a_call']:.0f} of NATS, "
            f"{two['clients_us_a_call']:.0f} of clients: at most {figures['most_calls_a_second']:,.0f}/s here"
        ),
    )
    yield Figure(
        claim=NAME,
        what="a publish of 1 KiB, one replica",
        value=figures["publish_us"],
        unit="µs",
        ours=with_unit(figures["publish_us"], "µs"),
        note=f"99th percentile {figures['publish_p99_us']:,.0f} µs",
    )
