from collections import deque
from collections.abc import Sequence
from pathlib import Path

from blockyard.client import Client
from blockyard.client.client import Pool
from blockyard.client.lease import Lease
from blockyard.client.retry import RetryPolicy
from blockyard.server.commands.replay.request import Request
from blockyard.server.commands.replay.workload import Workload
from crash.server import CrashingServer
from server_process import running_server

REQUESTS = list(Workload(num_requests=800, num_users=60).requests())
NUM_BLOCKS = 4_500
"""Too few for all: what is found depends on the order in which cached blocks were evicted."""
NUM_LIVE = 4
"""Requests that are live at a time, and so when the server is killed."""


class Replay:
    """Requests one after the other, each freed when `NUM_LIVE` more have come."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._live: deque[str] = deque()
        self._num_requests = 0

    def cached_tokens(self, requests: Sequence[Request]) -> list[int]:
        """How many of each were found in the cache."""
        return [self._put(request) for request in requests]

    def _put(self, request: Request) -> int:
        self._num_requests += 1
        name = f"request-{self._num_requests}"
        if len(self._live) == NUM_LIVE:
            self._lease.free([self._live.popleft()])
        given = self._lease.allocate(name, request.num_tokens, block_hashes=request.block_hashes)
        self._live.append(name)
        return given.num_cached_tokens or 0


def make_pool(client: Client) -> Pool:
    return client.create_pool("chat", num_blocks=NUM_BLOCKS, block_size=16, publish="on_allocate")


def uninterrupted() -> list[int]:
    with (
        running_server("--volatile") as server,
        Client(server.url) as client,
        make_pool(client).lease("replay") as lease,
    ):
        return Replay(lease).cached_tokens(REQUESTS)


def test_a_replay_finds_the_same_cached_tokens_after_a_kill_in_its_middle(tmp_path: Path) -> None:
    middle = len(REQUESTS) // 2
    with CrashingServer(tmp_path / "data", "--snapshot-commands", "300") as server:
        server.start()
        retries = RetryPolicy(max_attempts=1_000, max_pause_s=0.05)
        with Client(server.url, retries=retries) as client, make_pool(client).lease("replay") as lease:
            replay = Replay(lease)
            found = replay.cached_tokens(REQUESTS[:middle])
            server.kill()
            server.start()
            found += replay.cached_tokens(REQUESTS[middle:])
            audit = client.pool("chat").audit()
            assert audit.ok, audit.problems
            evicted = client.pool("chat").stats().counters
    print(f"{sum(found)} tokens of {sum(request.num_tokens for request in REQUESTS)} cached; {evicted}")
    assert found == uninterrupted()
    assert sum(found[middle:]) > 0
