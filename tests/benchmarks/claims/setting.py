"""What a claim is measured with."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.beside.peer import Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How to measure.

    Attributes:
        rounds: How often each side has its turn.
        is_quick: Whether to see only that all of it runs: the figures mean little.
        peer: The peer, whether it is there or not.
        note: Tell whoever watches what is being done.
    """

    rounds: int
    is_quick: bool
    peer: Peer
    note: Callable[[str], None]

    def pick(self, usual: int, quick: int) -> int:
        """A count for this setting."""
        return quick if self.is_quick else usual
