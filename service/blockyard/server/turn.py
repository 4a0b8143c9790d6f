"""How long this turn of the event loop takes, and whom it can still serve.

All calls are done one after the other by one loop: what arrives while it is busy waits, and is then found
together, in one turn. Under more load than there is time for, turns would grow until every connection's call
is in each of them. So a turn that has lasted for long does no further calls. They are told to come back, at
the pace at which calls were done: as if they stood in a queue, which is the shorter for not being here.
"""

import asyncio

from blockyard.core.errors import Overloaded

MAX_RETRY_AFTER_MS = 5_000
"""Nobody is sent away for longer, so that callers try again within what they give a call in all."""


class Turn:
    """The calls of this turn of the loop.

    Args:
        max_turn_ms: How long they may take, the longest of them not counted: one audit of a large pool is no
            overload, and to refuse those behind it would shorten nothing.
    """

    __slots__ = ("_began_ns", "_free_at_ns", "_last_ns", "_longest_ns", "_max_ns", "_num_calls")

    def __init__(self, max_turn_ms: int) -> None:
        self._max_ns = max_turn_ms * 1_000_000
        self._began_ns: int | None = None
        self._last_ns = self._longest_ns = self._free_at_ns = 0
        self._num_calls = 0

    def take(self, now_ns: int) -> None:
        """Let one more call in, which begins ``now_ns``, by a steady clock.

        Raises:
            Overloaded: There is no time left for it in this turn.
        """
        if self._began_ns is None:
            self._began_ns = now_ns
            self._longest_ns = self._num_calls = 0
            asyncio.get_running_loop().call_soon(self._end)
        else:
            self._longest_ns = max(self._longest_ns, now_ns - self._last_ns)
            if now_ns - self._began_ns - self._longest_ns > self._max_ns:
                raise self._overloaded(now_ns, now_ns - self._began_ns)
        self._last_ns = now_ns
        self._num_calls += 1

    def _end(self) -> None:
        self._began_ns = None

    def _overloaded(self, now_ns: int, lasted_ns: int) -> Overloaded:
        """Refuse one: its place is behind all that were refused before it and have not come back yet."""
        self._free_at_ns = max(self._free_at_ns, now_ns + self._max_ns) + lasted_ns // self._num_calls
        retry_after_ms = min((self._free_at_ns - now_ns) // 1_000_000, MAX_RETRY_AFTER_MS)
        if retry_after_ms == MAX_RETRY_AFTER_MS:
            self._free_at_ns = now_ns + self._max_ns  # the rest are spread over the same time
        return Overloaded(
            "more calls have arrived than can be done soon: slow down and try again",
            {"retry_after_ms": retry_after_ms},
        )
