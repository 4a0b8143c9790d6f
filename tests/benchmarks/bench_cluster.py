"""A cluster of two nodes: how fast one takes a large pool over from the other, and what two do beside one.

python tests/benchmarks/bench_cluster.py [--num-blocks 1000000] [--take-overs 3] [--seconds 3] [--rounds 3]
    [--nats 1] [--json]

Take-over: every block of a pool is cached, its standby has read all, and its owner is killed. Told is the
time from when the standby finds the owner dead, which is its lease's end, to when it owns the pool, by its
log; and that from the kill to the first answer.

Throughput: `allocate` and `free` of 16 blocks by turns over 16 connections to each of two pools, both of one
node, and then one of each node. Told is what processor time a call takes of whom: where all processors are at
work with one node already, two nodes cannot do more than they leave. A publish is of 1 KiB, at the expected
sequence.
"""

import argparse
import asyncio
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.cluster_load.publishing import publish_us
from benchmarks.cluster_load.sharing import Shared, shared_load
from benchmarks.cluster_load.taking_over import take_overs
from benchmarks.cluster_load.two_nodes import TwoNodes
from benchmarks.report.as_json import add_json_option, tell_as_json


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num-blocks", type=int, default=1_000_000, help="of the pool that is taken over")
    parser.add_argument("--take-overs", type=int, default=3, help="how often")
    parser.add_argument("--seconds", type=float, default=3, help="of load in a turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of one node and of two")
    parser.add_argument("--nats", type=int, default=1, help="NATS servers, and replicas: 1 or 3")
    add_json_option(parser)
    return parser.parse_args(arguments)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="blockyard-")))
        cluster = stack.enter_context(TwoNodes(folder, args.nats))
        publishes = asyncio.run(publish_us(cluster.nats.urls, args.nats))
        shares = [shared_load(cluster, args.seconds) for _ in range(args.rounds)]
        taken = take_overs(cluster, args.num_blocks, args.take_overs)
    one, two = ([share[number] for share in shares] for number in range(2))
    num_cores = len(os.sched_getaffinity(0))
    return {
        "num_cores": num_cores,
        "most_calls_a_second": num_cores * 1e6 / median(share.total_us for share in two),
        "take_over_ms": median(each.after_lease_ms for each in taken),
        "take_over_most_ms": max(each.after_lease_ms for each in taken),
        "killed_to_answer_ms": median(each.after_kill_ms for each in taken),
        "publish_us": publishes[0],
        "publish_p99_us": publishes[1],
        "one_node": summed(one),
        "two_nodes": summed(two),
        "two_beside_one": median(
            after.calls_a_second / before.calls_a_second for before, after in zip(one, two, strict=True)
        ),
    }


def summed(shares: list[Shared]) -> dict[str, float]:
    """Medians of rounds."""
    return {
        "calls_a_second": median(share.calls_a_second for share in shares),
        "cores_busy": median(share.cores_busy for share in shares),
        "nodes_us_a_call": median(share.nodes_us for share in shares),
        "nats_us_a_call": median(share.nats_us for share in shares),
        "clients_us_a_call": median(share.clients_us for share in shares),
    }


def print_figures(figures: dict[str, Any], num_blocks: int) -> None:
    print(f"take-over of {num_blocks:,} blocks, after the lease's end: {figures['take_over_ms']:,.0f} ms")
    print(f"  from the owner's death to the first answer:  {figures['killed_to_answer_ms']:,.0f} ms")
    print(f"publish: {figures['publish_us']:,.0f} µs (median), {figures['publish_p99_us']:,.0f} µs (99 %)")
    for name, words in (("one_node", "two pools of one node"), ("two_nodes", "a pool of each of two nodes")):
        share = figures[name]
        print(
            f"{words}: {share['calls_a_second']:,.0f} calls/s; {share['cores_busy']:.2f} of "
            f"{figures['num_cores']} processors at work; a call takes {share['nodes_us_a_call']:.0f} µs "
            f"of the nodes, {share['nats_us_a_call']:.0f} of NATS, "
            f"{share['clients_us_a_call']:.0f} of the clients"
        )
    print(
        f"two nodes beside one: {figures['two_beside_one']:.2f} x; all processors together do at most "
        f"{figures['most_calls_a_second']:,.0f} calls/s"
    )


def main() -> int:
    """Measure and print."""
    args = parse(sys.argv[1:])
    figures = measure(args)
    if not tell_as_json(args.json, figures):
        print_figures(figures, args.num_blocks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
