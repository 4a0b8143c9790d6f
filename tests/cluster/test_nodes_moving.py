"""Pools that move from node to node: by force, as planned, and after all nodes were gone. Nothing is lost."""

import http.client
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from blockyard.client import Client
from blockyard.server.cluster.bucket import Bucket
from blockyard.server.cluster.connection import Connection
from blockyard.server.cluster.registry import RegisteredPool, Registry
from cluster.in_nats import connected
from cluster.nodes import NAMES, TWO, Nodes, Reply, ask, follow, make_lease, make_pool, pool_of, running_nodes
from events.sse_reader import Message, subscribed
from server_process import TIMEOUT_S
from waiting import wait_for

FIRST, SECOND = TWO
SNAPSHOT_COMMANDS = 50
SIZES = {"num_blocks": 100, "block_size": 4}
LEASE_MS = 1_500
SHORT_MS = 2_000


@pytest.fixture(scope="module")
def running() -> Iterator[Nodes]:
    with running_nodes(
        "--node-lease-ms", str(LEASE_MS), "--snapshot-commands", str(SNAPSHOT_COMMANDS)
    ) as nodes:
        yield nodes


@pytest.fixture
def nodes(running: Nodes) -> Nodes:
    """Both are there again, whatever an earlier test did to them."""
    gone = [name for name, each in running.processes.items() if each.process.poll() is not None]
    running.start(*gone)
    for name in TWO:
        wait_for(lambda name=name: running.live(name) == {*TWO})  # type: ignore[misc]
    return running


def owned(nodes: Nodes, body: Any = SIZES) -> str:
    """The path of a new pool of the first node's, which the second one has warm."""
    name = pool_of(FIRST)
    path = make_pool(nodes, name, body)
    nodes.settle(name, FIRST)
    return path


def done(nodes: Nodes, method: str, target: str, body: Any = None, **headers: str) -> Any:
    """What a call comes to."""
    reply = follow(nodes.url(SECOND), method, target, body, **headers)
    assert reply.status in (200, 201), reply.data
    return reply.body


def told(nodes: Nodes, path: str) -> dict[str, Any]:
    """All that can be read of a pool, but what is of this moment."""
    state = {
        rest: done(nodes, "GET", f"{path}{rest}")
        for rest in ("", "/stats", "/audit", "/tenants", "/workers", "/sequences/s", "/plan")
    }
    for worker in state["/workers"]["workers"]:
        del worker["silent_ms"]
    return state


def fill(nodes: Nodes, path: str) -> str:
    """A lease of the pool, a sequence, cached blocks, a quota and a worker in it."""
    done(nodes, "POST", f"{path}/workers", WORKER)
    lease = make_lease(nodes.url(SECOND), path)
    held = {"lease_id": lease, "sequence_id": "s"}
    done(nodes, "POST", f"{path}/allocate", {**held, "num_tokens": 9, "token_ids": [*range(9)]})
    done(nodes, "POST", f"{path}/commit", {**held, "num_computed_tokens": 9})
    assert num_hit_tokens(nodes, path) == 8
    done(nodes, "PUT", f"{path}/tenants/other", {"guaranteed_blocks": 2, "max_blocks": 5, "weight": 3})
    return lease


LAYER = {"kind": "full_attention", "block_size": 4, "num_kv_heads": 2, "head_size": 8, "dtype": "float32"}
RANK = {"available_memory_bytes": 2**20, "layers": {"layer": LAYER}}
PLAN = {"workers": [RANK], "max_model_len": 16, "num_blocks_override": 16}
WORKER = {"worker_id": "w", "rank": 0, "device": "cuda:0", "incarnation": "a"}


def num_hit_tokens(nodes: Nodes, path: str) -> int:
    found = done(nodes, "POST", f"{path}/lookup", {"num_tokens": 9, "token_ids": [*range(9)]})
    return int(found["num_cached_tokens"])


