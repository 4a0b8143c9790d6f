"""Lets requests in: no more at once than allowed, none while the server is not ready, none that are too late.

Each is counted when it leaves.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry

from blockyard.core.errors import Overloaded
from blockyard.server.media import Answer, render_problem
from blockyard.server.problems import internal_error
from blockyard.server.readiness import RETRY_AFTER_MS, Readiness
from blockyard.server.request_figures import RequestFigures
from blockyard.server.turn import Turn

PROBES = ("/healthz", "/readyz")
"""Answered whatever the server is about."""

LIFELINES = ("/renew", "/heartbeat")
"""Ends of the paths of calls that are never too late in their turn: they are cheap, and what they keep alive
would die of overload."""


@dataclass(slots=True)
class Visit:
    """A request that is being worked on.

    Attributes:
        method: HTTP method.
        path: As it was asked for.
        began_ns: When, by the process's performance counter.
        route: Its route's template, once that is known.
        token_id: Of the token that it came with; empty for none.
    """

    method: str
    path: str
    began_ns: int
    route: str | None = None
    token_id: str = ""


class Gate:
    """All requests pass it, and leave by it.

    Args:
        max_requests_in_flight: Requests beyond these are refused.
        max_turn_ms: How long the calls of one turn of the loop may take: see `Turn`.
        readiness: Whether the server takes requests.
        registry: Where they are counted.

    Attributes:
        figures: The counts.
        turn: Of the loop, in which calls are let in.
    """

    def __init__(
        self,
        *,
        max_requests_in_flight: int,
        max_turn_ms: int,
        readiness: Readiness,
        registry: CollectorRegistry,
    ) -> None:
        self.turn = Turn(max_turn_ms)
        self._max_requests_in_flight = max_requests_in_flight
        self._readiness = readiness
        self._num_in_flight = 0
        self.figures = RequestFigures(num_in_flight=lambda: self._num_in_flight)
        registry.register(self.figures)
        # Bound once: it is used for every request.
        self._log = structlog.get_logger("blockyard.request").bind()

    def enter(self, method: str, path: str) -> Visit:
        """A request has begun: to be followed by `leave`, whatever comes of it, or by `forget`."""
        self._num_in_flight += 1
        return Visit(method, path, time.perf_counter_ns())

    def check(self, visit: Visit) -> None:
        """Let it in.

        Raises:
            NotReady: The server starts or stops.
            Overloaded: Too many are in already.
        """
        if visit.path in PROBES:
            return
        self._readiness.check()
        if self._num_in_flight > self._max_requests_in_flight:
            raise Overloaded(
                f"{self._max_requests_in_flight} requests are in flight already: slow down and try again",
                {"retry_after_ms": RETRY_AFTER_MS},
            )

    def begin(self, visit: Visit, now_ns: int) -> None:
        """All of it is there and its work begins, ``now_ns``.

        Raises:
            Overloaded: This turn of the loop has lasted too long for it.
        """
        if visit.path not in PROBES and not visit.path.endswith(LIFELINES):
            self.turn.take(now_ns)

    def forget(self) -> None:
        """A request that was let in has not begun after all, and will another time."""
        self._num_in_flight -= 1

    @contextmanager
    def resting(self) -> Iterator[None]:
        """A request is not worked on, from here to the end of the block: it keeps nobody out."""
        self._num_in_flight -= 1
        try:
            yield
        finally:
            self._num_in_flight += 1

    def leave(self, visit: Visit, status: int) -> None:
        """It was answered with ``status``; 0: not at all."""
        self._num_in_flight -= 1
        duration_ns = time.perf_counter_ns() - visit.began_ns
        self.figures.answered(visit.route, status, duration_ns / 1e9)
        self._log.debug(
            "request",
            method=visit.method,
            path=visit.path,
            token_id=visit.token_id,
            status=status,
            duration_us=duration_ns // 1_000,
        )

    def failed(self, visit: Visit, error: Exception) -> Answer:
        """What to say of ``error``, a mistake of ours; the log says what it was."""
        self._log.error("internal error", method=visit.method, path=visit.path, exc_info=error)
        return render_problem(internal_error())
