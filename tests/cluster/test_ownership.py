from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from cluster.ownership import OwnershipNumbers
from crash.calls import Answer, Call, Verb

Reply = tuple[int, int, int]
"""Ownership, when the try began, when it was answered."""


def noted(replies: Iterable[Reply], pool: str = "pool") -> OwnershipNumbers:
    numbers = OwnershipNumbers()
    for number, (ownership, tried_ns, ended_ns) in enumerate(replies):
        call = Call(number=number, verb=Verb.READ, pool=pool, key=f"k-{number}", body={})
        numbers.note(
            call,
            Answer(
                number=number,
                status=200,
                num_tries=1,
                body={},
                tried_ns=tried_ns,
                at_ns=ended_ns,
                ownership=ownership,
                node="n",
            ),
        )
    return numbers


def test_a_reply_of_an_older_owner_is_allowed_while_a_newer_one_is_under_way() -> None:
    assert list(noted([(1, 0, 10), (2, 5, 20), (1, 12, 20), (2, 21, 30)]).complaints()) == []


def test_a_reply_of_an_older_owner_that_began_later_is_found() -> None:
    (complaint,) = noted([(2, 0, 1_000_000), (1, 3_000_000, 4_000_000)]).complaints()
    assert complaint == (
        "pool pool: sequences k-1 of pool pool, answered by n under ownership 1, "
        "2.0 ms after sequences k-0 of pool pool, answered by n under 2"
    )


def test_an_answer_without_a_number_tells_nothing() -> None:
    numbers = noted([(2, 0, 1)])
    call = Call(number=9, verb=Verb.READ, pool="pool", key="k", body={})
    numbers.note(call, Answer(number=9, status=503, num_tries=1, body={}, tried_ns=5, at_ns=6))
    numbers.note(call, None)
    assert list(numbers.complaints()) == []
    assert numbers.newest("pool") == 2
    assert numbers.newest("another") == 0


replies_drawn = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 20), st.integers(1, 10)).map(
        lambda drawn: (drawn[0], drawn[1], drawn[1] + drawn[2])
    ),
    max_size=12,
)


@given(replies_drawn)
def test_as_many_are_found_as_by_comparing_each_with_each(replies: list[Reply]) -> None:
    stale = [one for one in replies if any(other[0] > one[0] and other[2] < one[1] for other in replies)]
    assert len(list(noted(replies).complaints())) == len(stale)