def test_the_standby_of_a_killed_owner_has_the_same_pool(nodes: Nodes) -> None:
    path = owned(nodes, {"plan": PLAN})
    lease = fill(nodes, path)
    once = (f"{path}/blocks/allocate", {"lease_id": lease, "num_blocks": 2})
    first = follow(nodes.url(FIRST), "POST", *once, Idempotency_Key="once")
    admit = [{"sequence_id": "t", "num_tokens": 4}]
    step = (f"{path}/step", {"lease_id": lease, "step_id": 1, "admit": admit})
    stepped = follow(nodes.url(FIRST), "POST", *step)
    assert (first.status, stepped.status) == (200, 200), (first.data, stepped.data)
    before = told(nodes, path)
    assert (before["/stats"]["num_sequences"], before["/audit"]["ok"]) == (2, True)

    nodes.kill(FIRST)
    assert told(nodes, path) == before
    assert ask(nodes.url(SECOND), "GET", path).ownership == 2
    again = ask(nodes.url(SECOND), "POST", *once, Idempotency_Key="once")
    assert (again.data, again.ownership) == (first.data, 2)
    assert ask(nodes.url(SECOND), "POST", *step).data == stepped.data
    assert told(nodes, path)["/audit"] == before["/audit"]
    assert num_hit_tokens(nodes, path) == 8
    assert done(nodes, "POST", f"{path}/leases/{lease}/renew")["epoch"] == before["/stats"]["epoch"]
    assert done(nodes, "POST", f"{path}/workers/w/heartbeat", {"incarnation": "a"})["epoch"] == 1


def test_all_is_there_after_both_nodes_were_killed_and_the_stream_has_the_last_commands_alone(
    nodes: Nodes,
) -> None:
    others = nodes.streams().keys()
    path = owned(nodes, {"plan": PLAN})
    [key] = nodes.streams().keys() - others
    lease = fill(nodes, path)

    def taken(*earlier: str) -> str:
        """The snapshot that there is once there were so many commands that there has to be a new one."""
        for _ in range(2 * SNAPSHOT_COMMANDS):
            done(nodes, "POST", f"{path}/leases/{lease}/renew")
        found: list[str] = []

        def is_taken() -> bool:
            if nodes.streams()[key] >= SNAPSHOT_COMMANDS:
                return False
            found[:] = nodes.snapshots([key])
            return len(found) == 1 and found[0] not in earlier

        wait_for(is_taken)
        return found[0]

    latest = taken(taken())
    assert registered(nodes, path).snapshot == int(latest.partition(".")[2])
    short = make_lease(nodes.url(FIRST), path, ttl_ms=SHORT_MS)
    before = told(nodes, path)
    number = follow(nodes.url(FIRST), "GET", path).ownership

    nodes.kill(*TWO)
    time.sleep(SHORT_MS / 1_000)  # while nobody is there, time does not count
    nodes.start(*TWO)
    done(nodes, "POST", f"{path}/leases/{short}/renew")
    assert told(nodes, path) == before
    assert num_hit_tokens(nodes, path) == 8
    assert number is not None
    assert (follow(nodes.url(FIRST), "GET", path).ownership or 0) > number


def registered(nodes: Nodes, path: str) -> RegisteredPool:
    """The pool at ``path``, as NATS knows it."""
    found: list[RegisteredPool | None] = []

    async def work(connection: Connection) -> None:
        bucket = await Bucket.open(connection, NAMES.pools, num_replicas=1)
        found.append(await Registry(bucket, lambda: None).look(path.rpartition("/")[2]))

    connected(nodes.nats, work)
    assert found[0] is not None
    return found[0]


def in_steady_use(clients: Client, path: str, stop: threading.Event) -> int:
    """Allocate and free again and again; how often, once ``stop`` is set."""
    num_calls = 0
    pool = clients.pool(path.rpartition("/")[2])
    with pool.lease("steady", ttl_ms=60_000) as lease:
        while not stop.is_set():
            lease.free_blocks(lease.allocate_blocks(1).block_ids)
            num_calls += 2
    return num_calls


def take_overs(nodes: Nodes, name: str, how: str) -> int:
    """How often a node has come to own a pool so."""
    front = f'blockyard_cluster_take_overs_total{{kind="{how}"}} '
    lines = ask(nodes.url(name), "GET", "/metrics").data.decode().splitlines()
    [line] = [line for line in lines if line.startswith(front)]
    return int(float(line.removeprefix(front)))


