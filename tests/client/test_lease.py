"""How a lease is kept alive, lost and given up."""

import gc
import threading
import time
from collections.abc import Iterator

import pytest

from blockyard.client import NO_RETRY, Client, LeaseExpired, Pool
from blockyard.client.lease_state import LeaseState
from blockyard.core.ids import LeaseId
from client.peers import Answer, forward, peer, problem, response

GRANTED = response(201, {"lease_id": "l1", "epoch": 1, "ttl_ms": 90, "expires_at_ms": 1})
EXPIRED = problem(410, "lease_expired")


@pytest.fixture
def pool(server_url: str, pool_name: str) -> Iterator[Pool]:
    with Client(server_url) as client:
        yield client.create_pool(pool_name, num_blocks=64, block_size=16)


def renewing_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("renew ")]


def wait_until(condition: object, timeout_s: float = 5.0) -> None:
    assert callable(condition)
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


def test_renewal_is_due_after_a_third_of_the_time() -> None:
    state = LeaseState(LeaseId("l"), 9_000, 100.0)
    assert state.renewal_in_s(101.0) == 2.0
    assert state.renewal_in_s(104.0) == 0.0


def test_another_call_puts_the_renewal_off() -> None:
    state = LeaseState(LeaseId("l"), 9_000, 100.0)
    state.renewed(102.0)
    assert state.renewal_in_s(103.0) == 2.0


def test_a_background_thread_keeps_a_lease_past_its_time(pool: Pool) -> None:
    with pool.lease("me", ttl_ms=400) as lease:
        lease.allocate_blocks(1)
        time.sleep(0.9)
        assert pool.stats().num_held_blocks == 1
        assert not lease.lost


def test_without_renewal_a_lease_is_lost(pool: Pool) -> None:
    lease = pool.lease("me", ttl_ms=50, renew=False)
    lease.allocate_blocks(1)
    wait_until(lambda: pool.stats().num_leases == 0)
    with pytest.raises(LeaseExpired):
        lease.allocate("one", 16)
    assert lease.lost
    assert pool.stats().num_held_blocks == 0


def test_a_renewal_that_finds_the_lease_expired_marks_it_lost_and_later_calls_ask_nobody() -> None:
    with peer(GRANTED, EXPIRED) as server, Client(server.url) as client:
        lease = client.pool("p").lease("me")
        wait_until(lambda: lease.lost)
        num_received = len(server.received)
        with pytest.raises(LeaseExpired):
            lease.allocate("one", 16)
        assert len(server.received) == num_received


def test_busy_leases_are_not_renewed_besides(server_url: str, pool_name: str) -> None:
    with peer(forward(server_url)) as proxy, Client(proxy.url) as client:
        with client.create_pool(pool_name, num_blocks=64, block_size=16).lease("me", ttl_ms=600) as lease:
            for number in range(40):
                lease.allocate(f"s{number}", 1)
                time.sleep(0.01)
        assert not [request for request in proxy.received if request.target.endswith("/renew")]


def test_a_renewal_that_fails_is_tried_again() -> None:
    failing: Answer = problem(503, "not_ready")
    renewed = response(200, {"lease_id": "l1", "epoch": 1, "ttl_ms": 90, "expires_at_ms": 1})
    with peer(GRANTED, failing, failing, renewed) as server, Client(server.url, retries=NO_RETRY) as client:
        lease = client.pool("p").lease("me")
        wait_until(lambda: len(server.received) >= 5)
        assert not lease.lost


def test_leaving_a_lease_ends_its_thread(pool: Pool) -> None:
    with pool.lease("me"):
        assert len(renewing_threads()) == 1
    assert renewing_threads() == []


def test_closing_the_client_ends_the_threads_of_its_leases(pool: Pool, server_url: str) -> None:
    with Client(server_url) as client:
        lease = client.pool(pool.name).lease("me", ttl_ms=1_000)
    assert renewing_threads() == []
    assert not lease.lost


def test_a_forgotten_lease_ends_its_thread(pool: Pool) -> None:
    lease = pool.lease("me", ttl_ms=1_000)
    del lease
    gc.collect()
    wait_until(lambda: renewing_threads() == [])


def test_a_release_may_be_repeated(pool: Pool) -> None:
    lease = pool.lease("me")
    lease.allocate_blocks(2)
    assert [lease.release().num_freed_blocks for _ in range(2)] == [2, 0]


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
    with peer(GRANTED, given, problem(422, "invalid_request")) as server, Client(server.url) as client:
        with pytest.raises(KeyError):
            fail_under(client.pool("p"))
        assert len(server.received) == 3


def test_a_lease_tells_its_facts(pool: Pool) -> None:
    with pool.lease("me", ttl_ms=1_234) as lease:
        assert (lease.ttl_ms, lease.epoch, bool(lease.lease_id)) == (1_234, 1, True)
