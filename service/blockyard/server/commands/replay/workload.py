"""A chat workload made from a seed: the same numbers give the same requests, on every machine.

Users, a few of whom do most of the talking, hold conversations on top of shared system prompts. Each turn
sends all of the conversation so far, and the answer joins it before the next:

    turn 1   [system prompt][question 1]
    turn 2   [system prompt][question 1][answer 1][question 2]

So a cache can find the system prompt for everybody, and all but the last exchange for who goes on talking.
"""

import random
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from math import sqrt

from blockyard.server.commands.replay.request import Request, block_hash

SYSTEM_PROMPT_TOKENS = 800
QUESTION_TOKENS = 150
ANSWER_TOKENS = 350
"""Means. Lengths spread from next to nothing to twice as much, most of them around the mean."""

MAX_CONVERSATION_TOKENS = 16_384
NEW_CONVERSATION_SHARE = 0.15
"""How often a user starts anew where the conversation could go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What to make.

    Attributes:
        num_requests: Requests, at least 1.
        num_users: Users, at least 1. The k-th talks 1/√k as much as the first.
        num_system_prompts: Shared beginnings, at least 1, as unevenly popular.
        block_size: Tokens a block.
        seed: Another seed gives another workload.
    """

    num_requests: int = 2_000
    num_users: int = 400
    num_system_prompts: int = 5
    block_size: int = 16
    seed: int = 0

    def requests(self) -> Iterator[Request]:
        """The requests in the order of their arrival."""
        draw = random.Random(self.seed)  # noqa: S311  # nosec B311  # a workload is no secret
        blocks = _Blocks(self.block_size)
        systems = [blocks.prefix(_length(draw, SYSTEM_PROMPT_TOKENS)) for _ in range(self.num_system_prompts)]
        system_weights, user_weights = _popularity(self.num_system_prompts), _popularity(self.num_users)
        habits = [systems[_pick(draw, system_weights)] for _ in range(self.num_users)]
        talks = [habit.copy() for habit in habits]
        for _ in range(self.num_requests):
            user = _pick(draw, user_weights)
            is_too_long = talks[user].num_tokens > MAX_CONVERSATION_TOKENS
            if draw.random() < NEW_CONVERSATION_SHARE or is_too_long:
                talks[user] = habits[user].copy()
            blocks.extend(talks[user], _length(draw, QUESTION_TOKENS))
            yield Request(talks[user].num_tokens, talks[user].block_hashes.copy())
            blocks.extend(talks[user], _length(draw, ANSWER_TOKENS))


@dataclass(slots=True)
class _Talk:
    """Tokens so far, and the hashes of the blocks that they fill."""

    num_tokens: int = 0
    block_hashes: list[bytes] = field(default_factory=list)

    def copy(self) -> "_Talk":
        return _Talk(self.num_tokens, self.block_hashes.copy())


class _Blocks:
    """Gives each block that is filled a hash of its own."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._num_made = 0

    def prefix(self, num_tokens: int) -> _Talk:
        talk = _Talk()
        self.extend(talk, num_tokens)
        return talk

    def extend(self, talk: _Talk, num_tokens: int) -> None:
        talk.num_tokens += num_tokens
        for _ in range(talk.num_tokens // self._block_size - len(talk.block_hashes)):
            talk.block_hashes.append(block_hash(self._num_made))
            self._num_made += 1


def _length(draw: random.Random, mean: int) -> int:
    """From 1 to twice the mean. Only `random.random` draws the same on every version of Python."""
    return 1 + int(mean * (draw.random() + draw.random()))


def _popularity(count: int) -> list[float]:
    """Running sums of 1, 1/√2, 1/√3, ... A square root is the same on every machine; not all powers are."""
    return list(accumulate(1 / sqrt(rank) for rank in range(1, count + 1)))


def _pick(draw: random.Random, running_sums: list[float]) -> int:
    return bisect(running_sums, draw.random() * running_sums[-1])