def test_no_call_fails_while_an_owner_leaves_and_comes_back(nodes: Nodes) -> None:
    paths = [owned(nodes) for _ in range(3)]
    leases = [make_lease(nodes.url(FIRST), path) for path in paths]
    for path, lease in zip(paths, leases, strict=True):
        done(nodes, "POST", f"{path}/blocks/allocate", {"lease_id": lease, "num_blocks": 7})
    planned, forced = (take_overs(nodes, SECOND, how) for how in ("planned", "forced"))
    stop = threading.Event()
    with Client([nodes.url(name) for name in TWO]) as client, ThreadPoolExecutor(len(paths)) as threads:
        running = [threads.submit(in_steady_use, client, path, stop) for path in paths]
        try:
            assert nodes.processes[FIRST].stop() == 0
            assert take_overs(nodes, SECOND, "planned") - planned >= len(paths)
            assert take_overs(nodes, SECOND, "forced") == forced
            owners = [ask(nodes.url(SECOND), "GET", path) for path in paths]
            assert [(each.status, each.ownership) for each in owners] == [(200, 2)] * len(paths)
            nodes.start(FIRST)
            for path in paths:
                nodes.settle(path.rpartition("/")[2], FIRST)
        finally:
            stop.set()
        assert all(each.result() > 0 for each in running)
    for path in paths:
        reply = ask(nodes.url(FIRST), "GET", f"{path}/stats")
        assert (reply.ownership, reply.body["num_held_blocks"]) == (3, 7)
        assert done(nodes, "GET", f"{path}/audit")["ok"]


@contextmanager
def waiting_at(url: str, path: str) -> Iterator["Future[Reply]"]:
    """A call that waits for blocks of the pool, all of which its lease holds."""
    lease = make_lease(url, path)
    body = {"lease_id": lease, "num_blocks": 99}
    assert ask(url, "POST", f"{path}/blocks/allocate", body).status == 200
    with ThreadPoolExecutor(1) as threads:
        yield threads.submit(ask, url, "POST", f"{path}/blocks/allocate", {**body, "wait_ms": 50_000})


def num_waiting(nodes: Nodes, path: str) -> int:
    return sum(each["num_waiting"] for each in done(nodes, "GET", f"{path}/tenants")["tenants"])


def test_a_call_that_waits_at_a_killed_owner_is_broken_off(nodes: Nodes) -> None:
    path = owned(nodes)
    with waiting_at(nodes.url(FIRST), path) as waiting:
        wait_for(lambda: num_waiting(nodes, path) == 1)
        nodes.kill(FIRST)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            waiting.result()
    assert done(nodes, "GET", f"{path}/stats")["num_held_blocks"] == 99


def test_a_call_that_waits_at_an_owner_that_leaves_is_to_be_repeated(nodes: Nodes) -> None:
    path = owned(nodes)
    with waiting_at(nodes.url(FIRST), path) as waiting:
        wait_for(lambda: num_waiting(nodes, path) == 1)
        nodes.processes[FIRST].process.send_signal(signal.SIGTERM)
        assert waiting.result().is_moving
    assert nodes.processes[FIRST].process.wait(TIMEOUT_S) == 0
    assert done(nodes, "GET", f"{path}/stats")["num_held_blocks"] == 99


def test_a_follower_of_events_is_told_of_the_end_and_reads_the_same_blocks_at_the_next_owner(
    nodes: Nodes,
) -> None:
    path = owned(nodes, {**SIZES, "events": True})
    lease = make_lease(nodes.url(FIRST), path)
    held = {"lease_id": lease, "sequence_id": "s"}
    done(nodes, "POST", f"{path}/allocate", {**held, "num_tokens": 9, "token_ids": [*range(9)]})
    done(nodes, "POST", f"{path}/commit", {**held, "num_computed_tokens": 9})
    with subscribed(nodes.processes[FIRST].port, f"{path}/events") as messages:
        blocks = snapshot_blocks(messages)
        assert len(blocks) == 2
        nodes.processes[FIRST].process.send_signal(signal.SIGTERM)
        [last] = [each for each in messages if each.kind == "batch"]  # then the stream ends
        assert [event["type"] for event in last.data["events"]] == ["AllBlocksCleared"]
    wait_for(lambda: ask(nodes.url(SECOND), "GET", path).status == 200)
    with subscribed(nodes.processes[SECOND].port, f"{path}/events") as messages:
        assert snapshot_blocks(messages) == blocks
    assert nodes.processes[FIRST].process.wait(TIMEOUT_S) == 0


def snapshot_blocks(messages: Iterator[Message]) -> list[Any]:
    """The hashes of the snapshot that a stream begins with."""
    hashes: list[Any] = []
    for message in messages:
        assert message.kind == "snapshot"
        hashes += [each for event in message.data["events"] for each in event["block_hashes"]]
        if message.data["is_last"]:
            break
    return sorted(hashes)
