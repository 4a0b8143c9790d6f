"""Putting the requests to a server, and telling what came of them.

Apart from the command, so that what is imported here (half a second) is so while the replay's server starts.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict

import click

from blockyard.client.retry import RetryPolicy
from blockyard.server.commands.connection import connected
from blockyard.server.commands.json_output import print_json
from blockyard.server.commands.reach import Reach
from blockyard.server.commands.replay.driver import driver_of
from blockyard.server.commands.replay.options import ReplayOptions
from blockyard.server.commands.replay.own_pool import own_pool
from blockyard.server.commands.replay.progress import progress_bar
from blockyard.server.commands.replay.report import print_report
from blockyard.server.commands.replay.request import Request
from blockyard.server.commands.replay.tally import Outcome, Tally
from blockyard.server.commands.replay.trace import TraceFile
from blockyard.server.commands.replay.workload import Workload


def replay(requests: Sequence[Request], options: ReplayOptions, server: Reach) -> Outcome:
    """Put ``requests``, at least one, to a new pool of ``server``.

    Raises:
        click.ClickException: The server does not answer, refuses, or its pool does not add up afterwards.
    """
    drive = driver_of(options)
    with (
        connected(server, RetryPolicy()) as client,
        own_pool(client, options) as pool,
    ):
        with progress_bar(len(requests)) as on_progress:
            tally = Tally(requests, on_progress)
            started_s = time.perf_counter()
            drive(pool, requests, tally)
            seconds = time.perf_counter() - started_s
        audit = pool.audit()
        if not audit.ok or audit.num_held_blocks:
            raise click.ClickException(
                f"the pool does not add up: {audit.num_held_blocks} blocks held, {'; '.join(audit.problems)}"
            )
    return tally.outcome(seconds)


def print_outcome(
    outcome: Outcome, source: TraceFile | Workload, options: ReplayOptions, *, as_json: bool
) -> None:
    """Tell people, or with ``as_json`` a program, what came of the requests of ``source``."""
    if as_json:
        named = {"workload": asdict(source)} if isinstance(source, Workload) else {"trace": str(source.path)}
        print_json({**named, **asdict(options), **asdict(outcome)})
        return
    name = f"a chat workload (seed {source.seed})" if isinstance(source, Workload) else source.path.name
    print_report(f"{name} on {options}", outcome, options)
