"""How long a lease stands and when it is renewed, by a clock that the test holds."""

import logging

import pytest

from blockyard.client import ConnectionLost, LeaseExpired, LeaseGranted
from blockyard.client.delivery import Pause
from blockyard.client.lease_state import LeaseState
from blockyard.client.renewal import Renew, renew_in_time
from blockyard.core.ids import LeaseId

FAILED = ConnectionLost("lost")


def granted_at(now_s: float, ttl_ms: int = 9_000) -> LeaseState:
    lease = LeaseGranted(epoch=1, lease_id=LeaseId("l"), ttl_ms=ttl_ms, expires_at_ms=0)
    return LeaseState(lease, now_s)


class World:
    """A clock that moves with the pauses, and a server that answers renewals after ``takes_s``."""

    def __init__(self, state: LeaseState, now_s: float) -> None:
        self.state = state
        self.now_s = now_s
        self.renewed_at_s: list[float] = []
        self.renewing = renew_in_time(state, lambda: self.now_s)
        self.action = next(self.renewing)

    def pause(self) -> Renew:
        """Until the next renewal is due."""
        while isinstance(self.action, Pause):
            self.now_s += self.action.seconds
            self.action = self.renewing.send(None)
        return self.action

    def renew(self, takes_s: float = 0.0, error: Exception | None = None) -> None:
        """The renewal that is due."""
        assert isinstance(self.action, Renew), "none is due"
        sent_s = self.now_s
        self.renewed_at_s.append(sent_s)
        self.now_s += takes_s
        if error is None:
            self.state.note_renewed(sent_s, self.now_s)
        self.action = self.renewing.send(error)


def test_a_lease_stands_for_its_time_from_when_the_last_answered_call_was_sent() -> None:
    state = granted_at(100.0)
    assert [state.has_ended(now_s) for now_s in (100.0, 108.9, 109.0)] == [False, False, True]
    state.note_renewed(104.0, 105.0)
    assert [state.has_ended(now_s) for now_s in (112.9, 113.0)] == [False, True]


def test_an_older_call_that_is_answered_later_takes_nothing_back() -> None:
    state = granted_at(100.0)
    state.note_renewed(104.0, 105.0)
    state.note_renewed(101.0, 106.0)
    assert not state.has_ended(112.9)


def test_a_lease_that_has_ended_never_stands_again() -> None:
    state = granted_at(100.0)
    state.note_renewed(108.0, 109.5)  # answered after the holder had to stop
    assert state.has_ended(110.0)


def test_a_lease_out_of_time_refuses_calls() -> None:
    state = granted_at(100.0)
    state.check(108.9)
    with pytest.raises(LeaseExpired, match="not renewed within its 9 s"):
        state.check(109.0)


def test_a_refusal_by_the_server_is_told_again_in_its_words() -> None:
    state = granted_at(100.0)
    state.note_ended(LeaseExpired("gone, says the server"))
    with pytest.raises(LeaseExpired, match="says the server"):
        state.check(101.0)


def test_renewal_is_due_after_a_third_of_the_time() -> None:
    state = granted_at(100.0)
    assert state.renewal_in_s(101.0) == 2.0
    assert state.renewal_in_s(104.0) == 0.0


def test_another_call_puts_the_renewal_off() -> None:
    world = World(granted_at(100.0), 100.0)
    world.now_s = 102.0
    world.state.note_renewed(102.0, 102.0)
    world.pause()
    assert world.now_s == 105.0


def test_a_lease_is_renewed_again_and_again() -> None:
    world = World(granted_at(100.0), 100.0)
    for _ in range(4):
        world.pause()
        world.renew(takes_s=0.5)
    assert world.renewed_at_s == [103.0, 106.0, 109.0, 112.0]


def test_a_renewal_that_hangs_is_given_up_in_time_for_the_next() -> None:
    world = World(granted_at(100.0), 100.0)
    assert world.pause().timeout_s == 3.0
    world.renew(takes_s=3.0, error=FAILED)
    world.pause()
    world.renew(takes_s=0.1)
    assert world.renewed_at_s == [103.0, 106.0]
    assert not world.state.has_ended(114.9)


def test_renewals_that_fail_fast_are_tried_again_after_a_tenth_of_the_time() -> None:
    world = World(granted_at(100.0), 100.0)
    for _ in range(3):
        world.pause()
        world.renew(error=FAILED)
    assert world.renewed_at_s == pytest.approx([103.0, 103.9, 104.8])


def test_what_nobody_expected_does_not_end_renewal_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World(granted_at(100.0), 100.0)
    world.pause()
    world.renew(error=ValueError("odd"))
    world.pause()
    world.renew()
    assert [(record.levelno, record.name) for record in caplog.records] == [
        (logging.WARNING, "blockyard.client")
    ]
    assert "odd" in caplog.text


def test_a_lease_that_cannot_be_renewed_ends_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    world = World(granted_at(100.0), 100.0)

    def fail_on() -> None:
        while True:
            world.pause()
            world.renew(error=FAILED)

    with pytest.raises(StopIteration):
        fail_on()
    assert world.now_s >= 109.0
    assert world.state.has_ended(world.now_s)
    assert "lease l has ended" in caplog.text


def test_a_released_lease_ends_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    world = World(granted_at(100.0), 100.0)
    world.state.note_released()
    with pytest.raises(StopIteration):
        world.pause()
    assert caplog.records == []
