"""What Hypothesis draws for a run: a pool, and requests that name prompts and picks.

A pick stands for one of whatever there is to choose from by then; `core.schedulers` makes commands of these.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from blockyard.core.config import GroupConfig, PoolConfig, Publish

MAX_TOKENS = 48
SHARED_TOKENS = (MAX_TOKENS, 32, 16, 7, 0)
"""Per prompt, how many of its tokens all prompts begin with; those behind them are its own."""

picks = st.sampled_from(range(64))
prompts = st.integers(0, len(SHARED_TOKENS) - 1)
tokens = st.integers(1, MAX_TOKENS)
rarely = st.sampled_from([False] * 7 + [True])
often = st.sampled_from([True] * 3 + [False])
lookaheads = st.sampled_from([0, 0, 0, 1, 2, 5])
new_token_bounds = st.one_of(st.none(), st.integers(1, 20))


def prompt_tokens(prompt: int) -> list[int]:
    """The token ids of a prompt, ``MAX_TOKENS`` of them."""
    shared = SHARED_TOKENS[prompt]
    return [7] * shared + [100 + prompt] * (MAX_TOKENS - shared)


@dataclass(frozen=True, kw_only=True)
class DrawnAdmission:
    """``num_withheld``: the last hashes of the prompt, which are not sent."""

    prompt: int
    num_tokens: int
    max_new_tokens: int | None = None
    num_lookahead_tokens: int = 0
    by_token_ids: bool = False
    num_withheld: int = 0
    skip_prefix_cache: bool = False
    full_sequence_must_fit: bool = False


@dataclass(frozen=True, kw_only=True)
class DrawnExtension:
    """``num_rejected`` tokens are taken back, then ``num_more`` come."""

    pick: int
    num_more: int
    num_rejected: int
    max_new_tokens: int | None
    num_lookahead_tokens: int
    with_content: bool
    full_sequence_must_fit: bool


@dataclass(frozen=True, kw_only=True)
class DrawnStep:
    """``commits``: picks, and how far behind the granted tokens. ``extends``: picks, more, rejected.

    ``elsewhere``: the first admission is of an id that another lease holds.
    """

    commits: Sequence[tuple[int, int]]
    frees: Sequence[int]
    extends: Sequence[tuple[int, int, int]]
    admits: Sequence[DrawnAdmission]
    num_lookahead_tokens: int
    with_content: bool
    numbered: bool
    elsewhere: bool


admissions = st.builds(
    DrawnAdmission,
    prompt=prompts,
    num_tokens=tokens,
    max_new_tokens=new_token_bounds,
    num_lookahead_tokens=lookaheads,
    by_token_ids=rarely,
    num_withheld=st.sampled_from([0, 0, 0, 1, 3]),
    skip_prefix_cache=rarely,
    full_sequence_must_fit=rarely,
)

extensions = st.builds(
    DrawnExtension,
    pick=picks,
    num_more=st.sampled_from([0, 1, 1, 2, 3, 5, 9, 14, 30]),
    num_rejected=st.sampled_from([0, 0, 1, 3, 9]),
    max_new_tokens=new_token_bounds,
    num_lookahead_tokens=lookaheads,
    with_content=often,
    full_sequence_must_fit=rarely,
)

steps = st.builds(
    DrawnStep,
    commits=st.lists(st.tuples(picks, st.integers(0, 6)), max_size=4),
    frees=st.lists(picks, max_size=2),
    extends=st.lists(st.tuples(picks, st.integers(0, 12), st.sampled_from([0, 0, 2])), max_size=4),
    admits=st.lists(admissions, max_size=3),
    num_lookahead_tokens=lookaheads,
    with_content=often,
    numbered=often,
    elsewhere=rarely,
)


@st.composite
def group_configs(draw: st.DrawFn) -> GroupConfig:
    """Chunks may begin inside a block."""
    kind = draw(st.sampled_from(["full_attention", "sliding_window", "chunked_local_attention"]))
    return GroupConfig(
        kind=kind,
        block_size=draw(st.sampled_from([2, 4, 8])),
        sliding_window=draw(st.integers(2, 18)) if kind == "sliding_window" else None,
        attention_chunk_size=draw(st.integers(1, 32)) if kind == "chunked_local_attention" else None,
    )


@st.composite
def pool_configs(draw: st.DrawFn) -> PoolConfig:
    """Few blocks: most runs are short of them."""
    groups = draw(st.lists(group_configs(), min_size=1, max_size=3))
    if len(groups) == 2 and draw(st.booleans()):
        groups.append(groups[1])  # groups with equal specs, which are looked up together
    sizes = [group.block_size for group in groups]
    return PoolConfig(
        num_blocks=draw(st.sampled_from([6, 9, 14, 20, 28])) * len(groups),
        groups=tuple(groups),
        scheduler_block_size=math.lcm(*sizes) * draw(st.sampled_from([1, 1, 1, 2])),
        hash_block_size=math.gcd(*sizes) // draw(st.sampled_from([1, 1, 2])),
        max_model_len=draw(st.sampled_from([None, None, 20, 37])),
        max_in_flight_tokens=draw(st.sampled_from([4, 10, 8192])),
        enable_prefix_caching=not draw(rarely),
        publish=draw(st.sampled_from(list(Publish))),
        watermark_blocks=draw(st.sampled_from([0, 0, 0, 1, 3])),
    )
