"""Followers of a pool that moves from node to node: real servers, and a node that says which is the owner."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import pytest
import zmq

from blockyard.client import Client
from blockyard.client.zmq_follower import ZmqFollower
from blockyard.client.zmq_replay import Replay
from client.peers import Received, elsewhere, forward, peer
from events.publishing import (
    EVENTS,
    POOL,
    cache,
    free_port,
    make_pool,
    mirrored,
    publishing_server,
    stored_on,
)
from server_process import ServerProcess
from waiting import wait_for


@dataclass
class Nodes:
    """Two servers, each behind a node that answers for the pool only while it is the owner's.

    Attributes:
        servers: In the order in which they own it.
        endpoints, replays: Theirs.
        urls: Of the nodes.
        number: Of the owner.
    """

    servers: list[ServerProcess]
    endpoints: list[str]
    replays: list[str]
    urls: list[str] = field(default_factory=list)
    number: int = 1

    @property
    def owner(self) -> ServerProcess:
        return self.servers[self.number - 1]

    def answer(self, server: ServerProcess, request: Received) -> bytes:
        if server is self.owner:
            return forward(server.url)(request)
        return elsewhere(self.urls[self.number - 1], self.number)(request)


@contextmanager
def nodes() -> Iterator[Nodes]:
    with ExitStack() as stack:
        started = [stack.enter_context(publishing_server("--volatile", is_killed=True)) for _ in range(2)]
        servers, endpoints, replays = (list(each) for each in zip(*started, strict=True))
        made = Nodes(servers, endpoints, replays)
        for server in servers:
            made.urls.append(stack.enter_context(peer(partial(made.answer, server))).url)
        yield made


@pytest.mark.parametrize("is_planned", [True, False])
def test_a_follower_follows_its_pool_to_the_next_owner(*, is_planned: bool) -> None:
    with nodes() as cluster, Client(cluster.urls) as client:
        first, second = cluster.servers
        cache(first, make_pool(first), 1, 2)
        with ZmqFollower(client.pool("pool"), cluster.endpoints, cluster.replays) as follower:
            lease = make_pool(second)
            cache(second, lease, 3)
            cluster.number = 2
            if is_planned:  # which ends the pool's stream at the owner before
                first.call("DELETE", f"{POOL}?force=true")
            else:
                first.process.kill()
            wait_for(lambda: follower.follow(0.1) == 0 and mirrored(follower) == stored_on(second))
            prompts = count(4)

            def hears() -> bool:
                cache(second, lease, next(prompts))
                return follower.follow(0.1) > 0

            wait_for(hears)  # a subscription takes its time, and what came before is not sent
            wait_for(lambda: follower.follow(0.1) == 0 and mirrored(follower) == stored_on(second))


def test_what_was_missed_is_asked_of_all_nodes_and_one_has_it() -> None:
    with nodes() as cluster, zmq.Context() as context:
        cache(cluster.owner, make_pool(cluster.owner), 1, 2, 3)
        topic = cluster.owner.call("GET", f"{EVENTS}/snapshot")[1]["topic"].encode()
        nowhere = f"tcp://127.0.0.1:{free_port()}"
        replay = Replay(context, [nowhere, *reversed(cluster.replays)], None)
        wait_for(lambda: [batch.number for batch in replay.since(0, topic, 100)] == [0, 1, 2])
        assert replay.since(0, b"another topic", 100) == []
