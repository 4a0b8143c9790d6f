"""The thread that calls for a worker: when it calls, and what it says of calls that fail."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from blockyard.client import ConnectionLost, PoolNotFound, WorkerReplaced
from blockyard.worker.heartbeats import Heartbeats
from worker.made_pools import wait_until


class Beating:
    """Notes when it is called, and does what a test says."""

    def __init__(self, act: Callable[[int], None], interval_s: float = 0.01) -> None:
        self._act = act
        self.heartbeat_interval_s = interval_s
        self.called_s: list[float] = []

    def beat(self) -> None:
        self.called_s.append(time.monotonic())
        self._act(len(self.called_s))


@contextmanager
def heartbeats(worker: Beating) -> Iterator[None]:
    thread = Heartbeats(worker)
    thread.start()
    yield
    thread.stop(5)


def test_a_failure_is_logged_when_it_begins_and_when_it_becomes_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool, lost, own = PoolNotFound("no pool"), ConnectionLost("no reply"), KeyError("a mistake")
    outcomes = [pool, pool, lost, lost, pool, own, own, None, own]

    def act(number: int) -> None:
        outcome = outcomes[number - 1] if number <= len(outcomes) else None
        if outcome is not None:
            raise outcome

    worker = Beating(act)
    with heartbeats(worker):
        wait_until(lambda: len(worker.called_s) > len(outcomes))
    said = [record.args for record in caplog.records if record.levelno == logging.WARNING]
    assert said == [(each,) for each in (pool, lost, pool, own, own)]


def test_calls_that_take_long_do_not_delay_each_other() -> None:
    worker = Beating(lambda _: time.sleep(0.5), interval_s=0.5)
    with heartbeats(worker):
        wait_until(lambda: len(worker.called_s) >= 4)
    assert worker.called_s[3] - worker.called_s[0] < 3 * 0.9


def test_the_interval_is_asked_for_each_time() -> None:
    def act(number: int) -> None:
        if number == 3:
            worker.heartbeat_interval_s = 30

    worker = Beating(act)
    with heartbeats(worker):
        wait_until(lambda: len(worker.called_s) >= 3)
        time.sleep(0.3)
        assert len(worker.called_s) == 3


@pytest.mark.parametrize("is_closing", [False, True])
def test_an_end_is_an_error_unless_it_was_asked_for(
    caplog: pytest.LogCaptureFixture, is_closing: bool
) -> None:
    def act(_: int) -> None:
        if is_closing:
            thread.stop(0)
        raise WorkerReplaced("for some reason")

    worker = Beating(act)
    thread = Heartbeats(worker)
    thread.start()
    thread._thread.join(5)
    assert len(worker.called_s) == 1
    assert ("this worker has ended: for some reason" in caplog.text) is not is_closing
