"""``blockyard replay``: one command that shows the whole, from a server's start to a hit rate."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from blockyard.core.config import Eviction
from blockyard.server.commands.reach import Reach, access_options
from blockyard.server.commands.replay.options import ReplayOptions
from blockyard.server.commands.replay.own_server import OwnServer
from blockyard.server.commands.replay.request import Request
from blockyard.server.commands.replay.trace import TraceError, TraceFile
from blockyard.server.commands.replay.workload import Workload

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
@click.option(
    "--eviction",
    type=click.Choice([policy.value for policy in Eviction]),
    default=Eviction.LRU.value,
    help="Which of the pool's free blocks lose their content first.",
)
@click.option("--url", help="A server that runs.", **_default("one of its own, on a free port"))
@access_options
@click.option("--pool", help="Name of the pool to make.", **_default("one not in use"))
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    help="Sequences in flight at a time, each under a lease of its own unless --steps.",
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
def command(  # noqa: PLR0913 - click hands over each option under its name
    *,
    trace: Path | None,
    num_blocks: int,
    block_size: int | None,
    eviction: str,
    server: Reach | None,
    pool: str | None,
    concurrency: int | None,
    steps: bool,
    limit: int | None,
    trace_block_size: int,
    requests: int,
    users: int,
    system_prompts: int,
    seed: int,
    as_json: bool,
) -> None:
    """Replay requests on a pool of blocks, and print how much of them was found cached.

    The requests are those of TRACE, or else of a chat workload that is made from --requests, --users,
    --system-prompts and --seed.

    One after the other, a request's input tokens are allocated, which publishes its blocks, and freed. One
    for which too few blocks are free is counted as refused. The pool is made for the replay and deleted after
    it; so is the server, unless --url names one.

    TRACE has one JSON object a line with input_length and hash_ids, as public traces do.

    \b
        blockyard replay
        blockyard replay --num-blocks 2001 --eviction adaptive
        blockyard replay --num-blocks 2001 --concurrency 8
        blockyard replay trace.jsonl --num-blocks 10001 --block-size 512 --json
        blockyard replay trace.jsonl --steps --url http://127.0.0.1:8484
    """  # noqa: D301 - \b keeps click from filling the example
    _refuse_options_of_the_other_source(is_trace=trace is not None)
    source: TraceFile | Workload
    if trace is None:
        source = Workload(
            num_requests=requests,
            num_users=users,
            num_system_prompts=system_prompts,
            block_size=block_size or DEFAULT_WORKLOAD.block_size,
            seed=seed,
        )
    else:
        source = _trace_file(trace, trace_block_size, block_size or trace_block_size)
    options = ReplayOptions(
        num_blocks=num_blocks,
        block_size=source.block_size,
        eviction=Eviction(eviction),
        concurrency=concurrency or (STEP_SEQUENCES if steps else 1),
        steps=steps,
        pool=pool,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to clean up as after Ctrl-C
    with _server(server) as wait_until_ready:  # our own one starts while the requests are made
        to_replay = _requests(source, limit)
        # Half a second, gone by the time that the server is ready.
        from blockyard.server.commands.replay.run import print_outcome, replay  # noqa: PLC0415

        outcome = replay(to_replay, options, wait_until_ready())
    print_outcome(outcome, source, options, as_json=as_json)


def _refuse_options_of_the_other_source(*, is_trace: bool) -> None:
    context = click.get_current_context()
    for name in WORKLOAD_OPTIONS if is_trace else TRACE_OPTIONS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} goes {'without' if is_trace else 'only with'} a TRACE")


@contextmanager
def _server(named: Reach | None) -> Iterator[Callable[[], Reach]]:
    """What gives a server that is ready: the one that is ``named``, or else one of our own for the while."""
    if named is not None:
        yield lambda: named
        return
    with OwnServer() as server:
        yield lambda: Reach(url=server.wait_until_ready())


def _trace_file(path: Path, id_block_size: int, block_size: int) -> TraceFile:
    try:
        return TraceFile(path=path, id_block_size=id_block_size, block_size=block_size)
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
