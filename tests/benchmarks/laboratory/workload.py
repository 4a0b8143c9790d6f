"""A workload: requests in the order of their arrival."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from benchmarks.laboratory.draw import Draw
from benchmarks.laboratory.prompt import Prompt, Writer
from blockyard.server.commands.replay.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is replayed.

    Attributes:
        name: Its kind, or that of a recorded trace.
        block_size: Tokens a block.
        requests: In the order of their arrival.
    """

    name: str
    block_size: int
    requests: Sequence[Request]

    @property
    def num_tokens(self) -> int:
        """Of all inputs."""
        return sum(request.num_tokens for request in self.requests)

    @property
    def num_blocks(self) -> int:
        """Full blocks of all inputs."""
        return sum(len(request.block_hashes) for request in self.requests)

    @property
    def num_distinct_blocks(self) -> int:
        """The same, equal ones counted once."""
        return len({each for request in self.requests for each in request.block_hashes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How workloads of a kind are made.

    Attributes:
        prompts: Makes them one after the other, without end.
        block_size: Tokens a block.
        num_requests: How many are worth a look: by then a pool of the largest capacity is well in use.
    """

    prompts: Callable[[Draw, Writer], Iterator[Prompt]]
    block_size: int
    num_requests: int

    @property
    def name(self) -> str:
        """That of the function."""
        return self.prompts.__name__

    def make(self, seed: int = 0, num_requests: int | None = None) -> Workload:
        """The first requests of this kind from ``seed``: equal calls give equal workloads."""
        writer = Writer(self.block_size)
        prompts = islice(self.prompts(Draw(seed), writer), num_requests or self.num_requests)
        return Workload(
            name=self.name, block_size=self.block_size, requests=[writer.request(each) for each in prompts]
        )
