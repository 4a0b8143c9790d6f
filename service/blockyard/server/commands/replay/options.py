"""How a replay puts its requests to a pool, and what pool that is."""

from dataclasses import dataclass

from blockyard.core.config import Eviction


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How requests are put to a pool.

    Attributes:
        num_blocks: Of the pool, the null block included.
        block_size: Tokens a block.
        concurrency: Sequences in flight at a time.
        eviction: Of the pool.
        steps: Whether by the step protocol.
        pool: The pool's name, or None for one that is drawn.
    """

    num_blocks: int
    block_size: int
    concurrency: int
    eviction: Eviction
    steps: bool
    pool: str | None

    def __str__(self) -> str:
        """For people."""
        if self.steps:
            manner = f"in steps of {self.concurrency}"
        elif self.concurrency == 1:
            manner = "one call at a time"
        else:
            manner = f"{self.concurrency} sequences at a time"
        return f"{self.num_blocks:,} blocks of {self.block_size} tokens, {manner}"
