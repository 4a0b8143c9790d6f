"""How a lease is kept alive, lost and given up."""

import gc
import logging
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial

import pytest

from blockyard.client import (
    NO_RETRY,
    Client,
    ConnectionLost,
    HttpxTransport,
    LeaseExpired,
    NotReady,
    Pool,
    PoolNotFound,
    Request,
    Response,
)
from blockyard.client.retry import RetryPolicy
from blockyard.client.routes import Routes
from blockyard.client.sender import Sender
from client.peers import DROP, forward, peer, problem, response, silence
from waiting import wait_for

EXPIRED = problem(410, "lease_expired")


def granted(ttl_ms: int, status: int = 201) -> bytes:
    return response(status, {"lease_id": "l1", "epoch": 1, "ttl_ms": ttl_ms, "expires_at_ms": 1})


@pytest.fixture
def pool(server_url: str, pool_name: str) -> Iterator[Pool]:
    with Client(server_url) as client:
        yield client.create_pool(pool_name, num_blocks=64, block_size=16)


def renewing_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("renew ")]


wait_until = partial(wait_for, timeout_s=10.0)


def test_a_background_thread_keeps_a_lease_past_its_time(pool: Pool) -> None:
    with pool.lease("me", ttl_ms=2_000) as lease:
        lease.allocate_blocks(1)
        time.sleep(2.5)
        assert pool.stats().num_held_blocks == 1
        assert not lease.has_ended


def test_without_renewal_a_lease_ends_and_its_calls_ask_nobody(server_url: str, pool_name: str) -> None:
    with peer(forward(server_url)) as proxy, Client(proxy.url) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
        lease = pool.lease("me", ttl_ms=300, renew=False)
        wait_until(lambda: lease.has_ended)
        num_received = len(proxy.received)
        with pytest.raises(LeaseExpired):
            lease.allocate("one", 16)
        assert len(proxy.received) == num_received


def test_a_holder_whose_server_is_gone_is_told_in_time() -> None:
    with peer(granted(300), DROP) as server, Client(server.url, retries=NO_RETRY) as client:
        sent_s = time.monotonic()
        lease = client.pool("p").lease("me")
        wait_until(lambda: lease.has_ended)
        assert time.monotonic() - sent_s < 2.0
        with pytest.raises(LeaseExpired, match="another's"):
            lease.allocate("one", 16)


def test_a_lease_out_of_time_is_released_at_the_server_nevertheless() -> None:
    released = response(200, {"epoch": 1, "num_freed_sequences": 1, "num_freed_blocks": 2})
    with peer(granted(1), released) as server, Client(server.url) as client:
        lease = client.pool("p").lease("me", renew=False)
        wait_until(lambda: lease.has_ended)
        assert lease.release().num_freed_blocks == 2


def test_a_renewal_that_finds_the_lease_expired_ends_it_and_later_calls_ask_nobody() -> None:
    with peer(granted(600), EXPIRED) as server, Client(server.url) as client:
        lease = client.pool("p").lease("me")
        wait_until(lambda: len(server.received) == 2 and lease.has_ended)
        with pytest.raises(LeaseExpired):
            lease.allocate("one", 16)
        assert len(server.received) == 2


def test_one_renewal_that_hangs_does_not_lose_the_lease() -> None:
    over = threading.Event()
    with peer(granted(2_000), silence(over), granted(2_000, 200)) as server, Client(server.url) as client:
        lease = client.pool("p").lease("me")
        wait_until(lambda: len(server.received) >= 4)
        assert not lease.has_ended
        over.set()


class OddlyFailing:
    """Carries what creates a lease, and fails at all else as no transport should."""

    def send(self, request: Request, timeout_s: float) -> Response:
        del timeout_s
        if not request.target.endswith("/leases"):
            raise ValueError("an address that cannot be")
        body = granted(300).partition(b"\r\n\r\n")[2]
        return Response(201, {"content-type": "application/json"}, body)

    def close(self) -> None: ...


