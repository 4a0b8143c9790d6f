"""A worker's place when replies are lost or late: it ends where it has to, and leaves nothing behind."""

import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, TypeAlias

import pytest

from blockyard.client import Client, ConnectionLost, Pool, WorkerReplaced
from blockyard.worker import Worker
from client.peers import Received, forward, peer, problem, silence, swallow
from worker.made_pools import plan

Answering: TypeAlias = Callable[[Received], bytes]


class Switch:
    """What a server answers: as the real one, until a test says otherwise."""

    def __init__(self, url: str) -> None:
        self.real = forward(url)
        self.answer: Answering = self.real

    def __call__(self, request: Received) -> bytes:
        return self.answer(request)


def is_registering(request: Received) -> bool:
    return request.method == "POST" and request.target.endswith("/workers")


def make(client: Client, name: str, **options: Any) -> Pool:
    """A pool of a plan with ``options``, whose workers call so seldom that only the test does."""
    return client.create_pool(name, plan=plan(**options), worker_timeout_ms=60_000)


def make_anew(client: Client, name: str, **options: Any) -> None:
    client.pool(name).delete()
    make(client, name, **options)


def test_memory_that_does_not_fit_ends_though_the_server_cannot_be_told(
    client: Client, url: str, name: str
) -> None:
    make(client, name)
    switch = Switch(url)
    with peer(switch) as server, Worker(server.url, name) as worker:
        make_anew(client, name, layout="BLHNC")
        switch.answer = lambda request: b"" if request.method == "DELETE" else switch.real(request)
        with pytest.raises(WorkerReplaced, match="another plan"):
            worker.beat()
        with pytest.raises(WorkerReplaced, match="another plan"):
            worker.check()
        switch.answer = switch.real
    assert client.pool(name).workers() == []


def test_a_rank_that_is_not_there_any_more_ends(client: Client, url: str, name: str) -> None:
    make(client, name, num_ranks=2)
    with Worker(url, name, rank=1) as worker:
        make_anew(client, name, num_ranks=1)
        for call in (worker.beat, worker.check):
            with pytest.raises(WorkerReplaced, match="has no place for this worker"):
                call()


def test_a_pool_made_anew_without_a_plan_ends(client: Client, url: str, name: str) -> None:
    pool = make(client, name)
    with Worker(url, name) as worker:
        pool.delete()
        client.create_pool(name, num_blocks=8, block_size=4)
        with pytest.raises(WorkerReplaced, match="another plan"):
            worker.beat()
        assert pool.workers() == []


def test_a_refusal_for_want_of_a_plan_ends(client: Client, url: str, name: str) -> None:
    make(client, name)
    switch = Switch(url)
    with peer(switch) as server, Worker(server.url, name) as worker:
        switch.answer = lambda request: problem(
            404, "plan_not_found" if is_registering(request) else "worker_not_found"
        )
        with pytest.raises(WorkerReplaced, match="why plan_not_found"):
            worker.beat()
        assert worker.has_ended


def test_a_plan_is_compared_though_the_reply_to_registering_again_was_lost(
    client: Client, url: str, name: str
) -> None:
    pool = make(client, name)
    switch = Switch(url)
    with peer(switch) as server, Worker(server.url, name) as worker:
        make_anew(client, name, layout="BLHNC")
        switch.answer = swallow(switch.real, "/workers")
        with pytest.raises(ConnectionLost):
            worker.beat()
        assert not worker.has_ended
        assert len(pool.workers()) == 1
        with pytest.raises(WorkerReplaced, match="another plan"):
            worker.beat()
        assert pool.workers() == []


def test_a_worker_whose_registration_is_not_answered_leaves_none(client: Client, url: str, name: str) -> None:
    pool = client.create_pool(name, plan=plan())
    before = set(threading.enumerate())
    with peer(swallow(forward(url), "/workers", times=99)) as server:
        with pytest.raises(ConnectionLost):
            Worker(server.url, name)
        assert any(is_registering(request) for request in server.received)
    assert pool.workers() == []
    assert set(threading.enumerate()) == before


def test_closing_beside_a_registration_leaves_none(client: Client, url: str, name: str) -> None:
    pool = make(client, name)
    is_asked, may_go_on = threading.Event(), threading.Event()
    switch = Switch(url)

    def slow(request: Received) -> bytes:
        if is_registering(request):
            is_asked.set()
            assert may_go_on.wait(10)
        return switch.real(request)

    def beat() -> None:
        with suppress(WorkerReplaced):
            worker.beat()

    with peer(switch) as server:
        worker = Worker(server.url, name)
        make_anew(client, name)
        switch.answer = slow
        beating = threading.Thread(target=beat)
        beating.start()
        assert is_asked.wait(10)
        threading.Timer(0.5, may_go_on.set).start()
        worker.close()
        beating.join(10)
        assert pool.workers() == []
        with pytest.raises(WorkerReplaced, match="is closed"):
            worker.beat()
        assert pool.workers() == []


def test_closing_from_a_signal_in_the_midst_of_registering_leaves_none(
    client: Client, url: str, name: str
) -> None:
    pool = make(client, name)
    switch, is_closed = Switch(url), threading.Event()
    main_thread = threading.get_ident()

    def interrupting(request: Received) -> bytes:
        if is_registering(request):
            signal.pthread_kill(main_thread, signal.SIGUSR1)
            assert is_closed.wait(10)
        return switch.real(request)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        worker.close()
        is_closed.set()

    with peer(switch) as server:
        worker = Worker(server.url, name)
        make_anew(client, name)
        switch.answer = interrupting
        before = signal.signal(signal.SIGUSR1, on_signal)
        try:
            with pytest.raises(WorkerReplaced, match="is closed"):
                worker.beat()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert pool.workers() == []


def test_closing_does_not_wait_long_for_a_server_that_says_nothing(
    client: Client, url: str, name: str
) -> None:
    client.create_pool(name, plan=plan(), worker_timeout_ms=500)
    switch, is_over = Switch(url), threading.Event()
    with peer(switch) as server:
        worker = Worker(server.url, name)
        switch.answer = silence(is_over)
        time.sleep(0.3)  # a heartbeat is under way
        begun_s = time.monotonic()
        worker.close()
        assert time.monotonic() - begun_s < 5
        is_over.set()


def test_a_heartbeat_may_take_longer_than_its_interval(client: Client, url: str, name: str) -> None:
    client.create_pool(name, plan=plan(), worker_timeout_ms=100)
    switch = Switch(url)

    def slow(request: Received) -> bytes:
        time.sleep(0.2)
        return switch.real(request)

    with peer(switch) as server, Worker(server.url, name) as worker:
        switch.answer = slow
        worker.beat()
