"""Events of a real server: over ZeroMQ and as server-sent events, across restarts and deletions."""

import itertools
import json
import signal
import socket
import urllib.request
from pathlib import Path

import ormsgpack
import pytest
import zmq

from blockyard.client import Client, NoEvents, PoolNotFound
from blockyard.client.zmq_follower import ZmqFollower
from blockyard.core.hash_chain import external_int64
from events.publishing import (
    EVENTS,
    POOL,
    cache,
    free_port,
    make_lease,
    make_pool,
    mirrored,
    publishing_server,
    stored_on,
)
from events.sse_reader import subscribed
from server_process import run, running_server
from waiting import wait_for


def test_a_follower_over_zeromq_has_what_the_server_has() -> None:
    with publishing_server() as (server, endpoint, replay), Client(server.url) as client:
        lease = make_pool(server, num_blocks=20)
        cache(server, lease, 1, 2)
        with ZmqFollower(client.pool("pool"), endpoint, replay) as follower:
            assert mirrored(follower) == stored_on(server)
            cache(server, lease, *range(3, 20))
            wait_for(lambda: follower.follow(0.1) == 0)
            assert mirrored(follower) == stored_on(server)
            assert follower.mirror.num_snapshots <= 2
            last = follower.mirror.next_number
            assert server.call("POST", f"{POOL}/reset_prefix_cache")[1]["ok"]
            wait_for(lambda: follower.follow(0.1) == 0 and follower.mirror.next_number != last)
            assert mirrored(follower) == set()


def test_a_follower_follows_a_pool_that_is_made_anew_under_another_topic() -> None:
    with publishing_server() as (server, endpoint, replay), Client(server.url) as client:
        cache(server, make_pool(server, events={"topic": "kv@one"}), 1, 2)
        with ZmqFollower(client.pool("pool"), endpoint, replay) as follower:
            assert len(mirrored(follower)) == 4
            assert server.call("DELETE", f"{POOL}?force=true")[0] == 200
            lease = make_pool(server, events={"topic": "kv@two"})
            cache(server, lease, 3)
            wait_for(lambda: follower.follow(0.1) == 0 and mirrored(follower) == stored_on(server))
            cache(server, lease, 4)
            wait_for(lambda: follower.follow(0.1) == 0 and mirrored(follower) == stored_on(server))
            assert len(mirrored(follower)) == 4


def test_askers_that_take_nothing_hold_up_nobody() -> None:
    with publishing_server("--volatile") as (server, _, replay), zmq.Context() as context:
        lease = make_pool(server, num_blocks=4_001)
        held = {"lease_id": lease, "sequence_id": "s"}
        for prompt in range(30):
            tokens = {"num_tokens": 1_600, "token_ids": [prompt] * 1_600}
            assert server.call("POST", f"{POOL}/allocate", {**held, **tokens})[0] == 200
            assert server.call("POST", f"{POOL}/commit", {**held, "num_computed_tokens": 1_600})[0] == 200
            assert server.call("POST", f"{POOL}/free", {"lease_id": lease, "sequence_ids": ["s"]})[0] == 200
        with context.socket(zmq.DEALER) as stuck, context.socket(zmq.DEALER) as asking:
            stuck.rcvhwm = 1
            stuck.setsockopt(zmq.RCVBUF, 4_096)
            stuck.connect(replay)
            asking.rcvtimeo = 20_000
            asking.connect(replay)
            for _ in range(50):
                stuck.send_multipart([b"", bytes(8)])
            asking.send_multipart([b"", bytes(8)])
            answers = [asking.recv_multipart()]
            while answers[-1][2] != b"\xff" * 8:
                answers.append(asking.recv_multipart())
            assert server.call("GET", f"{POOL}/audit")[1]["ok"]
        assert len(answers) > 30


def test_a_follower_of_a_pool_without_events_is_told_so() -> None:
    with running_server("--log-level", "warning") as server, Client(server.url) as client:
        client.create_pool("pool", num_blocks=10, block_size=4)
        with pytest.raises(NoEvents, match="create it with events"):
            ZmqFollower(client.pool("pool"), "tcp://127.0.0.1:1")
        with pytest.raises(PoolNotFound):
            ZmqFollower(client.pool("another"), "tcp://127.0.0.1:1")


