"""Around every request of ASGI: the gate, who asks, limits on bodies and time, errors that nobody caught.

The body is read here, whole, before a route runs: a caller who sends slowly, hangs up or sends too much never
gets as far as a pool.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blockyard.core.errors import BlockyardError, BodyTooLarge, NotReady, RequestTimeout
from blockyard.server.access.authenticator import Authenticator
from blockyard.server.access.principal import NOBODY, PRINCIPAL_KEY, Principal
from blockyard.server.access.rules import is_open
from blockyard.server.gate import Gate
from blockyard.server.media import render_error
from blockyard.server.pool_journal import Commit, PoolJournal, told_by
from blockyard.server.sse import is_stream

log = structlog.get_logger("blockyard.request")

DRAIN_FACTOR = 8
"""How many times the limit is read and thrown away, so that a caller who sends first and listens later
gets the answer instead of a broken connection."""


ABORT = "blockyard.abort"
"""The extension of a scope with which our HTTP protocol lets the connection be ended ``now``."""


_TIME = "blockyard.time"
_GATE = "blockyard.gate"


class ClientGone(Exception):
    """The caller hung up before its body was complete, or while it waited."""


class Guard:
    """ASGI middleware.

    Args:
        app: The application.
        gate: Lets requests in, and counts them.
        max_body_bytes: Largest body.
        body_timeout_s: Time for a body to arrive in.
        request_timeout_s: Time for the answer to be there, once the body is. Of a stream of events it is the
            time for its reader to take a part.
        authenticator: Knows who asks.
        journal: Knows when what was done is durable. No answer begins before; where it will never be, that is
            the answer.
        settled: Waits for a commit.
    """

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        *,
        max_body_bytes: int,
        body_timeout_s: int,
        request_timeout_s: int,
        authenticator: Authenticator,
        journal: PoolJournal,
        settled: Callable[[Commit], Awaitable[None]],
    ) -> None:
        self._app = app
        self._gate = gate
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s
        self._request_timeout_s = request_timeout_s
        self._authenticator = authenticator
        self._journal = journal
        self._settled = settled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visit = self._gate.enter(scope["method"], scope["path"])

        def over() -> None:
            """Of a stream its beginning is its answer."""
            visit.route = getattr(scope.get("route"), "path_format", None)
            self._gate.leave(visit, answer.status)

        pool = told_by(scope["path"])
        commit = self._journal.commit(pool)
        answer = _Answer(scope, receive, send, lambda: self._all_settled(pool, commit), over)
        try:
            self._gate.check(visit)
            scope[PRINCIPAL_KEY] = principal = self._principal(scope)
            visit.token_id = principal.token_id
            body = await self._body_in_time(scope, receive)
            if principal is not NOBODY and not self._authenticator.knows(principal):  # not any more
                scope[PRINCIPAL_KEY] = self._principal(scope)
            self._gate.begin(visit, time.perf_counter_ns())
            scope[_GATE] = self._gate
            await self._in_time(scope, _replay(body, receive), answer)
        except ClientGone:
            log.info("client hung up", method=visit.method, path=visit.path)
        except RequestTimeout as error:
            log.info("request was late", method=visit.method, path=visit.path, detail=error.detail)
            if answer.status == 0:
                late = render_error(error)._replace(headers={"Connection": "close"})
                await late.response()(scope, receive, send)
                answer.status = late.status
            else:
                end_connection(scope)
        except BlockyardError as error:
            await render_error(error).response()(scope, receive, answer.send)
        except Exception as error:  # noqa: BLE001 - it is logged
            failed = self._gate.failed(visit, error)
            if answer.status == 0:
                await failed.response()(scope, receive, answer.send)
        finally:
            answer.end()

    async def _all_settled(self, pool: str, commit: Commit) -> None:
        """Wait for ``commit``, and for that of today: a pool may go and come again while a body arrives."""
        await self._settled(commit)
        latest = self._journal.commit(pool)
        if latest is not commit:
            await self._settled(latest)

    def _principal(self, scope: Scope) -> Principal:
        """Who asks: known before anything of the body is read.

        Raises:
            Unauthorized: No known token was sent, and the route is not an open one.
        """
        if is_open(scope["path"]):
            return NOBODY
        return self._authenticator.principal(scope["headers"])

    async def _body_in_time(self, scope: Scope, receive: Receive) -> bytes:
        """The request's body, whole.

        Raises:
            RequestTimeout: It did not arrive in time.
            BodyTooLarge, ClientGone: See `_read_body`.
        """
        try:
            async with asyncio.timeout(self._body_timeout_s):
                return await self._read_body(scope, receive)
        except TimeoutError:
            raise RequestTimeout.of(
                "body_timeout_s", self._body_timeout_s, "the body did not arrive"
            ) from None

    async def _in_time(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        """Have the application give its ``answer``. Nobody waits any longer for what runs in a thread then.

        Raises:
            RequestTimeout: It took too long; whether anything was done is not known.
        """
        try:
            async with asyncio.timeout(self._request_timeout_s) as limit:
                scope[_TIME] = answer.limit = limit
                answer.part_s = self._request_timeout_s
                await self._app(scope, receive, answer.send)
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeout.of(
                "request_timeout_s", self._request_timeout_s, "there was no answer"
            ) from None

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        """The request's body, whole.

        Raises:
            BodyTooLarge: It is over the limit; what was read is thrown away.
            ClientGone: The caller hung up.
        """
        announced = _content_length(scope)
        expects_go_ahead = any(name == b"expect" for name, _ in scope["headers"])
        if announced > self._max_body_bytes and expects_go_ahead:
            raise BodyTooLarge.of(self._max_body_bytes)
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(part)
            if size <= self._max_body_bytes:
                parts.append(part)
            else:
                parts.clear()
                if size > DRAIN_FACTOR * self._max_body_bytes:
                    break
        if size > self._max_body_bytes:
            raise BodyTooLarge.of(self._max_body_bytes)
        return b"".join(parts)


class _Answer:
    """Sends an answer once all that it may tell of is durable; else says that this is not known.

    ``over`` is called once, when it is given: at its end, or once it has begun where it goes on for ever.

    Attributes:
        status: Its HTTP status; 0 before it has begun.
        limit: The time that is left for it; None while it has no bound.
        part_s: Of a stream: the time for its reader to take a part.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        settled: Callable[[], Awaitable[None]],
        over: Callable[[], None],
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._settled = settled
        self._over: Callable[[], None] | None = over
        self._is_withdrawn = False
        self._start: Message = {}
        self.status = 0
        self.limit: asyncio.Timeout | None = None
        self.part_s = 0

    async def send(self, message: Message) -> None:
        """A part of it."""
        if self._is_withdrawn:
            return
        if message["type"] == "http.response.start":
            try:
                await self._settled()
            except NotReady as error:
                self.status, self._is_withdrawn = HTTPStatus.SERVICE_UNAVAILABLE, True
                await render_error(error).response()(self._scope, self._receive, self._send)
                return
            self.status = int(message["status"])
            self._start = message
        elif message.get("more_body") and is_stream(self._start):
            self.end()
            await self._send_part(message)
            return
        await self._send(message)

    async def _send_part(self, message: Message) -> None:
        """A part of a stream, which goes on for ever if each part is taken in time."""
        if self.limit is None:
            await self._send(message)
            return
        self.limit.reschedule(asyncio.get_running_loop().time() + self.part_s)
        await self._send(message)
        self.limit.reschedule(None)

    def end(self) -> None:
        """It is given."""
        over, self._over = self._over, None
        if over is not None:
            over()


@contextmanager
def waiting(scope: Scope, seconds: float) -> Iterator[None]:
    """The request of ``scope`` waits, for so long at most, from here to the end of the block.

    Its answer may take so much longer, and until then it is not one that is worked on.
    """
    gate: Gate | None = scope.get(_GATE)
    with contextlib.nullcontext() if gate is None else gate.resting():
        _give_time(scope, seconds)
        yield


def _give_time(scope: Scope, seconds: float) -> None:
    """The answer to the request of ``scope`` may take so much longer."""
    limit: asyncio.Timeout | None = scope.get(_TIME)
    until_s = None if limit is None else limit.when()
    if limit is not None and until_s is not None:
        limit.reschedule(until_s + seconds)


def end_connection(scope: Scope) -> None:
    """Break off an answer that has begun: what comes next must not be taken for its rest."""
    abort = scope.get("extensions", {}).get(ABORT)
    if abort is not None:
        abort["now"]()


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _replay(body: bytes, receive: Receive) -> Receive:
    """What the application receives: the body in one message, then what comes after it."""
    first: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def replayed() -> Message:
        nonlocal first
        if first is not None:
            message, first = first, None
            return message
        return await receive()

    return replayed
