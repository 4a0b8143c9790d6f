"""Event sockets with keys: who is listed follows, and nobody else; and where there have to be keys."""

from contextlib import closing
from pathlib import Path

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from blockyard.client import Client, EventsRefused
from blockyard.client.zmq_curve import Curve
from blockyard.client.zmq_follower import ZmqFollower
from blockyard.client.zmq_handshakes import Handshakes
from blockyard.server.events import curve as server_curve
from blockyard.server.events.endpoints import check_event_endpoint
from blockyard.server.events.errors import EventsUnavailable
from events.curve_keys import CurveKeys
from events.publishing import cache, make_pool, mirrored, publishing_server, stored_on
from server_process import run
from waiting import wait_for

NO_KEYS = {"has_curve": False, "is_authenticating": False, "is_insecure": False}


def is_refused(follower: ZmqFollower) -> str:
    """Why it is not let in; empty as long as it is not told."""
    try:
        assert follower.follow(0.1) == 0, "it was told something"
    except EventsRefused as refusal:
        return refusal.detail
    return ""


def is_turned_away(handshakes: Handshakes) -> bool:
    try:
        handshakes.check()
    except EventsRefused:
        return True
    return False


def is_let_in(endpoint: str, curve: Curve) -> bool:
    with zmq.Context() as context, context.socket(zmq.SUB) as updates:
        updates.linger = 0
        updates.subscribe("")
        curve.use(updates)
        handshakes = updates.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        )
        updates.connect(endpoint)
        event = recv_monitor_message(handshakes)["event"]
        updates.disable_monitor()
        handshakes.close()
    return bool(event == zmq.EVENT_HANDSHAKE_SUCCEEDED)


def test_a_follower_that_is_listed_has_what_the_server_has(tmp_path: Path) -> None:
    keys = CurveKeys(tmp_path)
    with publishing_server(*keys.options) as (server, endpoint, replay), Client(server.url) as client:
        lease = make_pool(server)
        cache(server, lease, 1, 2)
        with ZmqFollower(client.pool("pool"), endpoint, replay, curve=keys.make("router")) as follower:
            assert mirrored(follower) == stored_on(server)
            num_snapshots = follower.mirror.num_snapshots
            cache(server, lease, 3, 4)
            wait_for(lambda: follower.follow(0.1) == 0 and mirrored(follower) == stored_on(server))
            assert len(mirrored(follower)) == 8
            assert follower.mirror.num_snapshots == num_snapshots


def test_missed_batches_are_sent_again_to_who_is_listed_and_to_nobody_else(tmp_path: Path) -> None:
    keys = CurveKeys(tmp_path)
    router, stranger = keys.make("router"), keys.make("stranger", is_listed=False)
    with publishing_server(*keys.options) as (server, _, replay), zmq.Context() as context:
        cache(server, make_pool(server), 1)
        with (
            context.socket(zmq.DEALER) as listed,
            context.socket(zmq.DEALER) as other,
            closing(Handshakes(other)) as handshakes,
        ):
            for asking, curve in ((listed, router), (other, stranger)):
                asking.linger = 0
                asking.rcvtimeo = 20_000
                curve.use(asking)
                asking.connect(replay)
                asking.send_multipart([b"", bytes(8)])
            assert listed.recv_multipart()[2] == bytes(8)
            assert listed.recv_multipart()[2] == b"\xff" * 8
            wait_for(lambda: is_turned_away(handshakes))
            assert other.poll(0) == 0


def test_an_unknown_key_is_told_nothing(tmp_path: Path) -> None:
    keys = CurveKeys(tmp_path)
    keys.make("router")
    stranger = keys.make("stranger", is_listed=False)
    with publishing_server(*keys.options) as (server, endpoint, replay), Client(server.url) as client:
        lease = make_pool(server)
        with ZmqFollower(client.pool("pool"), endpoint, replay, curve=stranger) as follower:
            cache(server, lease, 1)
            wait_for(lambda: "does not know" in is_refused(follower))


