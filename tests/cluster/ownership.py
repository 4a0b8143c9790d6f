"""Ownership numbers never go back: whoever asks after another was answered is answered by no older owner.

a   |--- owner 1 ---|
b      |------ owner 2 ------|
c                |- owner 1 -|             at the same time as b's: allowed
d                             |- owner 1 -|    began after b's had ended: stale
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from crash.calls import Answer, Call


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedReply:
    """An answer of a pool's owner; ``tried_ns`` is when the try began that was answered."""

    ownership: int
    tried_ns: int
    ended_ns: int
    what: str


class OwnershipNumbers:
    """Of every pool, as all clients were told them."""

    def __init__(self) -> None:
        self._replies: dict[str, list[OwnedReply]] = defaultdict(list)

    def note(self, call: Call, answer: Answer | None) -> None:
        """One more of some client. An answer without a number tells of no owner."""
        if answer is not None and answer.ownership is not None:
            self._replies[call.pool].append(
                OwnedReply(
                    ownership=answer.ownership,
                    tried_ns=answer.tried_ns,
                    ended_ns=answer.at_ns,
                    what=f"{call}, answered by {answer.node}",
                )
            )

    def newest(self, pool: str) -> int:
        """The highest that was told; 0 for none."""
        return max((reply.ownership for reply in self._replies[pool]), default=0)

    def complaints(self) -> Iterator[str]:
        """Each reply that is stale."""
        for pool, replies in self._replies.items():
            for stale, newer in _stale(replies):
                yield (
                    f"pool {pool}: {stale.what} under ownership {stale.ownership}, "
                    f"{(stale.tried_ns - newer.ended_ns) / 1e6:.1f} ms after {newer.what} "
                    f"under {newer.ownership}"
                )


def _stale(replies: list[OwnedReply]) -> Iterator[tuple[OwnedReply, OwnedReply]]:
    """Those that began after another, with a higher number, had ended; and that other."""
    ended = iter(sorted(replies, key=lambda reply: reply.ended_ns))
    coming = next(ended, None)
    newest: OwnedReply | None = None
    for reply in sorted(replies, key=lambda reply: reply.tried_ns):
        while coming is not None and coming.ended_ns < reply.tried_ns:
            if newest is None or coming.ownership > newest.ownership:
                newest = coming
            coming = next(ended, None)
        if newest is not None and newest.ownership > reply.ownership:
            yield reply, newest
