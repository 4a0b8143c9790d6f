"""The long run: a cluster of real processes under clients at full speed, and faults done to it.

python -m cluster [--faults 50] [--seed N] [--only KIND ...] [--folder FOLDER] [--json]     (from tests/)

It ends with 1 where anything is not as a client was told, and then leaves what was logged in the folder.
"""

import argparse
import json
import secrets
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cluster.faults import Fault, Struck
from cluster.run import ClusterRun

KINDS = {fault.name.lower(): fault for fault in Fault}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=50, help="how many (50)")
    parser.add_argument("--seed", type=int, default=None, help="what they are drawn from")
    parser.add_argument("--only", nargs="+", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--folder", type=Path, help="where logs go; a new one of the system's by default")
    parser.add_argument("--json", action="store_true", help="one object with all figures")
    return parser.parse_args(arguments)


def main() -> int:
    """Run and report."""
    args = parse(sys.argv[1:])
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    folder = args.folder or Path(tempfile.mkdtemp(prefix="blockyard-cluster-"))
    folder.mkdir(parents=True, exist_ok=True)
    kinds = [KINDS[name] for name in args.only or KINDS]
    for kind in kinds:
        if not kind.is_possible:
            print(f"not tried, as this machine lacks what it takes: {kind}", file=sys.stderr)
    run = ClusterRun(folder, seed=seed, kinds=kinds)
    console = Console(stderr=True)
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=args.faults)

        def note(struck: Struck) -> None:
            told = f"{struck.fault} ({struck.whom})"
            progress.update(task, advance=1, description=told)
            if not console.is_terminal:
                print(told, file=sys.stderr, flush=True)

        try:
            run.run(args.faults, note)
        except AssertionError as error:
            print(f"seed {seed}, logs in {folder}: {error}", file=sys.stderr)
            return 1
    if args.json:
        print(json.dumps(run.figures.as_json(), indent=1))
    else:
        print("\n".join(run.figures.lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
