"""``blockyard cluster try``: a whole cluster on this machine, until Ctrl-C."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import click

from blockyard.server.commands.cluster.what_to_try import describe, what_to_try, why_it_ended
from blockyard.server.commands.json_output import json_option, print_json
from blockyard.server.commands.listening import listening_sockets
from blockyard.server.trial.nats_binary import NatsMissingError, find_nats_server
from blockyard.server.trial.nats_servers import NatsFailedError
from blockyard.server.trial.node_process import NodeFailedError
from blockyard.server.trial.places import LOOPBACK, free_ports
from blockyard.server.trial.trial import Trial

LOOK_EVERY_S = 0.2
_MAX_NODES = 16
_MAX_NATS_SERVERS = 5


@click.command("try")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535 - _MAX_NODES),
    default=8484,
    help="Of the first node; the others have those that follow. 0 takes free ones.",
)
@click.option("--nodes", "num_nodes", type=click.IntRange(1, _MAX_NODES), default=3, help="So many nodes.")
@click.option(
    "--nats",
    "num_nats_servers",
    type=click.IntRange(1, _MAX_NATS_SERVERS),
    default=3,
    help="So many NATS servers; of 3, one may be lost.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="What it keeps, and goes on from when it is tried again. Default: one that goes with the trial.",
)
@json_option
def try_out(port: int, num_nodes: int, num_nats_servers: int, folder: Path | None, as_json: bool) -> None:
    """Start NATS servers and nodes on this machine, and stop them all at Ctrl-C.

    For trying a cluster out: with --dir, pools outlast the trial. It takes the extra 'trial'.

    \b
        pip install 'blockyard[trial]'
        blockyard cluster try
        blockyard cluster try --port 0 --json
    """  # noqa: D301 - \b keeps click from filling the example
    _check_packages()
    ports = free_ports(num_nodes) if port == 0 else _check_ports(list(range(port, port + num_nodes)))
    with ExitStack() as ending:
        ending.enter_context(_ended_by_signals())
        if folder is None:
            folder = Path(ending.enter_context(TemporaryDirectory(prefix="blockyard-trial-")))
        _check_folder(folder, num_nats_servers)
        trial = ending.enter_context(Trial(folder, ports, num_nats_servers))
        try:
            trial.start(_say)
        except (NatsFailedError, NodeFailedError) as error:
            raise click.ClickException(str(error)) from error
        if as_json:
            print_json(describe(trial, folder))
        else:
            click.echo(what_to_try(trial, folder))
        try:
            _follow(trial)
        except KeyboardInterrupt:
            _say("\nstopping: the nodes first, then NATS")
            return
    raise click.ClickException("no node is left")


def _follow(trial: Trial) -> None:
    """Say of each process that it has ended, until no node is left. Raises KeyboardInterrupt on a signal."""
    while not trial.is_over:
        time.sleep(LOOK_EVERY_S)
        for ended in trial.ended():
            _say(why_it_ended(ended, trial))


def _say(text: str) -> None:
    click.echo(text, err=True)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and the terminal's end are as Ctrl-C, once: what stops by then is not to be broken off."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = [signal.signal(number, end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _check_packages() -> None:
    try:
        find_nats_server()
    except NatsMissingError as error:
        raise click.ClickException(str(error)) from error
    if find_spec("nats") is None:
        raise click.ClickException("the package 'nats-py' is not installed: pip install 'blockyard[trial]'")


def _check_ports(ports: list[int]) -> list[int]:
    """They are free. Raises ClickException."""
    for port in ports:
        for listening in listening_sockets(LOOPBACK, port):
            listening.close()
    return ports


def _check_folder(folder: Path, num_nats_servers: int) -> None:
    """What an earlier trial has left there, as many NATS servers have to go on with."""
    found = len([place for place in folder.glob("nats/n*") if place.is_dir()])
    if found not in (0, num_nats_servers):
        raise click.UsageError(f"{folder} is of a trial with {found} NATS servers: --nats {found} goes on")
