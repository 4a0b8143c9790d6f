"""Where a client's calls go: to the nodes that it was given, and to where each pool was found.

Memory alone: no I/O and no clock. A single server is a cluster of one node, of which nothing is ever learned.
"""

import threading
from collections.abc import Sequence
from typing import NamedTuple

from blockyard.client.origins import origin_for
from blockyard.client.paths import pool_of
from blockyard.client.wire import Request

MAX_POOLS = 4_096
"""More are not remembered: the one that was found first is forgotten, and asked for anew."""


class Found(NamedTuple):
    """What is known of a pool.

    Attributes:
        origin: Of the node that has answered for it; None where it does not any more.
        ownership: The highest that a reply had: it rises with each owner.
    """

    origin: str | None
    ownership: int


class Routes:
    """Nothing is known at first but ``given``. Thread-safe.

    Args:
        given: Origins of nodes of one cluster, or of one server; at least one.

    Attributes:
        given: As given.
    """

    __slots__ = ("_found", "_has_found", "_lock", "_next", "given")

    def __init__(self, given: Sequence[str]) -> None:
        self.given = tuple(given)
        self._next = 0
        self._found: dict[str, Found] = {}
        self._has_found = False
        self._lock = threading.Lock()

    @property
    def is_cluster(self) -> bool:
        """Whether there is more than one node, as far as is known."""
        return len(self.given) > 1 or self._has_found

    def start(self, path: str) -> str:
        """Where to send a call for ``path``."""
        if self._found:
            found = self._found.get(pool_of(path))
            if found is not None and found.origin is not None:
                return found.origin
        return self.given[self._next]

    def note_reply(self, path: str, origin: str, ownership: int) -> bool:
        """A reply about ``path`` came from ``origin``, which owns the pool as the one of that number.

        Returns:
            Whether that is so: False of a node that another one has followed.
        """
        pool = pool_of(path)
        if self._found.get(pool) == (origin, ownership):
            return True
        with self._lock:
            known = self._found.get(pool)
            if known is not None and ownership < known.ownership:
                return False
            self._note(pool, Found(origin, ownership))
        return True

    def note_redirect(self, path: str, origin: str, ownership: int) -> bool:
        """A node says that ``origin`` owns the pool of ``path``, as the one of that number; 0: is to make it.

        Returns:
            Whether it may be so: False where a later owner has answered.
        """
        pool = pool_of(path)
        with self._lock:
            known = self._found.get(pool)
            highest = 0 if known is None else known.ownership  # only an owner itself raises it
            if 0 < ownership < highest:
                return False
            self._note(pool, Found(origin, highest))
        return True

    def leave(self, path: str, origin: str) -> None:
        """A call for ``path`` has failed at ``origin``: later ones start elsewhere, if there is another."""
        pool = pool_of(path)
        with self._lock:
            known = self._found.get(pool)
            if known is not None and known.origin == origin:
                self._found[pool] = Found(None, known.ownership)
            if self.given[self._next] == origin:
                self._next = (self._next + 1) % len(self.given)

    def forget(self, path: str) -> None:
        """The pool of ``path`` is gone: one made anew under its name has owners of its own."""
        with self._lock:
            self._found.pop(pool_of(path), None)

    def named(self, location: str | None, request: Request) -> str | None:
        """The node where ``location`` sends ``request``; None where it is not to be followed.

        The target stays the same, and what was sent over TLS is not sent without. Nor is TLS begun on a
        node's word: whom to trust was not said to a client that was given no ``https://``.
        """
        origin = origin_for(location, request.target)
        if origin is None:
            return None
        was_secure, is_secure = (one.startswith("https:") for one in (request.origin, origin))
        if was_secure and not is_secure:
            return None
        if is_secure and not any(one.startswith("https:") for one in self.given):
            return None
        return origin

    def _note(self, pool: str, found: Found) -> None:
        if pool not in self._found and len(self._found) >= MAX_POOLS:
            del self._found[next(iter(self._found))]
        self._found[pool] = found
        self._has_found = True

    def __str__(self) -> str:
        return ", ".join(self.given)
