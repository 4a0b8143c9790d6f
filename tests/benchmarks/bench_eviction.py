"""What each eviction policy finds cached, beside lru and the optimum, on workloads of many kinds.

python tests/benchmarks/bench_eviction.py [--workloads NAME ...] [--trace FILE ...] [--capacities N ...]
    [--requests N] [--seed N] [--jobs N] [--json [FILE]] [--plot FILE] [--markdown FILE]

Every workload is replayed on a pool in process, as the recorded trace is: each request's input is allocated,
which publishes its blocks, and freed. The figures are counts, the same on every machine.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.laboratory.cell import CAPACITIES, Cell, measure_all
from benchmarks.laboratory.table import OTHERS, markdown, print_table
from benchmarks.laboratory.workloads import (
    KINDS,
    TRACE_BLOCK_SIZE,
    MadeSource,
    Source,
    TraceSource,
    recorded_trace,
)
from benchmarks.report.as_json import add_json_option, tell_as_json
from benchmarks.report.machine import num_cores
from blockyard.server.commands.replay.trace import TraceError

RECORDED = "recorded"
TABLE_WIDTH = 160
"""Where no terminal says otherwise."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = (RECORDED, *KINDS)
    parser.add_argument(
        "--workloads", nargs="*", choices=names, metavar="NAME", help=f"of {', '.join(names)}; all"
    )
    parser.add_argument("--trace", nargs="+", type=Path, default=[], metavar="FILE", help="others, recorded")
    parser.add_argument(
        "--trace-block-size", type=int, default=TRACE_BLOCK_SIZE, help="tokens of a hash id of these"
    )
    parser.add_argument(
        "--capacities", nargs="+", type=int, default=CAPACITIES, help="blocks, without the null block"
    )
    parser.add_argument("--requests", type=int, help="of each workload; as many as are worth a look")
    parser.add_argument("--seed", type=int, default=0, help="another makes other workloads")
    parser.add_argument("--jobs", type=int, default=num_cores(), help="replays at a time; one a core")
    add_json_option(parser)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the hit ratios over the capacities")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    args = parser.parse_args(arguments)
    if args.plot and find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install 'blockyard[plot]'")
    if not sources_of(args):
        parser.error("nothing to replay: the recorded trace is not there, and no other workload is named")
    return args


def sources_of(args: argparse.Namespace) -> list[Source]:
    """The workloads that are asked for; the recorded trace where it is there."""
    names = [RECORDED, *KINDS] if args.workloads is None else args.workloads
    recorded = recorded_trace()
    traces = [recorded] if RECORDED in names and recorded else []
    return [
        *(TraceSource(path=path, num_requests=args.requests) for path in traces),
        *(
            TraceSource(path=path, block_size=args.trace_block_size, num_requests=args.requests)
            for path in args.trace
        ),
        *(
            MadeSource(kind=name, seed=args.seed, num_requests=args.requests)
            for name in names
            if name != RECORDED
        ),
    ]


def measured(sources: Sequence[Source], capacities: Sequence[int], num_jobs: int) -> list[Cell]:
    """All cells, while standard error tells how far it is."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    cells = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("replaying", total=len(sources) * len(capacities))
        for cell in measure_all(sources, capacities, num_jobs):
            cells.append(cell)
            progress.update(task, advance=1, description=cell.workload)
    return cells


def main() -> int:
    """Measure and report."""
    args = parse(sys.argv[1:])
    try:
        cells = measured(sources_of(args), args.capacities, args.jobs)
    except TraceError as error:
        print(error, file=sys.stderr)
        return 1
    if args.plot:
        from benchmarks.laboratory.curves import save_curves  # noqa: PLC0415 - an extra

        save_curves(cells, args.plot)
    if args.markdown:
        words = ["python", "tests/benchmarks/bench_eviction.py", *sys.argv[1:]]
        args.markdown.write_text(markdown(cells, shlex.join(words)))
    if not tell_as_json(args.json, [row(cell) for cell in cells]):
        print_table(cells, Console(width=None if sys.stdout.isatty() else TABLE_WIDTH))
    return 0


def row(cell: Cell) -> dict[str, object]:
    """A cell for programs."""
    return {
        **asdict(cell),
        "against_lru": {policy: cell.against_lru(policy) for policy in OTHERS},
        "gap_closed": {policy: cell.gap_closed(policy) for policy in OTHERS},
    }


if __name__ == "__main__":
    sys.exit(main())
