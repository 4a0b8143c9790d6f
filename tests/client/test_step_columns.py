"""Columns of a step: packed where they can be, and replies of changes alone made whole."""

from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.client.step_columns import as_column, read_extended, with_unlisted
from blockyard.client.wire import Form
from blockyard.core.ids import SequenceHandle
from blockyard.core.packing import pack_column, unpack_column
from blockyard.core.replies import StepExtended


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_a_packed_column_is_four_bytes_a_value_and_comes_back(values: list[int]) -> None:
    packed = pack_column(values)
    assert packed == b"".join(value.to_bytes(4, "little") for value in values)
    assert unpack_column(packed) == values


@pytest.mark.parametrize("values", [[1, 2], (1, 2), range(1, 3), deque([1, 2]), array("q", [1, 2])])
def test_any_sequence_is_a_column(values: Sequence[int]) -> None:
    assert as_column(values, Form.MSGPACK) == b"\1\0\0\0\2\0\0\0"
    assert list(as_column(values, Form.JSON)) == [1, 2]


@pytest.mark.parametrize("odd", [2**32, -1, 1.5, "1", None])
def test_what_cannot_be_packed_is_left_for_the_server_to_judge(odd: Any) -> None:
    assert as_column([1, odd], Form.MSGPACK) == [1, odd]


def handles(*numbers: int) -> list[SequenceHandle]:
    return [SequenceHandle(number) for number in numbers]


def test_a_reply_of_changes_alone_is_made_whole_in_the_order_asked() -> None:
    reply = StepExtended(
        sequences=handles(3), block_ids=[[[7], []]], insufficient=handles(2), unlisted=[[], []]
    )
    assert with_unlisted(reply, handles(1, 2, 3, 4)) == StepExtended(
        sequences=handles(1, 3, 4), block_ids=[[[], []], [[7], []], [[], []]], insufficient=handles(2)
    )


def test_a_whole_reply_stays_as_it_is() -> None:
    reply = StepExtended(sequences=handles(1), block_ids=[[[7]]], insufficient=[])
    assert with_unlisted(reply, handles(1)) is reply


@pytest.mark.parametrize("unlisted", [1, [1], [["x"]], {"0": []}])
def test_an_odd_reply_is_left_for_the_strict_reader(unlisted: Any) -> None:
    value = {"sequences": [], "block_ids": [], "insufficient": [], "unlisted": unlisted}
    assert read_extended(value) is value
