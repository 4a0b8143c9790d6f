"""The check finds what no order explains and nothing else: beside a search through all orders, and long."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cluster.linearizability import Model, Operation, check

Asked = tuple[str, int]
"""``("write", value)``, ``("add", value)`` or ``("read", 0)``."""
History = list[Operation[Asked, int]]


class Register(Model[int, Asked, int]):
    """A number that is written, added to and read; each call is told the number after it."""

    @property
    def initial(self) -> int:
        return 0

    def step(self, state: int, asked: Asked, told: int | None) -> int | None:
        verb, value = asked
        after = {"write": value, "add": state + value, "read": state}[verb]
        return after if told in (None, after) else None


REGISTER = Register()


def operation(
    began: int, ended: int | None, verb: str, value: int, told: int | None
) -> Operation[Asked, int]:
    return Operation(began_ns=began, ended_ns=ended, asked=(verb, value), told=told)


def write(began: int, ended: int | None, value: int) -> Operation[Asked, int]:
    return operation(began, ended, "write", value, None if ended is None else value)


def read(began: int, ended: int, told: int) -> Operation[Asked, int]:
    return operation(began, ended, "read", 0, told)


def run_concurrently(draw: random.Random, num_calls: int, num_clients: int, open_share: float) -> History:
    """A register in use: each call is carried out at a moment of its own between its begin and its end."""
    state, history = 0, []
    free_at = [0] * num_clients
    calls = []
    for _ in range(num_calls):
        client = draw.randrange(num_clients)
        began = free_at[client] + draw.randint(1, 20)
        moment, ended = sorted(draw.sample(range(began + 1, began + 60), 2))
        free_at[client] = ended
        verb = draw.choice(["write", "add", "read", "read"])
        calls.append((moment, began, ended, (verb, draw.randint(1, 5))))
    for _, began, ended, (verb, value) in sorted(calls):
        told = REGISTER.step(state, (verb, value), None)
        assert told is not None
        if draw.random() < open_share:
            history.append(operation(began, None, verb, value, None))
            state = draw.choice([state, told])  # it took effect, or never does
            continue
        state = told
        history.append(operation(began, ended, verb, value, told))
    return history


def has_an_order(history: Sequence[Operation[Asked, int]]) -> bool:
    """By trying them all, with and without each call that is open."""
    closed = [each for each in history if each.ended_ns is not None]
    is_open = [each for each in history if each.ended_ns is None]
    chosen = itertools.chain.from_iterable(
        itertools.combinations(is_open, count) for count in range(len(is_open) + 1)
    )
    return any(explains(order) for some in chosen for order in itertools.permutations([*closed, *some]))


def explains(order: Sequence[Operation[Asked, int]]) -> bool:
    for number, each in enumerate(order):
        if any(later.ended_ns is not None and later.ended_ns < each.began_ns for later in order[number:]):
            return False
    state: int | None = 0
    for each in order:
        if state is None:
            return False
        state = REGISTER.step(state, each.asked, each.told)
    return state is not None


@st.composite
def small_histories(draw: st.DrawFn) -> History:
    """Any at all: most have no order."""
    history: History = []
    for _ in range(draw(st.integers(1, 5))):
        began = draw(st.integers(0, 12))
        is_open = draw(st.booleans()) and draw(st.booleans())
        verb = draw(st.sampled_from(["write", "add", "read"]))
        value = draw(st.integers(1, 2))
        told = None if is_open else draw(st.integers(0, 3))
        ended = None if is_open else began + draw(st.integers(1, 8))
        history.append(operation(began, ended, verb, value, told))
    return history


@given(small_histories())
def test_it_says_what_a_search_through_all_orders_says(history: History) -> None:
    assert (check(REGISTER, history) is None) is has_an_order(history)


@given(st.randoms(use_true_random=False), st.sampled_from([0.0, 0.05]))
def test_what_a_register_in_use_did_is_accepted(draw: random.Random, open_share: float) -> None:
    history = run_concurrently(draw, num_calls=60, num_clients=5, open_share=open_share)
    assert check(REGISTER, history) is None


def test_a_long_history_is_accepted_and_one_wrong_answer_in_it_found() -> None:
    history = run_concurrently(random.Random(7), num_calls=20_000, num_clients=6, open_share=0.0)
    assert check(REGISTER, history) is None
    wrong = next(number for number in range(15_000, 20_000) if history[number].asked[0] == "read")
    history[wrong] = replace(history[wrong], told=-1)
    stuck = check(REGISTER, history)
    assert stuck is not None
    assert history[wrong] in stuck.next


def test_a_stale_read_is_found() -> None:
    history = [write(0, 1, 1), write(2, 3, 2), read(4, 5, 1)]
    stuck = check(REGISTER, history)
    assert stuck is not None
    assert (stuck.num_ordered, stuck.state, stuck.next) == (2, 2, (history[2],))
    assert str(stuck) == "2 calls lead to 2, where no other goes on: at 0.0000 s (0.0 ms): ('read', 0) -> 1"


def test_a_lost_update_is_found() -> None:
    assert check(REGISTER, [operation(0, 1, "add", 1, 1), operation(2, 3, "add", 1, 1)]) is not None


def test_reads_that_go_back_during_a_write_are_found() -> None:
    assert check(REGISTER, [write(0, 10, 1), read(1, 2, 1), read(3, 4, 1)]) is None
    assert check(REGISTER, [write(0, 10, 1), read(1, 2, 1), read(3, 4, 0)]) is not None


def test_a_call_without_an_answer_may_take_effect_late_or_never() -> None:
    late = [write(0, None, 1), read(1, 2, 0), read(3, 4, 1)]
    assert check(REGISTER, late) is None
    assert check(REGISTER, late[:2]) is None
    assert check(REGISTER, [*late, read(5, 6, 0)]) is not None


def test_calls_whose_ends_meet_are_at_the_same_time() -> None:
    assert check(REGISTER, [read(0, 5, 1), write(5, 9, 1)]) is None


def test_a_history_of_nothing_is_accepted() -> None:
    assert check(REGISTER, []) is None
