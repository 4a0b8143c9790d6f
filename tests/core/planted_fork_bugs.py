"""Bugs planted in what forks share."""

from typing import Any

from blockyard.core.forks import Copies, Forks
from blockyard.core.ids import GroupIndex
from blockyard.core.pool import Pool
from blockyard.core.sequence import Sequence


class OpenBlockNotCopied(Forks):
    __slots__ = ()

    def shares(self, group: GroupIndex, sequence: Sequence) -> bool:  # noqa: ARG002 - the bug
        return False

    def write(self, group: GroupIndex, sequence: Sequence, copies: Copies) -> None:
        pass


class CopyOnWriteNotCounted(Forks):
    __slots__ = ()

    def shares(self, group: GroupIndex, sequence: Sequence) -> bool:  # noqa: ARG002 - the bug
        return False


class FreedForksStillShare(Forks):
    __slots__ = ()

    def leave(self, sequence: Sequence) -> None:
        pass


class OpenForksLostInSnapshot(Pool):
    def snapshot(self) -> dict[str, Any]:
        state = super().snapshot()
        for store in state["stores"]:
            store["open_forks"] = []
        return state


FORK_BUGS = (OpenBlockNotCopied, CopyOnWriteNotCounted, FreedForksStillShare)
"""Of a pool's `Forks`."""
