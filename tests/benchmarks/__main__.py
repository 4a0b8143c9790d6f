"""All that is claimed of blockyard's speed and size, measured side by side in one run, and reported.

python tests/benchmarks [--quick] [--only NAME ...] [--rounds N] [--json FILE] [--plot FILE] [--markdown FILE]

Nothing is held to a time here: the table says of each figure whether it is within its bound. Rows beside the
peer need a Python with vLLM, named by BLOCKYARD_PEER_PYTHON: see `beside/peer.py`.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Collection
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.beside.peer import Peer
from benchmarks.claims.claims import NAMES, measure
from benchmarks.claims.figure import Figure
from benchmarks.claims.setting import Setting
from benchmarks.report.machine import describe_machine
from benchmarks.report.table import cells, markdown, print_table

ROUNDS = 5

TABLE_WIDTH = 160
"""Where no terminal says otherwise."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python tests/benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="see that it runs; the figures mean little")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, help=f"of each side; {ROUNDS}, or 1 with --quick")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw each figure as a share of its bound")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    args = parser.parse_args(arguments)
    if args.plot and find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install 'blockyard[plot]'")
    return args


def command_of(args: argparse.Namespace) -> str:
    """What gives these figures again."""
    words = ["python", "tests/benchmarks"]
    words += ["--quick"] * args.quick
    words += ["--only", *args.only] if args.only else []
    words += ["--rounds", str(args.rounds)] if args.rounds else []
    return shlex.join(words)


def measured(names: Collection[str], peer: Peer, args: argparse.Namespace) -> list[Figure]:
    """All figures, while standard error tells how far it is."""
    figures = []
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    console = Console(stderr=True, soft_wrap=True)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting")
        setting = Setting(
            rounds=args.rounds or (1 if args.quick else ROUNDS),
            is_quick=args.quick,
            peer=peer,
            note=lambda text: progress.update(task, description=text),
        )
        for figure in measure(setting, names):
            figures.append(figure)
            claim, what, _, _, value, bound, verdict, _ = cells(figure)
            progress.console.print(f"{claim:<11} {value:>20} {bound:>20} {verdict:<8} {what}")
    return figures


def main() -> int:
    """Measure and report."""
    args = parse(sys.argv[1:])
    peer = Peer.found()
    figures = measured(args.only or NAMES, peer, args)
    machine = describe_machine(peer.version())
    print_table(figures, machine, Console(width=None if sys.stdout.isatty() else TABLE_WIDTH))
    if args.json:
        rows = [{**asdict(figure), "share": figure.share, "verdict": figure.verdict} for figure in figures]
        args.json.write_text(json.dumps({"machine": machine, "figures": rows}, indent=1) + "\n")
    if args.plot:
        from benchmarks.report.plot import save_plot  # noqa: PLC0415 - an extra

        save_plot(figures, args.plot, ", ".join(f"{name} {value}" for name, value in machine.items()))
    if args.markdown:
        args.markdown.write_text(markdown(figures, machine, command_of(args)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