def test_a_renewal_that_fails_oddly_is_logged_and_the_lease_ends(caplog: pytest.LogCaptureFixture) -> None:
    with Client("http://server.test", transport=OddlyFailing()) as client:
        lease = client.pool("p").lease("me")
        wait_until(lambda: lease.has_ended and renewing_threads() == [])
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert "an address that cannot be" in caplog.text
    assert "has ended" in caplog.text


def test_a_forgotten_lease_whose_renewals_fail_is_not_kept_alive() -> None:
    with peer(granted(3_000), problem(503, "not_ready")) as server, Client(server.url) as client:
        lease = client.pool("p").lease("me")
        wait_until(lambda: len(server.received) >= 2)
        known = weakref.ref(lease)
        del lease
        wait_until(lambda: known() is None, timeout_s=1.0)
        wait_until(lambda: renewing_threads() == [])


def test_leaving_a_lease_ends_its_thread(pool: Pool) -> None:
    with pool.lease("me"):
        assert len(renewing_threads()) == 1
    assert renewing_threads() == []


def test_closing_the_client_ends_the_threads_of_its_leases(pool: Pool, server_url: str) -> None:
    with Client(server_url) as client:
        lease = client.pool(pool.name).lease("me")
    assert renewing_threads() == []
    assert not lease.has_ended


@pytest.mark.parametrize("transport", ["lean", "httpx"])
def test_a_closed_client_refuses_calls_and_leases_at_once(
    pool: Pool, server_url: str, transport: str
) -> None:
    client = Client(server_url, transport="lean" if transport == "lean" else HttpxTransport())
    lease = client.pool(pool.name).lease("me")
    client.close()
    began_s = time.monotonic()
    for call in (client.pools, lambda: lease.allocate("one", 16), lambda: client.pool("p").lease("me")):
        with pytest.raises(RuntimeError, match="the client is closed"):
            call()
    assert time.monotonic() - began_s < 0.5
    client.close()


class Background:
    """Something that uses a sender and takes long to end."""

    def __init__(self, told: list[str], join_s: float = 0.0) -> None:
        self.told = told
        self.join_s = join_s

    def signal(self) -> None:
        self.told.append("signal")

    def join(self, timeout_s: float) -> None:
        self.told.append("join")
        time.sleep(min(self.join_s, timeout_s))


def sender() -> Sender:
    return Sender(OddlyFailing(), Routes(["http://server.test"]), RetryPolicy(), 1.0)


def test_all_that_runs_in_the_background_is_told_first_and_waited_for_within_one_deadline() -> None:
    closing, told = sender(), list[str]()
    users = [Background(told, join_s=0.7) for _ in range(8)]
    for user in users:
        closing.add_user(user)
    began_s = time.monotonic()
    closing.close()
    assert told == ["signal"] * 8 + ["join"] * 8
    assert time.monotonic() - began_s < 2.0


def test_what_is_added_while_a_sender_closes_is_stopped_or_refused() -> None:
    for _ in range(20):
        closing, told = sender(), list[str]()
        users: list[Background] = []
        begun = threading.Event()

        def add(to: Sender, users: list[Background], told: list[str], begun: threading.Event) -> None:
            while True:
                user = Background(told)
                try:
                    to.add_user(user)
                except RuntimeError:
                    return
                users.append(user)
                begun.set()

        adding = threading.Thread(target=add, args=(closing, users, told, begun))
        adding.start()
        begun.wait(5)
        closing.close()
        adding.join()
        assert told.count("signal") == len(users)


def test_a_forgotten_lease_ends_its_thread(pool: Pool) -> None:
    lease = pool.lease("me")
    del lease
    gc.collect()
    wait_until(lambda: renewing_threads() == [])


def test_a_release_may_be_repeated(pool: Pool) -> None:
    lease = pool.lease("me")
    lease.allocate_blocks(2)
    assert [lease.release().num_freed_blocks for _ in range(2)] == [2, 0]


