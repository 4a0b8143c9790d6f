"""Which nodes a pool belongs to: one owns it, and one holds it warm."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placement:
    """Of one pool, as one node sees it.

    Attributes:
        order: Its candidates, see `rendezvous`.
        owner: The node that owns it now; None where none does.
    """

    order: Sequence[str]
    owner: str | None

    @property
    def first(self) -> str | None:
        """The node that is to own it."""
        return next(iter(self.order), None)

    @property
    def standby(self) -> str | None:
        """The node that is to follow it: the first that does not own it."""
        return next((node for node in self.order if node != self.owner), None)

    def wants(self, node: str) -> bool:
        """Whether the node is to own or follow it."""
        return node in (self.first, self.standby)
