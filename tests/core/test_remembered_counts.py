"""Remembered counts beside a list of records, and marks beside the bytes that they are of."""

from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.ids import BlockHash
from blockyard.core.marks import marks_of
from blockyard.core.remembered_counts import RememberedCounts
from core.naive_counts import NaiveCounts

all_marks = st.one_of(
    st.integers(0, 20),
    st.integers(-(2**63), 2**63 - 1),
    st.builds(lambda high, low: (high << 36) + low, st.integers(-(2**27), 2**27 - 1), st.integers(0, 3)),
)
"""Few in all, any at all, and such as differ in what few or no records keep."""

records = st.lists(st.tuples(all_marks, st.integers(1, 63)), max_size=5)


@given(st.integers(1, 24), st.lists(st.tuples(records, st.booleans()), max_size=12))
def test_counts_are_remembered_as_a_list_of_records_would(
    max_records: int, runs: list[tuple[list[tuple[int, int]], bool]]
) -> None:
    counts, naive = RememberedCounts(max_records), NaiveCounts(max_records)
    told = [0, *(mark for kept, _ in runs for mark, _ in kept)]
    for kept, is_restored in runs:
        if is_restored:
            state, counts = counts.to_state(), RememberedCounts(max_records)
            counts.load(state)
        counts.keep([mark for mark, _ in kept], [count for _, count in kept])
        for mark, count in kept:
            naive.keep(mark, count)
        expected = [naive.recall(mark) for mark in told]
        assert [counts.recall(mark) for mark in told] == expected
        num_known = max((at + 1 for at, count in enumerate(expected) if count), default=0)
        assert counts.num_known(told) == num_known


def test_of_as_many_records_as_are_remembered_each_is_found_in_a_slot_of_its_own() -> None:
    counts = RememberedCounts(1_000)
    numbers = range(3_000)
    counts.keep([*numbers], [1 + number % 63 for number in numbers])
    assert [counts.recall(number) for number in numbers] == [
        1 + number % 63 if number >= 2_000 else 0 for number in numbers
    ]


def test_marks_of_one_slot_take_no_more_than_it() -> None:
    """Hashes with equal ends, sent on purpose: the newest record stands, nothing is searched for or grows."""
    counts = RememberedCounts(1_000)
    num_bytes = len(counts.to_state()["slots"])
    marks = [number << 10 for number in range(5_000)]
    counts.keep(marks, [7] * len(marks))
    assert [mark for mark in marks if counts.recall(mark)] == [marks[-1]]
    assert len(counts.to_state()["slots"]) == num_bytes


@given(st.lists(st.binary(max_size=40), max_size=9), st.integers(0, 40))
def test_a_mark_is_the_last_eight_bytes_of_a_hash_or_all_there_are(
    block_hashes: list[bytes], width: int
) -> None:
    uniform = [block_hash.ljust(width, b"\xf1")[:width] for block_hash in block_hashes]
    for hashes in (block_hashes, uniform):
        expected = [int.from_bytes(each[-8:], "big", signed=True) for each in hashes]
        assert marks_of([BlockHash(each) for each in hashes]) == expected
