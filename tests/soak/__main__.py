"""How a server does under hostile callers: ``python -m soak`` in ``tests``.

The exit status is 1 where something is lost, kept or wrong, or where the slowest hundredth of the calls of
others takes more than twice as long as in the calm.
"""

import dataclasses
import json
import secrets
import sys

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from soak.harness import WARM_UP_S, SoakPlan, SoakResult, soak

MAX_P99_RATIO = 2.0


@click.command(help=__doc__)
@click.option("--calm-s", default=60.0, help="How long the well-behaved are alone.", show_default=True)
@click.option("--hostile-s", default=540.0, help="How long the hostile are there, too.", show_default=True)
@click.option("--well-behaved", default=16, help="Callers that behave.", show_default=True)
@click.option("--hostile", default=48, help="Callers that do not.", show_default=True)
@click.option("--seed", type=int, help="Of what the hostile do; default: drawn.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    calm_s: float, hostile_s: float, well_behaved: int, hostile: int, seed: int | None, as_json: bool
) -> None:
    """Carry it out, and tell."""
    plan = SoakPlan(
        calm_s=calm_s,
        hostile_s=hostile_s,
        num_well_behaved=well_behaved,
        num_hostile=hostile,
        seed=secrets.randbelow(2**32) if seed is None else seed,
    )
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(f"seed {plan.seed}", total=WARM_UP_S + calm_s + hostile_s)
        result = soak(plan, lambda seconds: bar.update(task, completed=seconds))
    is_well = not result.faults and result.p99_ratio <= MAX_P99_RATIO
    if as_json:
        figures = {**dataclasses.asdict(result), "p99_ratio": result.p99_ratio}
        click.echo(json.dumps({"plan": dataclasses.asdict(plan), **figures, "is_well": is_well}))
    else:
        _print(result)
    sys.exit(not is_well)


def _print(result: SoakResult) -> None:
    for what, count in sorted(result.seen.items()):
        click.echo(f"{count:>9,} {what}")
    mebibytes = ", ".join(f"{size / 2**20:.1f}" for size in result.rss_bytes)
    click.echo(f"memory, MiB, end of the first half and tenths of the second: {mebibytes}")
    click.echo(f"calls in the calm, and beside the hostile: {result.num_calls[0]:,}, {result.num_calls[1]:,}")
    click.echo(
        f"their 99th percentile: {result.calm_p99_ms:.2f} ms, {result.hostile_p99_ms:.2f} ms: "
        f"{result.p99_ratio:.2f} times (at most {MAX_P99_RATIO})"
    )
    for fault in result.faults:
        click.echo(f"wrong: {fault}")


if __name__ == "__main__":
    main()
