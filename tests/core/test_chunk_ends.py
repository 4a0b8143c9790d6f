"""Chunks of prompts end where recurrent states are found again: the rule, and what a pool grants."""

from typing import Any

import pytest

from blockyard.core.chunk_ends import ChunkEnds
from blockyard.core.commands import Admission, Step
from blockyard.core.config import GroupConfig, Publish
from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import SequenceId
from blockyard.core.replies import Admitted, Stepped
from core.worked_pool import LEASE, WorkedPool, group

BLOCK = 8
FULL = group("full_attention", BLOCK)
STATE = group("mamba", BLOCK, mamba_cache_mode="align")
DRAFT = group("full_attention", BLOCK, is_draft=True)
WINDOW = group("sliding_window", BLOCK, sliding_window=BLOCK)
HOST = group("full_attention", BLOCK, is_host_resident=True)


def find_rule(
    *groups: GroupConfig, hash_block_size: int = BLOCK, enable_prefix_caching: bool = True
) -> ChunkEnds | None:
    return ChunkEnds.of(
        groups,
        scheduler_block_size=BLOCK,
        hash_block_size=hash_block_size,
        enable_prefix_caching=enable_prefix_caching,
    )


def chunks(
    *groups: GroupConfig,
    num_tokens: int,
    budget: int = 100,
    num_prompt_tokens: int | None = None,
    hash_block_size: int = BLOCK,
) -> list[int]:
    """Where the chunks end of a sequence that is computed from its beginning."""
    rule = find_rule(*groups, hash_block_size=hash_block_size)
    assert rule is not None
    found = [0]
    while found[-1] < num_tokens:
        begin = found[-1]
        end = min(begin + budget, num_tokens)
        found.append(rule.end_of_chunk(begin, end, num_prompt_tokens or num_tokens, num_tokens))
    return found[1:]


def test_no_chunks_end_matters_where_no_state_is_kept_for_others() -> None:
    assert find_rule(FULL, WINDOW) is None
    assert find_rule(FULL, group("mamba", BLOCK)) is None
    assert find_rule(FULL, STATE, enable_prefix_caching=False) is None
    assert find_rule(FULL, STATE) is not None


def test_a_kind_that_is_not_known_has_no_rule() -> None:
    with pytest.raises(InvalidRequest, match="unheard_of"):
        find_rule(group("unheard_of"))


@pytest.mark.parametrize(
    ("num_tokens", "budget", "ends"),
    [
        (51, 100, [48, 51]),  # 48: as much as the same prompt, sent again, would find
        (51, 20, [16, 32, 48, 51]),  # down to block ends
        (48, 100, [40, 48]),  # never all of a prompt is found
        (51, 5, [5, 8, 13, 16, 21, 24, 29, 32, 37, 40, 45, 48, 51]),  # where no block end is in reach: on
        (8, 100, [8]),  # too short to be found again
        (1, 100, [1]),
    ],
)
def test_chunks_end_with_blocks_and_where_a_prompt_is_found_again(
    num_tokens: int, budget: int, ends: list[int]
) -> None:
    assert chunks(FULL, STATE, num_tokens=num_tokens, budget=budget) == ends


def test_where_hits_may_end_inside_blocks_the_last_place_is_a_hash_boundary() -> None:
    assert chunks(FULL, STATE, num_tokens=31, hash_block_size=2) == [30, 31]
    assert chunks(FULL, STATE, num_tokens=31, budget=12, hash_block_size=2) == [8, 16, 24, 30, 31]


@pytest.mark.parametrize("other", [WINDOW, HOST], ids=["window", "host"])
def test_a_windowed_group_or_a_second_memory_keeps_hits_to_whole_blocks(other: GroupConfig) -> None:
    assert chunks(FULL, STATE, other, num_tokens=31, hash_block_size=2) == [24, 31]


def test_with_drafts_the_last_place_is_a_block_before() -> None:
    # 47 tokens: five blocks are looked at, and the draft's last one is dropped. 48: six, likewise.
    assert chunks(DRAFT, STATE, num_tokens=47) == [32, 40, 47]
    assert chunks(DRAFT, STATE, num_tokens=48) == [40, 48]


def test_output_of_an_earlier_life_is_computed_up_to_a_block_end_as_well() -> None:
    assert chunks(FULL, STATE, num_tokens=51, num_prompt_tokens=20) == [16, 48, 51]


