"""What Hypothesis draws for a run: requests that name prompts and picks.

A pick stands for one of whatever there is to choose from by then; `core.schedulers` makes commands of these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from hypothesis import strategies as st

from blockyard.core.ids import TenantId
from core.drawn_pools import rarely

TWO_TENANTS = (TenantId("a"), TenantId("b"))
MAX_TOKENS = 48
SHARED_TOKENS = (MAX_TOKENS, 32, 16, 7, 0)
"""Per prompt, how many of its tokens all prompts begin with; those behind them are its own."""

picks = st.sampled_from(range(64))
prompts = st.sampled_from([0, 0, 0, *range(len(SHARED_TOKENS))])
tokens = st.integers(1, MAX_TOKENS)
often = st.sampled_from([True] * 3 + [False])
lookaheads = st.sampled_from([0, 0, 0, 1, 2, 5])
new_token_bounds = st.one_of(st.none(), st.integers(1, 20))


def prompt_tokens(prompt: int) -> list[int]:
    """The token ids of a prompt, ``MAX_TOKENS`` of them."""
    shared = SHARED_TOKENS[prompt]
    return [7] * shared + [100 + prompt] * (MAX_TOKENS - shared)


class End(Enum):
    """Where the tokens end that are computed now."""

    ANYWHERE = auto()
    BLOCK = auto()
    """Where a block ends."""
    EDGE = auto()
    """At the last hash boundary before the prompt's last token."""


ends = st.sampled_from([End.ANYWHERE, End.BLOCK, End.EDGE])


@dataclass(frozen=True, kw_only=True)
class DrawnAdmission:
    """``num_withheld``: the last hashes of the prompt, which are not sent."""

    prompt: int
    num_tokens: int
    end: End = End.ANYWHERE
    num_prompt_tokens: int | None = None
    num_encoder_tokens: int = 0
    max_new_tokens: int | None = None
    end_at_state: bool = False
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
    end: End
    max_new_tokens: int | None
    end_at_state: bool
    num_lookahead_tokens: int
    with_content: bool
    full_sequence_must_fit: bool


@dataclass(frozen=True, kw_only=True)
class DrawnStep:
    """``commits``: picks, and how far behind the granted tokens. ``extends``: picks, more, rejected, end.

    ``elsewhere``: the first admission is of an id that another lease holds.
    """

    commits: Sequence[tuple[int, int]]
    frees: Sequence[int]
    extends: Sequence[tuple[int, int, int, End]]
    admits: Sequence[DrawnAdmission]
    num_lookahead_tokens: int
    with_content: bool
    numbered: bool
    only_changes: bool
    elsewhere: bool


admissions = st.builds(
    DrawnAdmission,
    prompt=prompts,
    num_tokens=tokens,
    end=ends,
    num_prompt_tokens=st.one_of(st.none(), st.none(), tokens),
    num_encoder_tokens=st.sampled_from([0, 0, 5, 9]),
    max_new_tokens=new_token_bounds,
    end_at_state=st.booleans(),
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
    end=ends,
    max_new_tokens=new_token_bounds,
    end_at_state=st.booleans(),
    num_lookahead_tokens=lookaheads,
    with_content=often,
    full_sequence_must_fit=rarely,
)

steps = st.builds(
    DrawnStep,
    commits=st.lists(st.tuples(picks, st.sampled_from([0, 0, 0, 1, 3, 6])), max_size=4),
    frees=st.lists(picks, max_size=2),
    extends=st.lists(st.tuples(picks, st.integers(0, 12), st.sampled_from([0, 0, 2]), ends), max_size=4),
    admits=st.lists(admissions, max_size=3),
    num_lookahead_tokens=lookaheads,
    with_content=often,
    numbered=often,
    only_changes=st.booleans(),
    elsewhere=rarely,
)
