"""Sparse retention, worked by hand: which blocks are published. Blocks of four; a hit needs two."""

from typing import Any

import pytest

from core.worked_pool import WorkedPool, group

WINDOW = group("sliding_window", sliding_window=9)
DRAFT = group("sliding_window", sliding_window=9, is_draft=True)
FULL = group("full_attention")


def published(pool: WorkedPool, name: str, number: int = 0) -> str:
    """A ``k`` for each position that is published, a dot for each that is not."""
    return "".join("k" if pool.keys(block) else "." for block in pool.tables(name)[number])


def after(num_tokens: int, *groups: Any, **options: Any) -> str:
    pool = WorkedPool(*groups, **options)
    pool.allocate("a", num_tokens)
    return published(pool, "a")


@pytest.mark.parametrize(
    ("interval", "kept"),
    [
        (None, "kkkkkkkkkkkkk."),
        (16, "..kk..kk..kkk."),  # the last two of each four; the prompt's end is 52: positions 11 and 12
        (8, "kkkkkkkkkkkkk."),  # a segment is what a hit needs
        (0, "...........kk."),
    ],
)
def test_a_window_keeps_what_hits_need_at_each_interval_and_the_prompts_end(
    interval: int | None, kept: str
) -> None:
    assert after(53, WINDOW, prefix_cache_retention_interval=interval) == kept


def test_the_last_token_of_a_prompt_is_not_part_of_its_hit() -> None:
    assert after(52, WINDOW, prefix_cache_retention_interval=0) == "..........kk."


def test_the_prompt_and_not_the_length_says_where_its_end_is() -> None:
    pool = WorkedPool(WINDOW, prefix_cache_retention_interval=0)
    pool.allocate("a", 53, num_prompt_tokens=21)
    assert published(pool, "a") == "...kk........."


def test_a_draft_keeps_a_block_more_around_both_places_where_a_prompt_is_hit() -> None:
    # 53 tokens: 48 and 48. A draft's hit of 48 is found by three blocks, the last of which ends at 52.
    assert after(53, DRAFT, prefix_cache_retention_interval=0) == "..........kkk."
    # 52 tokens: 44, as 51 aligned is 48; and 48. The blocks that end at 48 and at 52.
    assert after(52, DRAFT, prefix_cache_retention_interval=0) == ".........kkkk"


def test_full_attention_keeps_everything() -> None:
    pool = WorkedPool(FULL, WINDOW, prefix_cache_retention_interval=0)
    pool.allocate("a", 53)
    assert [published(pool, "a", number) for number in (0, 1)] == ["kkkkkkkkkkkkk.", "...........kk."]


@pytest.mark.parametrize("interval", [0, 16])
@pytest.mark.parametrize("groups", [(WINDOW,), (FULL, WINDOW)])
def test_the_same_prompt_is_hit_as_if_all_were_kept(groups: Any, interval: int) -> None:
    pool = WorkedPool(*groups, prefix_cache_retention_interval=interval)
    pool.allocate("a", 53)
    assert pool.find(53)[0] == 52


def test_a_prompt_that_parts_earlier_is_hit_at_an_interval() -> None:
    pool = WorkedPool(WINDOW, prefix_cache_retention_interval=16)
    pool.allocate("a", 53)
    assert pool.find(40)[0] == 32