def test_a_follower_without_a_key_is_told_nothing(tmp_path: Path) -> None:
    keys = CurveKeys(tmp_path)
    with publishing_server(*keys.options) as (server, endpoint, replay), Client(server.url) as client:
        lease = make_pool(server)
        with ZmqFollower(client.pool("pool"), endpoint, replay) as follower:
            cache(server, lease, 1)
            wait_for(lambda: "one side uses CURVE" in is_refused(follower))


def test_a_follower_with_a_key_does_not_listen_to_a_server_without(tmp_path: Path) -> None:
    router = CurveKeys(tmp_path).make("router")
    with publishing_server() as (server, endpoint, replay), Client(server.url) as client:
        lease = make_pool(server)
        with ZmqFollower(client.pool("pool"), endpoint, replay, curve=router) as follower:
            cache(server, lease, 1)
            wait_for(lambda: "one side uses CURVE" in is_refused(follower))


def test_a_follower_does_not_listen_to_another_server_than_it_knows(tmp_path: Path) -> None:
    keys = CurveKeys(tmp_path)
    router = keys.make("router")
    another = Curve(router.public_key, router.secret_key, server_key=router.public_key)
    with publishing_server(*keys.options) as (server, endpoint, replay), Client(server.url) as client:
        lease = make_pool(server)
        with ZmqFollower(client.pool("pool"), endpoint, replay, curve=another) as follower:
            cache(server, lease, 1)
            wait_for(lambda: "the server's public key" in is_refused(follower))


def test_a_key_is_let_in_once_it_is_listed_and_not_once_it_is_taken_away(tmp_path: Path) -> None:
    keys = CurveKeys(tmp_path)
    router = keys.make("router", is_listed=False)
    with publishing_server(*keys.options) as (_, endpoint, _):
        assert not is_let_in(endpoint, router)
        keys.admit("router")
        wait_for(lambda: is_let_in(endpoint, router))
        keys.dismiss("router")
        wait_for(lambda: not is_let_in(endpoint, router))


def test_a_file_that_holds_no_key_keeps_nobody_else_out(tmp_path: Path) -> None:
    keys = CurveKeys(tmp_path)
    (keys.followers / "a.key").write_text("half of a ke")
    (keys.followers / "b.key").mkdir()
    with publishing_server(*keys.options) as (_, endpoint, _):
        assert is_let_in(endpoint, keys.make("router"))


def test_without_anybody_who_knows_the_keys_nobody_is_let_in(tmp_path: Path) -> None:
    keys = CurveKeys(tmp_path)
    guarded = server_curve.Curve.read(Path(keys.server_secret), keys.followers)
    with (
        zmq.Context() as context,
        context.socket(zmq.PUB) as publish,
        context.socket(zmq.SUB) as updates,
        closing(Handshakes(updates)) as handshakes,
    ):
        guarded.guard(publish)  # and no door
        port = publish.bind_to_random_port("tcp://127.0.0.1")
        keys.make("router").use(updates)
        updates.connect(f"tcp://127.0.0.1:{port}")
        wait_for(lambda: is_turned_away(handshakes))


def test_a_secret_key_is_not_shown(tmp_path: Path) -> None:
    keys = CurveKeys(tmp_path)
    router = keys.make("router")
    guarded = server_curve.Curve.read(Path(keys.server_secret), keys.followers)
    assert router.secret_key.decode() not in repr(router)
    assert guarded.secret_key.decode() not in repr(guarded)


@pytest.mark.parametrize(
    ("key", "followers", "complaint"),
    [
        ("none.key_secret", "followers", "none.key_secret: "),
        ("server.key", "followers", "it has no secret key"),
        ("empty", "followers", "No public key"),
        ("nonsense", "followers", "nonsense: "),
        ("server.key_secret", "elsewhere", "is no directory"),
    ],
)
def test_keys_that_cannot_be_read_are_refused(
    tmp_path: Path, key: str, followers: str, complaint: str
) -> None:
    CurveKeys(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "nonsense").write_text('public-key = "x"\nsecret-key = "y"\n')
    with pytest.raises(EventsUnavailable, match=complaint):
        server_curve.Curve.read(tmp_path / key, tmp_path / followers)