def begin(pool: WorkedPool, name: str, num_tokens: int, **fields: Any) -> tuple[int | None, int]:
    """Admit a prompt with a first chunk that ends at a state: cached tokens, and tokens given slots."""
    reply = pool.allocate(name, num_tokens, end_at_state=True, **fields)
    return reply.num_cached_tokens, reply.num_new_tokens


def test_a_first_chunk_ends_at_the_state_that_the_same_prompt_is_hit_for() -> None:
    pool = WorkedPool(FULL, STATE)
    assert begin(pool, "a", 51) == (0, 48)
    assert begin(pool, "b", 51) == (48, 3)


def test_without_the_demand_a_first_chunk_ends_anywhere_and_leaves_nothing() -> None:
    pool = WorkedPool(FULL, STATE)
    assert pool.allocate("a", 51).num_new_tokens == 51
    assert begin(pool, "b", 51) == (0, 48)


def test_behind_a_hit_the_first_chunk_goes_on_to_the_next_such_place() -> None:
    pool = WorkedPool(FULL, STATE)
    assert begin(pool, "a", 20) == (0, 16)
    assert begin(pool, "b", 51) == (16, 32)
    assert begin(pool, "c", 51) == (48, 3)


def test_a_first_chunk_that_is_bounded_goes_down_to_a_block_end() -> None:
    pool = WorkedPool(FULL, STATE)
    assert begin(pool, "a", 51, max_new_tokens=20) == (0, 16)
    assert begin(pool, "b", 51, max_new_tokens=20) == (16, 16)
    assert begin(pool, "c", 51, max_new_tokens=5) == (32, 5)


def test_where_hits_end_inside_blocks_the_first_chunk_may_end_there() -> None:
    pool = WorkedPool(FULL, STATE, hash_block_size=2)
    assert begin(pool, "a", 31) == (0, 30)
    assert begin(pool, "b", 31) == (30, 1)


def test_with_drafts_the_first_chunk_ends_at_the_state_before_the_dropped_block() -> None:
    pool = WorkedPool(DRAFT, STATE)
    assert begin(pool, "a", 48) == (0, 40)
    pool.allocate("a", 48)  # the draft looks at the sixth block, which is dropped
    assert begin(pool, "b", 48) == (40, 8)


def test_a_prompt_is_told_from_output_of_an_earlier_life() -> None:
    pool = WorkedPool(FULL, STATE)
    assert begin(pool, "a", 51, num_prompt_tokens=20) == (0, 16)
    assert begin(pool, "b", 20) == (16, 4)


def test_a_later_call_ends_at_a_state_as_well() -> None:
    pool = WorkedPool(FULL, STATE)
    given = [begin(pool, "a", 51, max_new_tokens=20)[1] for _ in range(4)]
    assert given == [16, 16, 16, 3]
    assert begin(pool, "a", 51) == (None, 0)
    assert begin(pool, "a", 52) == (None, 1)


def test_published_on_commit_the_state_is_found_once_its_chunk_is_committed() -> None:
    pool = WorkedPool(FULL, STATE, publish=Publish.ON_COMMIT)
    begin(pool, "a", 51)
    assert pool.find(51)[0] == 0
    pool.commit("a", 48)
    assert begin(pool, "b", 51) == (48, 3)


def test_a_steps_admissions_end_at_states_too() -> None:
    pool = WorkedPool(FULL, STATE)
    for expected in ((0, 48), (48, 3)):
        admission = Admission(
            sequence_id=SequenceId(f"after {expected[0]}"),
            num_tokens=51,
            end_at_state=True,
            block_hashes=pool.hashes(0, 51),
        )
        reply = pool.pool.apply(Step(lease_id=LEASE, admit=[admission]), 0)
        assert isinstance(reply, Stepped)
        (admitted,) = reply.admit
        assert isinstance(admitted, Admitted)
        assert (admitted.num_cached_tokens, admitted.num_new_tokens) == expected


@pytest.mark.parametrize("groups", [(FULL,), (FULL, WINDOW)], ids=len)
def test_where_no_states_are_kept_the_demand_changes_nothing(groups: tuple[GroupConfig, ...]) -> None:
    pool = WorkedPool(*groups)
    assert begin(pool, "a", 51) == (0, 51)
    assert begin(pool, "b", 51, max_new_tokens=2) == (48, 2)