def test_a_release_that_fails_has_ended_renewal_and_the_lease_expires_by_itself() -> None:
    with (
        peer(granted(300), problem(503, "not_ready")) as server,
        Client(server.url, retries=NO_RETRY) as client,
    ):
        lease = client.pool("p").lease("me")
        with pytest.raises(NotReady):
            lease.release()
        assert renewing_threads() == []
        wait_until(lambda: lease.has_ended)


def test_a_release_whose_reply_was_lost_may_be_repeated() -> None:
    with peer(granted(9_000), DROP, EXPIRED) as server, Client(server.url, retries=NO_RETRY) as client:
        lease = client.pool("p").lease("me")
        with pytest.raises(ConnectionLost):
            lease.release()
        assert lease.release().num_freed_blocks == 0


def test_the_blocks_own_error_is_not_hidden_by_a_client_that_was_closed(pool: Pool, server_url: str) -> None:
    client = Client(server_url)

    def close_and_fail() -> None:
        with client.pool(pool.name).lease("me"):
            client.close()
            raise KeyError

    with pytest.raises(KeyError):
        close_and_fail()


def test_threads_share_a_lease_also_for_steps(pool: Pool) -> None:
    refused: list[Exception] = []
    with pool.lease("me") as lease:

        def work() -> None:
            for _ in range(50):
                try:
                    lease.step()
                except Exception as error:  # noqa: BLE001 - told below
                    refused.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert refused == []


def fail_under(pool: Pool) -> None:
    with pool.lease("me", renew=False) as lease:
        lease.allocate_blocks(2)
        raise KeyError


def test_a_lease_is_released_when_its_block_raises(pool: Pool) -> None:
    with pytest.raises(KeyError):
        fail_under(pool)
    assert pool.stats().num_held_blocks == 0


def test_the_blocks_own_error_is_not_hidden_by_a_release_that_fails() -> None:
    given = response(200, {"epoch": 1, "block_ids": [1, 2], "num_free_blocks": 3})
    with peer(granted(9_000), given, problem(422, "invalid_request")) as server, Client(server.url) as client:
        with pytest.raises(KeyError):
            fail_under(client.pool("p"))
        assert len(server.received) == 3


def test_a_lease_tells_its_facts(pool: Pool) -> None:
    with pool.lease("me", ttl_ms=1_234) as lease:
        assert (lease.ttl_ms, lease.epoch, bool(lease.lease_id)) == (1_234, 1, True)


def test_a_pool_that_is_gone_has_ended_its_lease_which_is_left_quietly(pool: Pool) -> None:
    with pool.lease("me") as lease:
        lease.allocate_blocks(2)
        pool.delete(force=True)
        for _ in range(2):
            with pytest.raises(PoolNotFound):
                lease.allocate("one", 16)
        assert lease.has_ended
        wait_until(lambda: renewing_threads() == [])
    assert lease.release().num_freed_blocks == 0


def test_a_pool_that_is_gone_is_found_by_a_renewal(caplog: pytest.LogCaptureFixture) -> None:
    with peer(granted(600), problem(404, "pool_not_found")) as server, Client(server.url) as client:
        with client.pool("p").lease("me") as lease:
            wait_until(lambda: renewing_threads() == [])
            assert lease.has_ended
        assert len(server.received) == 2
    assert "its pool is gone" in caplog.text


def test_a_lease_of_a_pool_that_is_gone_is_released_quietly(pool: Pool) -> None:
    with pool.lease("me"):
        pool.delete(force=True)


def test_a_description_renews_no_lease_and_finds_its_pool_gone(pool: Pool) -> None:
    with pool.lease("me", ttl_ms=60_000, renew=False) as lease:
        assert lease.describe_pool() == pool.describe()
        pool.delete(force=True)
        with pytest.raises(PoolNotFound):
            lease.describe_pool()
        assert lease.has_ended


def test_a_lease_shows_its_pool_and_whether_it_has_ended(pool: Pool) -> None:
    lease = pool.lease("me")
    assert repr(lease) == f"<Lease {lease.lease_id!r} of pool {pool.name!r}>"
    lease.release()
    assert repr(lease).endswith(", ended>")