def test_a_follower_needs_a_secret_key(tmp_path: Path) -> None:
    public = CurveKeys(tmp_path).server_public
    with pytest.raises(ValueError, match="no secret key"):
        Curve.read(public, public)


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://0.0.0.0:1", "tcp://*:1", "tcp://10.0.0.1:1", "tcp://[::]:1", "tcp://eth0:1", "tcp://x"],
)
def test_where_other_machines_can_come_events_need_keys(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"^--event-endpoint tcp.*whoever reaches this machine.*curve-key"):
        check_event_endpoint("--event-endpoint", endpoint, **NO_KEYS)
    check_event_endpoint("--event-endpoint", endpoint, **{**NO_KEYS, "has_curve": True})
    check_event_endpoint("--event-endpoint", endpoint, **{**NO_KEYS, "is_insecure": True})


@pytest.mark.parametrize(
    "endpoint", ["tcp://127.0.0.1:*", "tcp://127.1.2.3:1", "tcp://[::1]:1", "tcp://lo:1", "ipc://@x"]
)
def test_where_any_process_can_come_events_need_keys_if_callers_need_tokens(endpoint: str) -> None:
    check_event_endpoint("--event-endpoint", endpoint, **NO_KEYS)
    with pytest.raises(ValueError, match="every process of this machine"):
        check_event_endpoint("--event-endpoint", endpoint, **{**NO_KEYS, "is_authenticating": True})
    check_event_endpoint(
        "--event-endpoint", endpoint, has_curve=True, is_authenticating=True, is_insecure=False
    )


@pytest.mark.parametrize("endpoint", ["", "ipc:///run/events", "ipc://events"])
def test_a_file_guards_itself(endpoint: str) -> None:
    check_event_endpoint("--event-endpoint", endpoint, **{**NO_KEYS, "is_authenticating": True})


@pytest.mark.parametrize(
    "endpoint", ["epgm://lo;239.1.1.1:1", "ws://127.0.0.1:1", "inproc://x", "127.0.0.1:1"]
)
def test_what_keys_cannot_guard_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="neither at tcp:// nor at ipc://"):
        check_event_endpoint(
            "--event-endpoint", endpoint, has_curve=True, is_authenticating=True, is_insecure=True
        )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--event-endpoint", "tcp://0.0.0.0:*"), "whoever reaches this machine"),
        (
            ("--event-endpoint", "tcp://127.0.0.1:*", "--event-replay-endpoint", "tcp://0.0.0.0:*"),
            "--event-replay-endpoint tcp://0.0.0.0:* would tell",
        ),
        (
            ("--event-endpoint", "tcp://127.0.0.1:*", "--token-file", "tokens.json"),
            "every process of this machine",
        ),
        (("--event-endpoint", "ipc://x", "--event-curve-key", "x"), "go together"),
        (("--event-endpoint", "ipc://x", "--event-curve-clients", "x"), "go together"),
        (("--event-curve-key", "x", "--event-curve-clients", "x"), "goes with --event-endpoint"),
        (
            ("--event-endpoint", "ipc://x", "--event-curve-key", "nowhere", "--event-curve-clients", "x"),
            "--event-curve-key nowhere: ",
        ),
    ],
)
def test_a_server_that_would_tell_strangers_does_not_start(options: tuple[str, ...], complaint: str) -> None:
    ended = run("serve", "--volatile", "--port", "0", *options)
    assert ended.returncode in (1, 2)
    assert ended.stdout == ""
    assert complaint in ended.stderr.splitlines()[-1]


def test_a_server_that_is_told_so_publishes_to_everyone() -> None:
    endpoints = ("tcp://0.0.0.0:*", "tcp://0.0.0.0:*")
    with publishing_server("--insecure", endpoints=endpoints) as (server, _, _):
        assert server.call("GET", "/readyz")[0] == 200
