"""A fault to plant: two sequences read each other's block. The comparison of logits has to notice."""

from dataclasses import replace
from itertools import combinations

from examples.two_processes.messages import Chunk


def with_swapped_blocks(chunks: tuple[Chunk, ...], group: int, block_size: int) -> tuple[Chunk, ...] | None:
    """The same with two first blocks of a full-attention group swapped, or None where no two can be.

    Both are full of computed tokens, so they are read and not written. Of one sequence, swapping two blocks
    would prove little: attention is a sum over positions that are in the keys, in whatever order.
    """
    readers = [place for place, chunk in enumerate(chunks) if chunk.num_computed_tokens >= block_size]
    for one, other in combinations(readers, 2):
        first, second = (chunks[place].block_tables[group][0] for place in (one, other))
        if first != second:
            swapped = list(chunks)
            swapped[one] = _with_first_block(chunks[one], group, second)
            swapped[other] = _with_first_block(chunks[other], group, first)
            return tuple(swapped)
    return None


def _with_first_block(chunk: Chunk, group: int, block: int) -> Chunk:
    tables = list(chunk.block_tables)
    tables[group] = (block, *tables[group][1:])
    return replace(chunk, block_tables=tuple(tables))
