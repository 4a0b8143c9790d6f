"""The command: starts a server if it is given none, serves, compares, and prints what happened."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from blockyard.core.errors import BlockyardError
from blockyard.planning.layouts import Layout
from blockyard.server.commands.replay.own_server import OwnServer
from blockyard.server.commands.root import SETTINGS
from blockyard.server.commands.table import print_facts, print_rows
from examples.two_processes import reports
from examples.two_processes.comparison import TOLERANCE, largest_difference
from examples.two_processes.launcher import serve
from examples.two_processes.model import Transformer
from examples.two_processes.model_config import MODELS
from examples.two_processes.refusals import device_here, refuse_impossible_plan, server_url
from examples.two_processes.settings import Settings

ROWS = (
    ("requests", "num_requests"),
    ("prompt tokens", "num_prompt_tokens"),
    ("of these cached", "num_cached_tokens"),
    ("output tokens", "num_output_tokens"),
    ("steps", "num_steps"),
    ("preemptions", "num_preemptions"),
    ("evicted blocks", "num_evicted_blocks"),
    ("copied blocks", "num_copied_blocks"),
)
"""Of the table: a name, and the attribute of `reports.Round`."""

DEFAULTS = Settings()
COUNT = click.IntRange(min=1)


@click.command("two_processes", context_settings=SETTINGS)
@click.option(
    "--url", callback=server_url, help="A server that runs.  [default: one of its own, on a free port]"
)
@click.option("--model", type=click.Choice(list(MODELS)), default=DEFAULTS.model, help="Which layers it has.")
@click.option(
    "--layout", type=click.Choice([*Layout]), default=DEFAULTS.layout, help="Of the worker's memory."
)
@click.option("--device", callback=device_here, default=DEFAULTS.device, help="Where the worker computes.")
@click.option("--num-requests", type=COUNT, default=DEFAULTS.num_requests, help="To serve in a round.")
@click.option(
    "--num-rounds", type=COUNT, default=DEFAULTS.num_rounds, help="How often the same requests are sent."
)
@click.option(
    "--num-blocks",
    type=click.IntRange(min=2),
    default=DEFAULTS.num_blocks,
    help="Of the pool, the null block included.",
)
@click.option(
    "--max-num-sequences", type=COUNT, default=DEFAULTS.max_num_sequences, help="That run at a time."
)
@click.option(
    "--max-num-batched-tokens",
    type=COUNT,
    default=DEFAULTS.max_num_batched_tokens,
    help="That one step computes.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=DEFAULTS.seed, help="Of weights and requests."
)
@click.option("--kill-worker-at-step", type=COUNT, help="Kill the worker process, to see it come back.")
@click.option(
    "--swap-blocks-at-step",
    type=COUNT,
    help="Have two sequences read each other's block, to see that it is noticed.",
)
def main(url: str | None, **options: object) -> None:
    """Serve a small transformer in two processes: a scheduler without tensors, a worker without plans.

    The scheduler process asks a blockyard server for blocks, with continuous batching, chunked prefill,
    preemption and prefix reuse; the worker process is told token ids and block ids. In the end every logit
    is compared with those of the same model on an ordinary contiguous cache. The exit status is 1 where they
    differ, and where a fault that was asked for did not come about.

    The models are random: `windows` has full and sliding-window attention, `hybrid` linear attention as
    well, and `recurrent` full and linear attention.

    \b
        python -m examples.two_processes
        python -m examples.two_processes --model hybrid --kill-worker-at-step 40
        python -m examples.two_processes --swap-blocks-at-step 40
    """  # noqa: D301 - \b keeps click from filling the example
    settings = Settings(**options)  # type: ignore[arg-type] # click has checked each under its name
    refuse_impossible_plan(settings)
    signal.signal(signal.SIGTERM, _interrupt)
    with _server(url) as ready_url, _progress_bar(settings) as on_progress:
        try:
            report = serve(ready_url, settings, on_progress)
        except (BlockyardError, RuntimeError) as error:
            raise click.ClickException(str(error)) from error
    model = Transformer(settings.model_config, settings.seed)
    difference = largest_difference(model, (f for each in report.rounds for f in each.finished))
    _print(settings, report, difference)
    _refuse_absent_faults(settings, report)
    sys.exit(difference > TOLERANCE)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Clean up as after Ctrl-C, once: ``timeout`` sends its signal to the process, and then to its group."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def _server(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with OwnServer() as server:
        yield server.wait_until_ready()


@contextmanager
def _progress_bar(settings: Settings) -> Iterator[Callable[[reports.Progress], None]]:
    """On standard error, where somebody watches."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("starting", total=settings.num_requests * settings.num_rounds)
        yield lambda done: progress.update(
            bar, completed=done.num_finished, description=f"step {done.num_steps}"
        )


def _print(settings: Settings, report: reports.Report, difference: float) -> None:
    rounds = report.rounds
    title = f"model {settings.model}, {settings.num_blocks} blocks, layout {settings.layout}\n"
    click.echo(title)
    print_rows(
        ["", *(f"round {number}" for number in range(1, len(rounds) + 1))],
        [[name, *(f"{getattr(each, attribute):,}" for each in rounds)] for name, attribute in ROWS],
    )
    verdict = "as they should be" if difference <= TOLERANCE else f"WRONG: over {TOLERANCE:.0e}"
    print_facts(
        "logits beside those of a contiguous cache: " + verdict,
        [
            ("largest difference", f"{difference:.1e}"),
            ("workers lost", str(report.num_lost_workers)),
            ("faults planted", str(int(report.was_fault_planted))),
        ],
    )


def _refuse_absent_faults(settings: Settings, report: reports.Report) -> None:
    """A run without the fault that was asked for shows nothing of it.

    Raises:
        click.ClickException: It is one.
    """
    num_steps = sum(each.num_steps for each in report.rounds)
    if settings.kill_worker_at_step is not None and not report.num_lost_workers:
        raise click.ClickException(f"--kill-worker-at-step: no worker was lost in {num_steps} steps")
    if settings.swap_blocks_at_step is not None and not report.was_fault_planted:
        raise click.ClickException(f"--swap-blocks-at-step: no blocks were swapped in {num_steps} steps")
