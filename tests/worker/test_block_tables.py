"""Block tables that change row by row, beside plain lists."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from blockyard.core.errors import InvalidRequest
from blockyard.worker import BlockTables


def padded(tables: list[list[int]], max_blocks: int) -> list[list[int]]:
    return [table + [0] * (max_blocks - len(table)) for table in tables]


def test_tables_are_padded_with_the_null_block() -> None:
    tables = BlockTables(3, 4)
    tables.fill([[5, 6], [7]])
    tensor = tables.commit()
    assert tensor.dtype is torch.int32
    assert tensor.tolist() == [[5, 6, 0, 0], [7, 0, 0, 0], [0, 0, 0, 0]]
    assert [tables.length(row) for row in range(3)] == [2, 1, 0]


def test_filling_again_leaves_nothing_of_before() -> None:
    tables = BlockTables(3, 4)
    tables.fill([[1, 2, 3], [4, 5], [6, 7, 8, 9]])
    tables.commit()
    tables.fill([[9]])
    assert tables.commit().tolist() == [[9, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_changes_are_seen_once_they_are_committed_in_the_same_tensor() -> None:
    tables = BlockTables(2, 3)
    tensor = tables.tensor
    tables.set_row(1, [4])
    assert tensor.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert tables.commit() is tensor
    assert tensor.tolist() == [[0, 0, 0], [4, 0, 0]]


def test_any_changes_leave_what_lists_would_have() -> None:
    drawn = random.Random(0)
    rows: list[list[int]] = [[] for _ in range(8)]
    tables = BlockTables(8, 6)
    for _ in range(300):
        row, ids = drawn.randrange(8), [drawn.randrange(2**31) for _ in range(drawn.randrange(4))]
        if drawn.random() < 0.6 and len(rows[row]) + len(ids) <= 6:
            tables.append(row, ids)
            rows[row] += ids
        elif drawn.random() < 0.3 and rows[row]:
            position = drawn.randrange(len(rows[row]))
            tables.replace(row, position, 7)
            rows[row][position] = 7
        elif drawn.random() < 0.9:
            tables.set_row(row, ids)
            rows[row] = ids
        else:
            rows = [[drawn.randrange(9) for _ in range(drawn.randrange(7))] for _ in range(5)]
            tables.fill(rows)
            rows += [[], [], []]
        if drawn.random() < 0.5:
            assert tables.commit().tolist() == padded(rows, 6)
    assert tables.commit().tolist() == padded(rows, 6)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("append", (0, [1, 2]), "row has room for 1"),
        ("set_row", (0, [1, 2, 3, 4]), "row has room for 3"),
        ("set_row", (2, [1]), "2 is none of 2 rows"),
        ("replace", (0, 2, 7), "2 is none of 2 entries"),
        ("replace", (0, 0, -1), "must be from 0"),
        ("append", (-1, [1]), "-1 is none of 2 rows"),
        ("append", (0, [-1]), "must be from 0"),
        ("append", (0, [1.5]), "1.5 is no block id"),
        ("set_row", (0, [1, True]), "True is no block id"),
        ("set_row", (0, 7), "block_ids: must be a sequence, not int"),
        ("fill", ([[7], [2.0]],), "2.0 is no block id"),
        ("append", (0, [2**31]), "to 2147483647"),
        ("fill", ([[7], [1, 2, 3, 4]],), "row has room for 3"),
        ("fill", ([[7], [2**31]],), "to 2147483647"),
        ("fill", ([[7], [1], [2]],), "there are 2 rows"),
        ("length", (2,), "2 is none of 2 rows"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(method: str, given: Any, message: str) -> None:
    tables = BlockTables(2, 3)
    tables.fill([[5, 6], [7]])
    with pytest.raises(InvalidRequest, match=message):
        getattr(tables, method)(*given)
    assert tables.commit().tolist() == [[5, 6, 0], [7, 0, 0]]
    assert tables.length(0) == 2


def test_ids_are_integers_of_any_sort_and_come_in_any_iterable() -> None:
    tables = BlockTables(3, 3)
    rows: list[Any] = [iter([1, 2]), np.array([3]), torch.tensor([4], dtype=torch.int32)]
    tables.fill(iter(rows))
    tables.append(2, map(np.uint64, [5, 6]))
    assert tables.commit().tolist() == [[1, 2, 0], [3, 0, 0], [4, 5, 6]]


@pytest.mark.parametrize("shape", [(0, 1), (1, 0)])
def test_tables_have_a_row_and_an_entry(shape: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequest, match="at least one row and one entry"):
        BlockTables(*shape)
