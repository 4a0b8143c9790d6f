"""What a pool grants for a time: to be given again before it is over, or it ends."""

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeVar

from blockyard.core.errors import InvalidRequest


class Timed(Protocol):
    """Something that lasts for ``ttl_ms`` from when it was granted or renewed, until ``expires_at_ms``."""

    ttl_ms: int
    expires_at_ms: int


K = TypeVar("K", bound=str)
T = TypeVar("T", bound=Timed)


class Expiring(Mapping[K, T]):
    """All that have not ended, by their ids, in the order of their making; none at first.

    One that has run out is among them until it is ended: nobody acts under it meanwhile.

    Attributes:
        next_expiry_ms: A lower bound: none runs out before this time. None where there was none to run out.
    """

    def __init__(self) -> None:
        self._by_id: dict[K, T] = {}
        self.next_expiry_ms: int | None = None

    def __getitem__(self, its_id: K) -> T:
        return self._by_id[its_id]

    def __iter__(self) -> Iterator[K]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def run_out(self, now_ms: int) -> list[T]:
        """Those that are to be ended now, the one that ran out first at the front."""
        run_out = [
            (each.expires_at_ms, its_id) for its_id, each in self.items() if each.expires_at_ms <= now_ms
        ]
        going_on = (each.expires_at_ms for each in self.values() if each.expires_at_ms > now_ms)
        self.next_expiry_ms = min(going_on, default=None)
        return [self._by_id[its_id] for _, its_id in sorted(run_out)]

    def resume(self, since_ms: int, now_ms: int) -> int:
        """Give those their time anew that had some left at ``since_ms``; returns how many."""
        standing = [each for each in self.values() if each.expires_at_ms > since_ms]
        for each in standing:
            each.expires_at_ms = max(each.expires_at_ms, now_ms + each.ttl_ms)
        return len(standing)

    def _note_expiry(self, each: T) -> None:
        """``each`` is new, or may run out earlier than before."""
        if self.next_expiry_ms is None or each.expires_at_ms < self.next_expiry_ms:
            self.next_expiry_ms = each.expires_at_ms


def check_ttl(ttl_ms: int) -> None:
    """Refuse a time that is none.

    Raises:
        InvalidRequest: It is below 1.
    """
    if ttl_ms < 1:
        raise InvalidRequest.of("ttl_ms", "must be at least 1")
