"""`GET /v1/watch`: what a watcher is told, when, and that it is only ever told what is durable."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest

from api.support import make_api
from blockyard.core.commands import CreateLease
from blockyard.core.config import GroupConfig, PoolConfig
from blockyard.core.errors import NotReady
from blockyard.core.ids import LeaseId
from blockyard.server.access.principal import ANYONE
from blockyard.server.clock import Clock
from blockyard.server.events.hub import EventHub
from blockyard.server.holders import MAX_HOLDERS, Holders
from blockyard.server.latency import LatencyWindow
from blockyard.server.pool_journal import VolatileJournal
from blockyard.server.pools import Pools
from blockyard.server.seen_tenants import MAX_TENANTS
from blockyard.server.slices import Slices
from blockyard.server.sse import Streams
from blockyard.server.watch import Asked, Watched, WatchFeed
from server_process import ServerProcess, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server("--log-level", "warning") as server:
        yield server


def make_pool(server: ServerProcess, name: str, **config: Any) -> str:
    body = {"num_blocks": 50, "block_size": 16, **config}
    assert server.call("PUT", f"/v1/pools/{name}", body)[0] == 201
    return f"/v1/pools/{name}"


def make_lease(server: ServerProcess, pool: str, holder: str = "test", ttl_ms: int = 60_000) -> str:
    lease: str = server.call("POST", f"{pool}/leases", {"holder": holder, "ttl_ms": ttl_ms})[1]["lease_id"]
    return lease


def hold(server: ServerProcess, pool: str, lease: str, num_blocks: int) -> None:
    body = {"lease_id": lease, "num_blocks": num_blocks}
    assert server.call("POST", f"{pool}/blocks/allocate", body)[0] == 200


@contextmanager
def watching(server: ServerProcess, *, timeout_s: float = 10, **query: str) -> Iterator[Iterator[Any]]:
    """The messages of a stream, as they come."""
    url = f"{server.url}/v1/watch?{urlencode(query)}"
    with urllib.request.urlopen(url, timeout=timeout_s) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = (line.decode().rstrip("\n") for line in reply)
        yield (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


def test_a_watcher_is_told_the_figures_at_once_and_again_when_they_change(server: ServerProcess) -> None:
    pool = make_pool(server, "changing")
    lease = make_lease(server, pool)
    with watching(server, filter="CHANG") as messages:
        for num_blocks in (0, 3, 2):
            if num_blocks:
                hold(server, pool, lease, num_blocks)
            (row,) = next(messages)["pools"]
            assert row == {"pool": "changing", "stats": server.call("GET", f"{pool}/stats")[1]}


def test_where_nothing_changes_nothing_is_told(server: ServerProcess) -> None:
    make_pool(server, "still")
    with watching(server, timeout_s=1.5, filter="still", pool="still") as messages:
        assert next(messages)["num_matching"] == 1
        with pytest.raises(TimeoutError):
            next(messages)


def test_a_watcher_sees_the_pools_it_asked_for(server: ServerProcess) -> None:
    for number in range(5):
        make_pool(server, f"page-{number}")
    with watching(server, filter="page-", offset="1", limit="3") as messages:
        message = next(messages)
    assert [row["pool"] for row in message["pools"]] == ["page-1", "page-2", "page-3"]
    assert message["num_matching"] == 5
    assert message["num_pools"] >= 5
    assert (message["chosen"], message["latency"]) == (None, [])


def test_the_chosen_pool_comes_with_its_top_holders_and_workers(server: ServerProcess) -> None:
    pool = make_pool(server, "chosen", num_blocks=1_000)
    num_leases = MAX_HOLDERS + 3
    leases = [make_lease(server, pool, f"scheduler {number}") for number in range(num_leases)]
    for number, lease in enumerate(leases):
        hold(server, pool, lease, number + 1)
    worker = {"worker_id": "w", "rank": 0, "device": "cuda:0", "incarnation": "a"}
    assert server.call("POST", f"{pool}/workers", worker)[0] == 200
    with watching(server, filter="none of this name", pool="chosen") as messages:
        message = next(messages)
    assert message["pools"] == []
    chosen = message["chosen"]
    assert chosen["stats"] == server.call("GET", f"{pool}/stats")[1]
    holders = {
        holder["lease_id"]: (holder["holder"], holder["num_sequences"], holder["num_blocks"])
        for holder in server.call("GET", f"{pool}/audit")[1]["holders"]
    }
    assert [lease["lease_id"] for lease in chosen["leases"]] == leases[: -MAX_HOLDERS - 1 : -1]
    for lease in chosen["leases"]:
        told = (lease["holder"], lease["num_sequences"], lease["num_blocks"])
        assert told == holders[lease["lease_id"]]
        assert 0 < lease["expires_in_ms"] <= 60_000
    (told_worker,) = chosen["workers"]
    assert (told_worker["worker_id"], told_worker["state"]) == ("w", "alive")


def test_a_chosen_pool_without_tenants_tells_of_none(server: ServerProcess) -> None:
    pool = make_pool(server, "untenanted")
    hold(server, pool, make_lease(server, pool), 3)
    with watching(server, pool="untenanted") as messages:
        chosen = next(messages)["chosen"]
    assert (chosen["num_tenants"], chosen["tenants"]) == (0, [])
    assert [lease["tenant"] for lease in chosen["leases"]] == [""]


def test_a_chosen_pools_tenants_are_told_by_name_with_those_of_none(server: ServerProcess) -> None:
    pool = make_pool(server, "tenanted")
    for tenant in ("initech", "acme"):
        quota = {"guaranteed_blocks": 3, "max_blocks": 9}
        assert server.call("PUT", f"{pool}/tenants/{tenant}", quota)[0] == 200
    with watching(server, pool="tenanted") as messages:
        chosen = next(messages)["chosen"]
        assert (chosen["num_tenants"], [each["tenant"] for each in chosen["tenants"]]) == (
            2,
            ["acme", "initech"],
        )
        assert chosen["tenants"][0] == server.call("GET", f"{pool}/tenants/acme")[1]
        hold(server, pool, make_lease(server, pool), 4)
        for message in messages:
            told = {each["tenant"]: each["num_held_blocks"] for each in message["chosen"]["tenants"]}
            if told.get("") == 4:
                break
        assert told == {"": 4, "acme": 0, "initech": 0}


def test_of_very_many_tenants_those_with_the_most_are_told(server: ServerProcess) -> None:
    pool = make_pool(server, "crowded", num_blocks=500)
    for number in range(MAX_TENANTS + 3):
        path = f"{pool}/tenants/tenant-{number:03}"
        assert server.call("PUT", path, {"guaranteed_blocks": 1})[0] == 200
    hold(server, pool, make_lease(server, pool), 4)
    with watching(server, pool="crowded") as messages:
        chosen = next(messages)["chosen"]
    assert chosen["num_tenants"] == MAX_TENANTS + 3
    assert len(chosen["tenants"]) == MAX_TENANTS
    assert chosen["tenants"][0]["num_held_blocks"] == 4


def test_the_chosen_pool_comes_with_the_latency_of_calls(server: ServerProcess) -> None:
    pool = make_pool(server, "timed")
    lease = make_lease(server, pool)
    with watching(server, pool="timed") as messages:
        next(messages)
        for number in range(30):
            body = {"lease_id": lease, "sequence_id": str(number), "num_tokens": 1}
            assert server.call("POST", f"{pool}/allocate", body)[0] == 200
        latency = next(message["latency"] for message in messages if message["latency"])
    (allocate,) = [call for call in latency if call["call"] == "allocate"]
    assert 0 < allocate["num_calls"] <= 30
    assert 0 < allocate["p50_ms"] <= allocate["p99_ms"] < 10_000


def test_a_chosen_pool_that_is_not_there_is_null_until_it_is(server: ServerProcess) -> None:
    with watching(server, pool="later") as messages:
        assert next(messages)["chosen"] is None
        make_pool(server, "later")
        assert next(messages)["chosen"]["pool"] == "later"
        assert server.call("DELETE", "/v1/pools/later")[0] == 200
        assert next(messages)["chosen"] is None


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "offset=-1", "pools=a"])
def test_what_cannot_be_watched_is_refused(query: str) -> None:
    with make_api() as api:
        reply = api.get(f"/v1/watch?{query}")
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_request")


def test_more_watchers_than_may_be_are_refused() -> None:
    with make_api(max_subscribers=0) as api:
        reply = api.get("/v1/watch")
    assert (reply.status_code, reply.json()["code"]) == (503, "overloaded")


def test_the_document_describes_the_messages() -> None:
    with make_api() as api:
        document = api.get("/openapi.json").json()
    answers = document["paths"]["/v1/watch"]["get"]["responses"]
    (kind,) = answers["200"]["content"]["text/event-stream"]["itemSchema"]["oneOf"]
    assert kind["properties"]["event"] == {"const": "figures"}
    assert kind["properties"]["data"]["contentSchema"] == {"$ref": "#/components/schemas/Figures"}
    figures = document["components"]["schemas"]["Figures"]["properties"]
    assert {"num_pools", "pools", "chosen", "latency"} <= figures.keys()


class Watching:
    """A feed over one pool, ``pool``, whose journal is settled when we say so."""

    def __init__(self) -> None:
        self.settled = asyncio.Event()
        self.error: NotReady | None = None
        journal = VolatileJournal()
        self.pools = Pools(1, 100, journal, EventHub(journal.commit, None, "here"))
        groups = [GroupConfig(kind="full_attention", block_size=16)]
        self._config = PoolConfig.of(num_blocks=10, groups=groups)
        self.feed = WatchFeed(
            Asked(part="", offset=0, limit=50, chosen="pool", principal=ANYONE),
            Watched(
                pools=self.pools,
                clock=Clock(),
                holders=Holders(Slices()),
                latency=LatencyWindow((), dict),
                settled=self._settled,
                streams=Streams(1),
            ),
        )

    async def begin(self) -> None:
        await self.pools.create("pool", self._config)

    async def _settled(self) -> None:
        await self.settled.wait()
        if self.error is not None:
            raise self.error

    async def is_told(self, within_s: float = 0.1) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self.feed.changed()
        except TimeoutError:
            return False
        return self.feed.read() != b""


def test_nothing_is_told_before_it_is_durable() -> None:
    async def watch() -> None:
        watching = Watching()
        await watching.begin()
        assert not await watching.is_told()
        watching.settled.set()
        assert await watching.is_told(within_s=5)

    asyncio.run(watch())


def test_what_could_not_be_written_down_is_never_told_and_ends_the_stream() -> None:
    async def watch() -> None:
        watching = Watching()
        await watching.begin()
        watching.error = NotReady("the journal is full", {})
        watching.settled.set()
        await watching.feed.changed()
        assert watching.feed.read() is None

    asyncio.run(watch())


def test_a_look_that_is_interrupted_loses_no_message() -> None:
    async def watch() -> None:
        watching = Watching()
        await watching.begin()
        watching.settled.set()
        assert await watching.is_told()
        lease = CreateLease(lease_id=LeaseId("a"), holder="test", ttl_ms=60_000)
        watching.pools.apply("pool", lease, 0)
        assert not await watching.is_told(within_s=0.01)
        assert await watching.is_told(within_s=5)

    asyncio.run(watch())
