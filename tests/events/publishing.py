"""A server that publishes events, and a pool on it that has some."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from blockyard.client.zmq_follower import ZmqFollower
from blockyard.core.hash_chain import external_int64
from server_process import READY, ServerProcess, first_line, require, running_server, start

POOL = "/v1/pools/pool"
EVENTS = f"{POOL}/events"


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@contextmanager
def publishing_server(
    *options: str, endpoints: tuple[str, str] | None = None, is_killed: bool = False
) -> Iterator[tuple[ServerProcess, str, str]]:
    """A server that publishes, and its two endpoints; in the end it stops, or is killed."""
    endpoint, replay = endpoints or (f"tcp://127.0.0.1:{free_port()}", f"tcp://127.0.0.1:{free_port()}")
    named = ("--event-endpoint", endpoint, "--event-replay-endpoint", replay, "--log-level", "warning")
    if not is_killed:
        with running_server(*named, *options) as server:
            yield server, endpoint, replay
        return
    with start("serve", "--port", "0", *named, *options, stderr=None) as process:
        try:
            line = first_line(require(process.stdout))
            yield ServerProcess(line.removeprefix(READY).strip(), process), endpoint, replay
        finally:
            process.kill()


def make_pool(server: ServerProcess, **options: Any) -> str:
    """A pool of 100 blocks with events, and a lease of it."""
    body = {"num_blocks": 100, "block_size": 4, "events": True, **options}
    assert server.call("PUT", POOL, body)[0] == 201
    return make_lease(server)


def make_lease(server: ServerProcess) -> str:
    lease = server.call("POST", f"{POOL}/leases", {"holder": "test", "ttl_ms": 600_000})[1]
    return str(lease["lease_id"])


def cache(server: ServerProcess, lease: str, *prompts: int) -> None:
    """Two blocks of each prompt, of which nobody holds any in the end."""
    for prompt in prompts:
        name = f"s{prompt}"
        held = {"lease_id": lease, "sequence_id": name}
        tokens = {"num_tokens": 9, "token_ids": [prompt] * 9}
        assert server.call("POST", f"{POOL}/allocate", {**held, **tokens})[0] == 200
        assert server.call("POST", f"{POOL}/commit", {**held, "num_computed_tokens": 9})[0] == 200
        assert server.call("POST", f"{POOL}/free", {"lease_id": lease, "sequence_ids": [name]})[0] == 200


def stored_on(server: ServerProcess) -> set[int]:
    """The hashes that the server has, in the form of ZeroMQ."""
    events = server.call("GET", f"{EVENTS}/snapshot")[1]["events"]
    return {external_int64(bytes.fromhex(each)) for event in events for each in event["block_hashes"]}


def mirrored(follower: ZmqFollower) -> set[Any]:
    return {each for stored in follower.mirror.stored.values() for each in stored}
