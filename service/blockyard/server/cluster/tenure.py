"""Who owns a pool, by what its stream tells, and what a node that has it warm is to do about that."""

from dataclasses import dataclass
from enum import Enum

from blockyard.server.cluster.entries import Holder
from blockyard.server.cluster.figures import TakeOver


class Errand(Enum):
    """What there is to do beside taking over."""

    ASK = "ask"
    """Ask the owner to hand the pool over."""
    BURY = "bury"
    """Take away what is left of a pool that was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """Of one pool, up to some message of its stream.

    Attributes:
        holder: Its owner; None where there is none, or it has handed the pool over.
        heir: The node that it was handed over to.
        is_deleted: Whether it is no more.
    """

    holder: Holder | None = None
    heir: str | None = None
    is_deleted: bool = False

    def due(self, me: Holder, *, is_first: bool, is_gone: bool) -> TakeOver | Errand | None:
        """What ``me`` is to do; None: nothing.

        Args:
            me: A node under its lease, which has the pool warm.
            is_first: Whether it is the one to own the pool.
            is_gone: Whether another node, the owner or else the heir, is not to be waited for.
        """
        holder = self.holder
        if self.is_deleted:
            return Errand.BURY if is_first else None
        if holder is None:
            if self.heir == me.node:
                return TakeOver.PLANNED
            return TakeOver.FORCED if is_first and is_gone else None
        if holder.node == me.node:
            return TakeOver.REGAINED if is_first or holder == me else None
        if not is_first:
            return None
        return TakeOver.FORCED if is_gone else Errand.ASK
