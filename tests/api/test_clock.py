"""The server's time, on a steady clock that the tests move."""

from blockyard.server.clock import MAX_STEP_NS, Clock

MS = 1_000_000


class Steady:
    """A steady clock at a time of our choosing."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def test_time_moves_on_with_the_steady_clock() -> None:
    steady = Steady()
    clock = Clock(steady)
    began_ms = clock.now_ms()
    for _ in range(100):
        steady.now_ns += 20 * MS
        clock.tick()
    steady.now_ns += 7 * MS
    assert clock.now_ms() - began_ms == 2_007


def test_a_standstill_counts_as_one_step() -> None:
    steady = Steady()
    clock = Clock(steady)
    began_ms = clock.now_ms()
    steady.now_ns += 60_000 * MS
    assert clock.now_ms() - began_ms == MAX_STEP_NS // MS
    clock.tick()
    assert clock.now_ms() - began_ms == MAX_STEP_NS // MS
    steady.now_ns += 5 * MS
    assert clock.now_ms() - began_ms == MAX_STEP_NS // MS + 5


def test_a_time_to_come_is_told_as_it_will_really_be_whatever_the_server_slept() -> None:
    steady = Steady()
    clock = Clock(steady)
    began_ms = clock.now_ms()
    steady.now_ns += 60_000 * MS
    assert clock.real_ms(clock.now_ms() + 1_000) - began_ms == 61_000
    clock.tick()
    steady.now_ns += 5 * MS
    assert clock.real_ms(clock.now_ms() + 1_000) - began_ms == 61_005


def test_a_time_to_come_is_told_the_same_again_while_the_steady_clock_moves_between_its_readings() -> None:
    steady = Steady()
    clock = Clock(lambda: moving(steady))
    to_come_ms = clock.now_ms() + 1_000
    assert len({clock.real_ms(to_come_ms) for _ in range(50)}) == 1


def moving(steady: Steady) -> int:
    steady.now_ns += 3 * MS // 10
    return steady.now_ns


def test_time_goes_on_from_what_was_told_before_the_process_began() -> None:
    steady = Steady()
    clock = Clock(steady)
    later_ms = clock.now_ms() + 5_000
    clock.not_before(later_ms)
    assert clock.now_ms() == later_ms
    clock.not_before(later_ms - 3_000)
    assert clock.now_ms() == later_ms
    steady.now_ns += 20 * MS
    clock.tick()
    assert clock.now_ms() == later_ms + 20
