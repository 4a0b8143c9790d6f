"""Prompts that share beginnings, as chats on a few system prompts do."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

SYSTEM_PROMPT_TOKENS = (20, 60)
QUESTION_TOKENS = (3, 30)
ANSWER_TOKENS = (6, 20)
"""Fewest and most."""

NUM_SYSTEM_PROMPTS = 4
FOLLOW_UP_SHARE = 0.2
"""How often a prompt goes on from an earlier one."""

MAX_MODEL_LEN = 256
"""Tokens of the longest sequence, output included."""


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asks.

    Attributes:
        prompt: Token ids.
        num_output_tokens: To generate.
    """

    prompt: tuple[int, ...]
    num_output_tokens: int


def make_requests(num_requests: int, vocabulary_size: int, seed: int) -> Sequence[Request]:
    """The same numbers give the same requests."""
    draw = random.Random(seed)  # noqa: S311  # nosec B311  # a workload is no secret

    def tokens(bounds: tuple[int, int]) -> tuple[int, ...]:
        return tuple(draw.randrange(vocabulary_size) for _ in range(draw.randint(*bounds)))

    beginnings = [tokens(SYSTEM_PROMPT_TOKENS) for _ in range(NUM_SYSTEM_PROMPTS)]
    requests: list[Request] = []
    for _ in range(num_requests):
        beginning = draw.choice(beginnings)
        if requests and draw.random() < FOLLOW_UP_SHARE:
            beginning = draw.choice(requests).prompt
        prompt = (beginning + tokens(QUESTION_TOKENS))[: MAX_MODEL_LEN - ANSWER_TOKENS[1]]
        requests.append(Request(prompt, draw.randint(*ANSWER_TOKENS)))
    return requests
