"""How a replay puts its requests to a pool, and what pool that is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blockyard.server.commands.replay.driver import Driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """How requests are put to a pool.

    Attributes:
        num_blocks: Of the pool, the null block included.
        block_size: Tokens a block.
        concurrency: Sequences in flight at a time.
        steps: Whether by the step protocol.
        pool: The pool's name, or None for one that is drawn.
    """

    num_blocks: int
    block_size: int
    concurrency: int
    steps: bool
    pool: str | None

    def driver(self, url: str) -> "Driver":
        """The driver, for the server at ``url``."""
        from blockyard.server.commands.replay import driver  # noqa: PLC0415 - while the server starts

        if self.steps:
            return driver.InSteps(self.concurrency)
        return driver.one_at_a_time if self.concurrency == 1 else driver.ManyAtATime(url, self.concurrency)

    def __str__(self) -> str:
        """For people."""
        if self.steps:
            manner = f"in steps of {self.concurrency}"
        elif self.concurrency == 1:
            manner = "one call at a time"
        else:
            manner = f"{self.concurrency} sequences at a time"
        return f"{self.num_blocks:,} blocks of {self.block_size} tokens, {manner}"