def test_a_message_has_topic_number_and_batch() -> None:
    with publishing_server() as (server, endpoint, _), zmq.Context() as context:
        lease = make_pool(server, events={"topic": "kv@engine@model", "hash_form": "bytes", "rank": 3})
        with context.socket(zmq.SUB) as updates:
            updates.subscribe("kv@engine")
            updates.connect(endpoint)
            received: list[list[bytes]] = []
            prompts = itertools.count()

            def arrived() -> bool:
                cache(server, lease, next(prompts))  # what is cached already is not told again
                if updates.poll(200):
                    received.append(updates.recv_multipart())
                return bool(received)

            wait_for(arrived)  # a subscription takes its time, and what came before is not sent
            topic, number, payload = received[0]
    ts, (event, *_), rank = ormsgpack.unpackb(payload)
    assert (topic, len(number), rank) == (b"kv@engine@model", 8, 3)
    assert ts > 1.7e9
    assert event["type"] == "BlockStored"
    assert {len(each) for each in event["block_hashes"]} == {32}


def test_what_was_missed_is_sent_again_and_ends_with_a_marker() -> None:
    with publishing_server() as (server, _, replay), zmq.Context() as context:
        lease = make_pool(server)
        cache(server, lease, 1, 2, 3)
        wait_for(lambda: server.call("GET", f"{EVENTS}/snapshot")[1]["sequence_number"] == 3)
        with context.socket(zmq.DEALER) as asking:
            asking.rcvtimeo = 20_000
            asking.connect(replay)
            for request in ([b"", (1).to_bytes(8, "big")], [b"", (1).to_bytes(8, "big"), b"another topic"]):
                asking.send_multipart(request)
                answers = [asking.recv_multipart()]
                while answers[-1][2] != (-1).to_bytes(8, "big", signed=True):
                    answers.append(asking.recv_multipart())
                numbers = [int.from_bytes(answer[2], "big") for answer in answers[:-1]]
                assert numbers == ([1, 2] if len(request) == 2 else [])
                assert answers[-1] == [b"", b"", b"\xff" * 8, b""]
            for nonsense in ([b"", b"short"], [b"x"], [b""] * 9, [b"", (1).to_bytes(8, "big"), b"\xff"]):
                asking.send_multipart(nonsense)
            asking.send_multipart([b"", (2**63).to_bytes(8, "big")])
            assert asking.recv_multipart() == [b"", b"", b"\xff" * 8, b""]


def test_a_killed_server_goes_on_with_its_numbers_under_another_id(tmp_path: Path) -> None:
    ports = ("--port", str(free_port()), "--data-dir", str(tmp_path), "--snapshot-commands", "20")
    client = Client(f"http://127.0.0.1:{ports[1]}")
    with publishing_server(*ports, is_killed=True) as (server, endpoint, replay):
        cache(server, make_pool(server), *range(10))
        follower = ZmqFollower(client.pool("pool"), endpoint, replay)
        before = server.call("GET", f"{EVENTS}/snapshot")[1]
        first_stream = follower.mirror.stream_id
        assert before["sequence_number"] == 10
    with client, follower, publishing_server(*ports, endpoints=(endpoint, replay)) as (successor, _, _):
        after = successor.call("GET", f"{EVENTS}/snapshot")[1]
        assert after["sequence_number"] == 10
        assert after["events"] == before["events"]
        assert after["stream_id"] != first_stream
        cache(successor, make_lease(successor), 77)
        follower.catch_up()
        assert follower.mirror.next_number == 11
        assert mirrored(follower) == stored_on(successor)
        assert follower.mirror.stream_id == after["stream_id"]


def test_server_sent_events_begin_with_a_snapshot_and_follow() -> None:
    with running_server("--log-level", "warning") as server:
        lease = make_pool(server)
        cache(server, lease, 1)
        with subscribed(server.port, EVENTS) as messages:
            snapshot = next(messages)
            assert snapshot.kind == "snapshot"
            assert not snapshot.data["is_last"]
            assert next(messages).data["is_last"]
            cache(server, lease, 2)
            batch = next(messages)
        assert batch.kind == "batch"
        assert batch.data["sequence_number"] == 1
        assert batch.data["events"][0]["token_ids"] == [2] * 8
        cache(server, lease, 3)
        with subscribed(server.port, EVENTS, batch.identity) as messages:
            assert next(messages).data["sequence_number"] == 2


