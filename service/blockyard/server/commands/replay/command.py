"""``blockyard replay``: one command that shows the whole, from a server's start to a hit rate."""

import signal
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from blockyard.server.commands.replay.drive import Drive
from blockyard.server.commands.replay.own_server import OwnServer
from blockyard.server.commands.replay.request import Request
from blockyard.server.commands.replay.trace import TraceError, TraceFile
from blockyard.server.commands.replay.workload import Workload

if TYPE_CHECKING:
    from blockyard.server.commands.replay.tally import Outcome

TRACE_BLOCK_SIZE = 512
STEP_SEQUENCES = 32
DEFAULT_WORKLOAD = Workload()


def _default(text: str) -> dict[str, Any]:
    """Of an option whose default depends on others: None, told as ``text``."""
    return {"default": None, "show_default": text}


COUNT = click.IntRange(1, 100_000)
TRACE_OPTIONS = ("limit", "trace_block_size")
WORKLOAD_OPTIONS = ("requests", "users", "system_prompts", "seed")


@click.command("replay")
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option(
    "--num-blocks",
    type=click.IntRange(min=2),
    default=10_001,
    help="Blocks of the pool, the null block included.",
)
@click.option(
    "--block-size",
    type=click.IntRange(min=1),
    help="Tokens a block.",
    **_default(f"that of TRACE, else {DEFAULT_WORKLOAD.block_size}"),
)
@click.option("--url", help="A server that runs.", **_default("one of its own, on a free port"))
@click.option("--pool", help="Name of the pool to make.", **_default("one not in use"))
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    help="Sequences in flight at a time, each on a connection of its own.",
    **_default(f"1, or {STEP_SEQUENCES} with --steps"),
)
@click.option(
    "--steps", is_flag=True, help="One call for --concurrency requests: free the last, admit the next."
)
@click.option("--limit", type=COUNT, help="Replay only the first requests of TRACE.")
@click.option(
    "--trace-block-size",
    type=COUNT,
    default=TRACE_BLOCK_SIZE,
    help="Tokens that a hash id of TRACE stands for.",
)
@click.option("--requests", type=COUNT, default=DEFAULT_WORKLOAD.num_requests, help="How many to make.")
@click.option("--users", type=COUNT, default=DEFAULT_WORKLOAD.num_users, help="How many make them.")
@click.option(
    "--system-prompts",
    type=COUNT,
    default=DEFAULT_WORKLOAD.num_system_prompts,
    help="How many they share.",
)
@click.option("--seed", type=int, default=DEFAULT_WORKLOAD.seed, help="Another makes other requests.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
def command(url: str | None, as_json: bool, **options: Any) -> None:
    """Replay requests on a pool of blocks, and print how much of them was found cached.

    The requests are those of TRACE, or else of a chat workload that is made from --requests, --users,
    --system-prompts and --seed.

    One after the other, a request's input tokens are allocated, which publishes its blocks, and freed. One
    for which too few blocks are free is counted as refused. The pool is made for the replay and deleted after
    it; so is the server, unless --url names one.

    TRACE has one JSON object a line with input_length and hash_ids, as public traces do.

    \b
        blockyard replay
        blockyard replay --num-blocks 2001 --concurrency 8
        blockyard replay trace.jsonl --num-blocks 10001 --block-size 512 --json
        blockyard replay trace.jsonl --steps --url http://127.0.0.1:8484
    """  # noqa: D301 - \b keeps click from filling the example
    context = click.get_current_context()
    path: Path | None = options["trace"]
    for name in TRACE_OPTIONS if path is None else WORKLOAD_OPTIONS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} goes {'only with' if path is None else 'without'} a TRACE")
    source = _workload(options) if path is None else _trace_file(path, options)
    drive = Drive(
        num_blocks=options["num_blocks"],
        block_size=source.block_size,
        concurrency=options["concurrency"] or (STEP_SEQUENCES if options["steps"] else 1),
        steps=options["steps"],
        pool=options["pool"],
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to clean up as after Ctrl-C
    with ExitStack() as stack:
        server = None if url else stack.enter_context(OwnServer())  # starts while the requests are made
        requests = _requests(source, options["limit"])
        outcome = _replay(requests, drive, url or (server and server.wait_until_ready()) or "")
    _print(outcome, source, drive, as_json=as_json)


def _workload(options: dict[str, Any]) -> Workload:
    return Workload(
        num_requests=options["requests"],
        num_users=options["users"],
        num_system_prompts=options["system_prompts"],
        block_size=options["block_size"] or DEFAULT_WORKLOAD.block_size,
        seed=options["seed"],
    )


def _trace_file(path: Path, options: dict[str, Any]) -> TraceFile:
    id_block_size: int = options["trace_block_size"]
    try:
        return TraceFile(
            path=path, id_block_size=id_block_size, block_size=options["block_size"] or id_block_size
        )
    except TraceError as error:
        raise click.UsageError(str(error)) from error


def _requests(source: TraceFile | Workload, limit: int | None) -> list[Request]:
    try:
        requests = list(source.requests() if isinstance(source, Workload) else source.read(limit))
    except TraceError as error:
        raise click.ClickException(str(error)) from error
    if not requests:
        raise click.ClickException("the trace is empty: there is nothing to replay")
    return requests


def _replay(requests: list[Request], drive: Drive, url: str) -> "Outcome":
    """Put ``requests`` to a new pool of the server at ``url``.

    Raises:
        click.ClickException: The server does not answer, refuses, or its pool does not add up afterwards.
    """
    # Imported while the server starts.
    from blockyard.client.retry import RetryPolicy  # noqa: PLC0415
    from blockyard.server.commands.connection import connected  # noqa: PLC0415
    from blockyard.server.commands.replay.own_pool import own_pool  # noqa: PLC0415
    from blockyard.server.commands.replay.progress import progress_bar  # noqa: PLC0415
    from blockyard.server.commands.replay.tally import Tally  # noqa: PLC0415

    with (
        connected(url, RetryPolicy()) as client,
        own_pool(client, drive.pool, drive.num_blocks, drive.block_size) as pool,
    ):
        with progress_bar(len(requests)) as on_progress:
            tally = Tally(requests, on_progress)
            started_s = time.perf_counter()
            drive.driver(url)(pool, requests, tally)
            seconds = time.perf_counter() - started_s
        audit = pool.audit()
        if not audit.ok or audit.num_held_blocks:
            raise click.ClickException(
                f"the pool does not add up: {audit.num_held_blocks} blocks held, {'; '.join(audit.problems)}"
            )
    return tally.outcome(seconds)


def _print(outcome: "Outcome", source: TraceFile | Workload, drive: Drive, *, as_json: bool) -> None:
    if as_json:
        from blockyard.server.commands.connection import print_json  # noqa: PLC0415 - not for a --help

        named = {"workload": asdict(source)} if isinstance(source, Workload) else {"trace": str(source.path)}
        print_json({**named, **asdict(drive), **asdict(outcome)})
        return
    from blockyard.server.commands.replay.report import print_report  # noqa: PLC0415 - imports a plotter

    name = f"a chat workload (seed {source.seed})" if isinstance(source, Workload) else source.path.name
    print_report(f"{name} on {drive}", outcome, "step" if drive.steps else "allocate")
