"""How long `blockyard serve` takes to get ready.

python tests/benchmarks/bench_server.py [--starts N] [--json]

Ready means that its ready line was read, from the start of the process on. The figure is the median. What a
call costs is among the claims: see `__main__.py`.
"""

import argparse
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.report.as_json import add_json_option, tell_as_json
from server_process import running_server


def start_seconds() -> float:
    start = perf_counter()
    with running_server("--log-level", "error"):
        return perf_counter() - start


def main() -> int:
    """Print the figures as a table, or as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=7)
    add_json_option(parser)
    args = parser.parse_args()
    figures = {"ready_s": round(median(start_seconds() for _ in range(args.starts)), 3)}
    if tell_as_json(args.json, figures):
        return 0
    for name, value in figures.items():
        print(f"{name:<16}{value:>10,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