def test_deleting_a_pool_clears_it_for_its_followers_and_ends_the_stream() -> None:
    with running_server("--log-level", "warning") as server:
        lease = make_pool(server)
        cache(server, lease, 1)
        with subscribed(server.port, EVENTS) as messages:
            while not next(messages).data.get("is_last"):
                pass
            assert server.call("DELETE", f"{POOL}?force=true")[0] == 200
            (last,) = list(messages)
        assert [event["type"] for event in last.data["events"]] == ["AllBlocksCleared"]


def test_a_server_with_subscribers_stops_at_once() -> None:
    with running_server("--log-level", "warning", "--shutdown-timeout-s", "60") as server:
        make_pool(server)
        with subscribed(server.port, EVENTS) as messages:
            assert next(messages).data["is_last"]
            server.process.send_signal(signal.SIGTERM)
            assert list(messages) == []
            assert server.process.wait(timeout=20) == 0


def test_a_server_with_a_subscriber_that_reads_nothing_stops_at_once() -> None:
    with running_server("--log-level", "warning", "--shutdown-timeout-s", "60", "--volatile") as server:
        lease = make_pool(server, num_blocks=40_001)
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            stuck.connect(("127.0.0.1", server.port))
            stuck.sendall(f"GET {EVENTS} HTTP/1.1\r\nHost: b\r\n\r\n".encode())
            for prompt in range(25):
                held = {"lease_id": lease, "sequence_id": f"s{prompt}"}
                tokens = {"num_tokens": 6_400, "token_ids": [prompt] * 6_400}
                assert server.call("POST", f"{POOL}/allocate", {**held, **tokens})[0] == 200
                assert server.call("POST", f"{POOL}/commit", {**held, "num_computed_tokens": 6_400})[0] == 200
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(timeout=30) == 0  # half the time that requests have to end


def test_a_subscriber_that_reads_nothing_holds_up_nobody_and_is_sent_a_snapshot_once_it_reads() -> None:
    with running_server("--log-level", "warning", "--volatile") as server:
        lease = make_pool(server)
        with subscribed(server.port, EVENTS) as messages:
            assert next(messages).data["is_last"]
            for prompt in range(40):
                cache(server, lease, prompt)
            seen = [next(messages).data["sequence_number"] for _ in range(10)]
        assert seen == list(range(10))
        assert server.call("GET", f"{POOL}/audit")[1]["ok"]


def test_subscribers_beyond_the_limit_are_refused_and_streams_do_not_count_as_requests() -> None:
    with running_server(
        "--log-level", "warning", "--max-subscribers", "2", "--max-requests-in-flight", "1"
    ) as server:
        make_pool(server)
        with subscribed(server.port, EVENTS) as one, subscribed(server.port, EVENTS) as two:
            assert next(one).data["is_last"]
            assert next(two).data["is_last"]
            status, problem = server.call("GET", EVENTS)
            assert (status, problem["code"]) == (503, "overloaded")
            assert server.call("GET", f"{POOL}/stats")[0] == 200

        def is_let_in() -> bool:
            try:
                with subscribed(server.port, EVENTS) as messages:
                    return bool(next(messages).data["is_last"])
            except AssertionError:
                return False

        wait_for(is_let_in)


def test_the_snapshot_is_the_same_in_both_forms() -> None:
    with running_server("--log-level", "warning") as server:
        lease = make_pool(server)
        cache(server, lease, *range(30))
        in_json = server.call("GET", f"{EVENTS}/snapshot")[1]
        request = urllib.request.Request(
            f"{server.url}{EVENTS}/snapshot", headers={"Accept": "application/msgpack"}
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            in_msgpack = ormsgpack.unpackb(reply.read())
    for event in in_json["events"]:
        event["block_hashes"] = [external_int64(bytes.fromhex(each)) for each in event["block_hashes"]]
    assert in_json == in_msgpack
    assert in_json["topic"] == f"kv@127.0.0.1:{server.port}@pool"
    assert json.dumps(in_json).count("BlockStored") == 30


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--event-endpoint", "carrier-pigeon://x"), "--event-endpoint carrier-pigeon://x"),
        (("--event-replay-endpoint", "tcp://127.0.0.1:1"), "goes with --event-endpoint"),
    ],
)
def test_an_endpoint_that_cannot_be_is_named(options: tuple[str, ...], complaint: str) -> None:
    ended = run("serve", "--volatile", "--port", "0", *options)
    assert ended.returncode in (1, 2)
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr
