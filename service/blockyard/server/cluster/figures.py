"""What has happened to a node since it started, counted."""

from enum import StrEnum


class TakeOver(StrEnum):
    """How a node came to own a pool."""

    NEW = "new"
    """The pool was made."""
    PLANNED = "planned"
    """Its owner handed it over."""
    FORCED = "forced"
    """Its owner's lease had run out."""
    REGAINED = "regained"
    """Its own lease had, and nobody else took the pool meanwhile."""


class ClusterFigures:
    """Counts: on the event loop alone.

    Attributes:
        take_overs: By how.
        num_lost_pools: Pools that another node owned when this one wrote to them: it was fenced off.
        num_lease_lapses: Times that the node's lease ran out.
    """

    def __init__(self) -> None:
        self.take_overs = dict.fromkeys(TakeOver, 0)
        self.num_lost_pools = 0
        self.num_lease_lapses = 0

    def took_over(self, how: TakeOver) -> None:
        """Count a pool that the node owns now."""
        self.take_overs[how] += 1

    def lost_pool(self) -> None:
        """Count a pool that it was fenced off from."""
        self.num_lost_pools += 1

    def lease_lapsed(self) -> None:
        """Count a lease that ran out."""
        self.num_lease_lapses += 1
