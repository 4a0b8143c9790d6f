"""How long `blockyard serve` takes to get ready, and what one small call costs.

python tests/benchmarks/bench_server.py [--starts N] [--calls N] [--json]

Ready means that its ready line was read, from the start of the process on. A call is `allocate` and then
`free` of 16 blocks, one at a time over one kept connection of the client; beside it, in turns, a GET of
/healthz over the same kind of connection, which does nothing.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from blockyard.client import Client

sys.path.insert(0, str(Path(__file__).parents[1]))

from server_process import running_server

NUM_TOKENS, BLOCK_SIZE = 256, 16


def start_seconds() -> float:
    start = perf_counter()
    with running_server("--log-level", "error"):
        return perf_counter() - start


def call_microseconds(num_calls: int) -> dict[str, float]:
    """Median time of an allocate, a free and a call that does nothing."""
    times: dict[str, list[float]] = {"allocate": [], "free": [], "healthz": []}
    with (
        running_server("--log-level", "error") as server,
        Client(server.url) as client,
    ):
        client.create_pool("benchmark", num_blocks=10_000, block_size=BLOCK_SIZE)
        with client.pool("benchmark").lease("benchmark", 60_000) as lease:
            for _ in range(num_calls):
                marks = [perf_counter()]
                lease.allocate("sequence", NUM_TOKENS)
                marks.append(perf_counter())
                lease.free(["sequence"])
                marks.append(perf_counter())
                client.health()
                marks.append(perf_counter())
                for name, before, after in zip(times, marks, marks[1:], strict=False):
                    times[name].append(after - before)
    return {f"{name}_us": round(median(values) * 1e6, 1) for name, values in times.items()}


def main() -> int:
    """Print the figures as a table, or as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--calls", type=int, default=3_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures: dict[str, Any] = {
        "ready_s": round(median(start_seconds() for _ in range(args.starts)), 3),
        **call_microseconds(args.calls),
    }
    if args.json:
        print(json.dumps(figures))
        return 0
    for name, value in figures.items():
        print(f"{name:<16}{value:>10,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
