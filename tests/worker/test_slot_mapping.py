"""Slots of tokens, beside the sum done token by token."""

import pytest
import torch
from torch import Tensor

from blockyard.core.errors import InvalidRequest
from blockyard.worker import BlockTables, slot_mapping, slot_mappings

NUM_SEQUENCES, MAX_BLOCKS, BLOCK_SIZE, NUM_TOKENS = 256, 40, 16, 3_000


def make_batch(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A block table, and the rows and positions of tokens."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randint(2**31 - 1, (NUM_SEQUENCES, MAX_BLOCKS), dtype=torch.int32, generator=generator)
    sequences = torch.randint(NUM_SEQUENCES, (NUM_TOKENS,), generator=generator)
    positions = torch.randint(MAX_BLOCKS * BLOCK_SIZE, (NUM_TOKENS,), generator=generator)
    return table, sequences, positions


def naive(table: Tensor, sequences: Tensor, positions: Tensor, block_size: int) -> list[int]:
    return [
        int(table[row, position // block_size]) * block_size + position % block_size
        for row, position in zip(sequences.tolist(), positions.tolist(), strict=True)
    ]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_slot_is_a_blocks_first_and_the_place_in_the_block(dtype: torch.dtype) -> None:
    table, sequences, positions = make_batch()
    slots = slot_mapping(table, sequences.to(dtype), positions, BLOCK_SIZE)
    assert slots.dtype is torch.int64
    assert slots.tolist() == naive(table, sequences, positions, BLOCK_SIZE)
    assert int(slots.max()) > 2**32


def test_slots_are_written_to_a_tensor_that_is_given() -> None:
    table, sequences, positions = make_batch()
    out = torch.full_like(positions, -1)
    assert slot_mapping(table, sequences, positions, BLOCK_SIZE, out) is out
    assert out.tolist() == naive(table, sequences, positions, BLOCK_SIZE)


def test_a_part_of_a_wider_table_is_a_table() -> None:
    table, sequences, positions = make_batch()
    part = table[:, : MAX_BLOCKS // 2]
    positions //= 2
    assert slot_mapping(part, sequences, positions, BLOCK_SIZE).tolist() == naive(
        part, sequences, positions, BLOCK_SIZE
    )


def test_what_is_given_is_left_as_it_is() -> None:
    given = make_batch()
    slot_mapping(*given, BLOCK_SIZE)
    assert all(bool((now == then).all()) for now, then in zip(given, make_batch(), strict=True))


def test_no_tokens_have_no_slots() -> None:
    table, sequences, positions = make_batch()
    assert slot_mapping(table, sequences[:0], positions[:0], BLOCK_SIZE).tolist() == []


@pytest.mark.parametrize("has_out", [False, True])
def test_the_slots_of_all_groups_are_those_of_each(has_out: bool) -> None:
    tables = [make_batch(seed)[0] for seed in range(3)]
    tables[1] = tables[1][:, : MAX_BLOCKS // 2].contiguous()
    _, sequences, positions = make_batch()
    sizes = [16, 32, 24]
    out = torch.empty(3, NUM_TOKENS, dtype=torch.int64) if has_out else None
    slots = slot_mappings(tables, sequences, positions, sizes, out)
    assert out is None or slots is out
    for row, table, size in zip(slots, tables, sizes, strict=True):
        assert row.tolist() == naive(table, sequences, positions, size)


def test_slots_may_replace_what_they_are_worked_out_from() -> None:
    tables = [make_batch(seed)[0] for seed in range(3)]
    _, sequences, positions = make_batch()
    expected = slot_mappings(tables, sequences, positions, [16, 32, 24])
    out = torch.stack([positions, sequences, positions])
    assert slot_mappings(tables, out[1], out[0], [16, 32, 24], out).tolist() == expected.tolist()
    assert slot_mapping(tables[0], sequences, positions, 16, positions) is positions
    assert positions.tolist() == expected[0].tolist()


def test_the_last_slot_of_the_largest_blocks_is_the_last_integer() -> None:
    table = torch.tensor([[2**31 - 1]], dtype=torch.int32)
    slots = slot_mapping(table, torch.tensor([0]), torch.tensor([2**32 - 1]), 2**32)
    assert slots.tolist() == [2**63 - 1]


def test_positions_behind_a_rows_entries_have_slots_of_the_null_block() -> None:
    tables = BlockTables(1, 3)
    tables.fill([[7]])
    slots = slot_mapping(tables.commit(), torch.zeros(6, dtype=torch.int64), torch.arange(6), 2)
    assert slots.tolist() == [14, 15, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("block_table", {"block_table": torch.zeros(4, 4, dtype=torch.int64)}),
        ("block_table", {"block_table": torch.zeros(4, dtype=torch.int32)}),
        ("block_table", {"block_table": torch.zeros(4, 4, dtype=torch.int32, device="meta")}),
        ("sequences", {"sequences": torch.tensor([0, 4])}),
        ("sequences", {"sequences": torch.tensor([0, -1])}),
        ("sequences", {"sequences": torch.tensor([0])}),
        ("sequences", {"sequences": torch.tensor([0.0, 1.0])}),
        ("positions", {"positions": torch.tensor([0, 8])}),
        ("positions", {"positions": torch.tensor([-1, 0])}),
        ("positions", {"positions": torch.tensor([0, 1], dtype=torch.int32)}),
        ("block_size", {"block_size": 0}),
        ("block_size", {"block_size": 2**32 + 1}),
        ("out", {"out": torch.zeros(3, dtype=torch.int64)}),
        ("out", {"out": torch.zeros(2, dtype=torch.int32)}),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(field: str, changes: dict[str, Tensor]) -> None:
    out = torch.full((2,), -7)
    given = {
        "block_table": torch.zeros(4, 4, dtype=torch.int32),
        "sequences": torch.tensor([0, 3]),
        "positions": torch.tensor([0, 7]),
        "block_size": 2,
        "out": out,
    }
    slot_mapping(**given)  # type: ignore[arg-type] # a call that is right
    out.fill_(-7)
    with pytest.raises(InvalidRequest, match=f"^{field}: "):
        slot_mapping(**{**given, **changes})  # type: ignore[arg-type] # and one that is not
    assert out.tolist() == [-7, -7]


def test_a_tensor_that_does_not_fit_all_groups_is_refused() -> None:
    table, sequences, positions = make_batch()
    out = torch.full((3, NUM_TOKENS), -7)
    with pytest.raises(InvalidRequest, match=r"^out: "):
        slot_mappings([table, table], sequences, positions, [16, 16], out)
    assert bool((out == -7).all())


def test_as_many_block_sizes_as_tables_are_needed() -> None:
    table, sequences, positions = make_batch()
    with pytest.raises(InvalidRequest, match="one a block table, 2 in all"):
        slot_mappings([table, table], sequences, positions, [16])
