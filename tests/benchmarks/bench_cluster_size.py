"""What a large cluster comes to: pools that move where a node is lost, messages, bytes and memory.

python tests/benchmarks/bench_cluster_size.py [--nodes 100] [--pools 1000] [--num-blocks 1000000] [--json]
    [--steps-a-second 20] [--sequences 64] [--admitted-a-step 0.1] [--replicas 3] [--lease-ms 2000]

A calculation, not a measurement: placement by the real function, sizes of what is really encoded, rates from
the settings, and the memory of a block as it is measured on a smaller pool.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.claims.memory import pool_figures
from benchmarks.cluster_size.moves import figures_of_moves
from benchmarks.cluster_size.traffic import (
    Cluster,
    Rate,
    Workload,
    batches,
    heartbeat_bytes,
    heartbeats,
    idle,
    step_bytes,
)
from benchmarks.report.as_json import add_json_option, tell_as_json

MEASURED_BLOCKS = 100_000
PROCESS_MIB = 100
"""Of a node before its first pool, about."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=100, help="three at least")
    parser.add_argument("--pools", type=int, default=1_000)
    parser.add_argument("--num-blocks", type=int, default=1_000_000, help="of a pool")
    parser.add_argument("--steps-a-second", type=float, default=20, help="of a pool's engine")
    parser.add_argument("--sequences", type=int, default=64, help="in a step")
    parser.add_argument("--admitted-a-step", type=float, default=0.1, help="prompts of 2,000 tokens")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--lease-ms", type=int, default=2_000)
    add_json_option(parser)
    return parser.parse_args(arguments)


def calculate(args: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    cluster = Cluster(
        num_nodes=args.nodes, num_pools=args.pools, num_replicas=args.replicas, lease_ms=args.lease_ms
    )
    work = Workload(
        steps_a_second=args.steps_a_second,
        num_sequences=args.sequences,
        admitted_a_step=args.admitted_a_step,
    )
    moves = figures_of_moves(args.nodes, args.pools)
    block_bytes = pool_figures(min(MEASURED_BLOCKS, args.num_blocks))["bytes_a_block_full"]
    pool_mib = block_bytes * args.num_blocks / 2**20
    traffic = {"heartbeats": heartbeats(cluster), "batches": batches(cluster, work), "idle": idle(cluster)}
    return {
        "moves": moves,
        "heartbeat_bytes": heartbeat_bytes(),
        "step_bytes": step_bytes(work),
        "traffic": {
            f"{what}, {how}": {"messages_a_second": rate.messages, "bytes_a_second": rate.num_bytes}
            for what, rates in traffic.items()
            for how, rate in rates.items()
        },
        "pool_mib": pool_mib,
        "node_mib_mean": PROCESS_MIB + 2 * moves["owned_mean"] * pool_mib,
        "node_mib_most": PROCESS_MIB + moves["held_most"] * pool_mib,
    }


def print_tables(args: argparse.Namespace, figures: dict[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 110)
    moves = figures["moves"]
    what = f"{args.nodes} nodes, {args.pools:,} pools of {args.num_blocks:,} blocks"
    table = Table(title=what, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for words, value in (
        ("pools that a node owns, on average", f"{moves['owned_mean']:.1f}"),
        ("at most", f"{moves['owned_most']:,}"),
        ("pools that move where a node is lost, on average", f"{moves['moved_mean']:.1f}"),
        ("at most", f"{moves['moved_most']:,}"),
        ("pools that move though their owner lives", f"{moves['moved_needlessly']:,}"),
        ("share of moves to a node that followed the pool", f"{moves['moved_to_warm_share']:.0%}"),
        ("most pools that one node takes over", f"{moves['taken_over_by_one_most']:,}"),
        ("pools that a new standby reads, on average", f"{moves['read_anew_mean']:.1f}"),
        ("memory of a pool, all of its blocks cached", f"{figures['pool_mib']:,.0f} MiB"),
        (
            "memory of a node, owned and followed pools, on average",
            f"{figures['node_mib_mean'] / 1024:,.1f} GiB",
        ),
        ("at most", f"{figures['node_mib_most'] / 1024:,.1f} GiB"),
        ("a heartbeat", f"{figures['heartbeat_bytes']:,} bytes"),
        (f"a step of {args.sequences} sequences", f"{figures['step_bytes']:,} bytes"),
    ):
        table.add_row(words, value)
    console.print(table)
    rates = Table("in NATS", title="in a second, over all NATS servers", title_justify="left")
    rates.add_column("messages", justify="right")
    rates.add_column("MB", justify="right")
    total = Rate(messages=0, num_bytes=0)
    for name, rate in figures["traffic"].items():
        rates.add_row(name, f"{rate['messages_a_second']:,.0f}", f"{rate['bytes_a_second'] / 1e6:,.2f}")
        total += Rate(messages=rate["messages_a_second"], num_bytes=rate["bytes_a_second"])
    rates.add_section()
    rates.add_row("together", f"{total.messages:,.0f}", f"{total.num_bytes / 1e6:,.2f}")
    console.print(rates)


def main() -> int:
    """Calculate and print."""
    args = parse(sys.argv[1:])
    figures = calculate(args)
    if not tell_as_json(args.json, figures):
        print_tables(args, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
