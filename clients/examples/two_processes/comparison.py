"""Holds what was served to the same model on an ordinary contiguous cache, one sequence at a time."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from examples.two_processes.contiguous_cache import ContiguousCache
from examples.two_processes.model import Transformer
from examples.two_processes.reports import Finished

TOLERANCE = 1e-4
"""Sums in float32 come out a little different in another order. Logits are about 1, and two of different
prompts differ by as much."""


def largest_difference(model: Transformer, finished: Iterable[Finished]) -> float:
    """Of any logit to what ``model`` makes of the same tokens; infinite where one is not a number."""
    largest = 0.0
    expected: dict[tuple[tuple[int, ...], tuple[int, ...]], Tensor] = {}  # rounds repeat each other
    with _one_thread(), torch.inference_mode():
        for sequence in finished:
            tokens = sequence.prompt, sequence.output
            if tokens not in expected:
                expected[tokens] = _logits(model, *tokens)
            difference = (expected[tokens] - torch.tensor(sequence.logits)).abs().max().item()
            largest = max(largest, math.inf if math.isnan(difference) else difference)
    return largest


@contextmanager
def _one_thread() -> Iterator[None]:
    """The models are too small for more: threads would wait for each other most of the time."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _logits(model: Transformer, prompt: tuple[int, ...], output: tuple[int, ...]) -> Tensor:
    """Those behind the prompt, then those behind each token of the output but the last."""
    cache = ContiguousCache()
    position = 0
    rows = []
    for tokens in (prompt, *((token,) for token in output[:-1])):
        positions = torch.arange(position, position + len(tokens))
        hidden = model.forward(torch.tensor(tokens), positions, cache)
        position += len(tokens)
        rows.append(model.logits(hidden[-1]))
    return torch.stack(rows)
