"""Who is next in line: in the order of coming within a tenant, by weight across tenants."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.ids import TenantId
from blockyard.core.waiting_line import WaitingLine

RED, BLUE = TenantId("red"), TenantId("blue")


def serve(
    line: WaitingLine[tuple[TenantId, int]], weights: dict[TenantId, int], num_blocks: int = 1
) -> tuple[TenantId, int]:
    """Serve whoever is next."""
    waiter = next(iter(line.first_of_each()))
    line.served(waiter[0], num_blocks, weights[waiter[0]])
    line.leave(waiter[0], waiter)
    return waiter


def make_line(num_each: int) -> WaitingLine[tuple[TenantId, int]]:
    line: WaitingLine[tuple[TenantId, int]] = WaitingLine()
    for number in range(num_each):
        for tenant in (RED, BLUE):
            line.join(tenant, (tenant, number))
    return line


def test_a_tenants_waiters_are_served_in_the_order_in_which_they_came() -> None:
    line = make_line(4)
    served = [serve(line, {RED: 1, BLUE: 3}) for _ in range(8)]
    for tenant in (RED, BLUE):
        assert [waiter for waiter in served if waiter[0] == tenant] == [(tenant, n) for n in range(4)]
    assert list(line) == []


@given(
    weights=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    sizes=st.lists(st.integers(1, 9), min_size=200, max_size=200),
)
def test_tenants_that_always_wait_get_blocks_by_their_weights(
    weights: tuple[int, int], sizes: list[int]
) -> None:
    line, by_name = make_line(200), dict(zip((RED, BLUE), weights, strict=True))
    given_blocks: Counter[TenantId] = Counter()
    for size in sizes:
        tenant, _ = serve(line, by_name, size)
        given_blocks[tenant] += size
        # Never apart by more than what one of them is given at a time.
        apart = given_blocks[RED] / by_name[RED] - given_blocks[BLUE] / by_name[BLUE]
        assert -9 / by_name[BLUE] - 1e-9 <= apart <= 9 / by_name[RED] + 1e-9


def test_one_that_comes_back_each_time_gets_no_more_than_its_share() -> None:
    """Who waits with one call at a time, and is forgotten in between, is not first each time."""
    line: WaitingLine[tuple[TenantId, int]] = WaitingLine()
    for number in range(20):
        line.join(BLUE, (BLUE, number))
    line.join(RED, (RED, 0))
    counts: Counter[TenantId] = Counter()
    for number in range(1, 21):
        tenant, _ = serve(line, {RED: 1, BLUE: 1}, 4)
        counts[tenant] += 1
        if tenant == RED:
            line.join(RED, (RED, number))
    assert counts == {RED: 10, BLUE: 10}


def test_one_that_has_not_waited_is_owed_nothing() -> None:
    line = make_line(0)
    for number in range(40):
        line.join(BLUE, (BLUE, number))
    for _ in range(20):
        serve(line, {BLUE: 1}, 5)
    for number in range(20):
        line.join(RED, (RED, number))
    first = [serve(line, {RED: 1, BLUE: 1}, 5)[0] for _ in range(10)]
    assert Counter(first) == {RED: 5, BLUE: 5}


def test_who_leaves_is_not_served() -> None:
    line = make_line(2)
    line.leave(RED, (RED, 0))
    line.leave(BLUE, (BLUE, 1))
    assert (line.num_waiting(RED), line.num_waiting(BLUE)) == (1, 1)
    assert {serve(line, {RED: 1, BLUE: 1}) for _ in range(2)} == {(RED, 1), (BLUE, 0)}
