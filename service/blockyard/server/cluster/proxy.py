"""Asks a pool's owner for a caller who cannot be sent there, and passes on what it says as it comes."""

import asyncio
import ssl
from collections.abc import Coroutine, Iterator
from http import HTTPStatus
from typing import Any, TypeVar

import httpx
import structlog
from starlette.types import Receive, Scope, Send

from blockyard.server.cluster.directory import Owner
from blockyard.server.cluster.refusals import moving
from blockyard.server.cluster.target import target_of
from blockyard.server.cluster.tasks import end
from blockyard.server.guard import ClientGone, end_connection, waiting
from blockyard.server.settings import MAX_WAIT_MS
from blockyard.server.sse import KEEP_ALIVE_S, Streams, hung_up, is_stream

T = TypeVar("T")

log = structlog.get_logger("blockyard.cluster")

FORWARDED = b"blockyard-forwarded"
"""Header of a request that another node passes on; it is not passed on once more."""

_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"content-length",
        b"host",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"expect",
        b"date",
        FORWARDED,
    )
)
CONNECT_S = 2.0
SILENCE_S = 3 * KEEP_ALIVE_S
"""An owner is waited for so long at least, also for the next part of a stream."""
MAX_WAIT_S = MAX_WAIT_MS / 1_000
_WAIT = b"wait_ms"


def is_forwarded(scope: Scope) -> bool:
    """Whether another node passes the request on."""
    return any(name == FORWARDED for name, _ in scope["headers"])


class Proxy:
    """Keeps connections to other nodes.

    Args:
        node: This node's name.
        tls: For ``https://``; None: what httpx trusts.
        timeout_s: How long an answer may take here. The guard holds it to that.
        streams: What is passed on for long is among them, and ends with them: a stream of events, or a call
            that waits for blocks.
    """

    def __init__(self, node: str, tls: ssl.SSLContext | None, timeout_s: float, streams: Streams) -> None:
        self._node = node.encode()
        self._read_s = max(timeout_s, SILENCE_S)
        self._streams = streams
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._client = httpx.AsyncClient(
            verify=tls or True, limits=limits, trust_env=False, follow_redirects=False
        )

    async def forward(self, owner: Owner, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request of ``scope`` with what ``owner`` answers to it.

        Raises:
            NotReady: It does not; whether it has done what was asked is not known.
            ClientGone: The caller hung up, as the owner finds out too.
            Overloaded: It is one stream of events too many.
        """
        body = (await receive()).get("body", b"")
        try:
            response = await self._ask(owner, scope, body, receive)
        except httpx.HTTPError as error:
            log.info("a pool's owner does not answer", node=owner.node, error=repr(error))
            raise moving() from error
        try:
            await self._tell(response, scope, receive, send)
        except httpx.HTTPError as error:
            log.info("a pool's owner has broken off an answer", node=owner.node, error=repr(error))
            end_connection(scope)
        finally:
            await response.aclose()

    async def _ask(self, owner: Owner, scope: Scope, body: bytes, receive: Receive) -> httpx.Response:
        """The beginning of the owner's answer."""
        is_waiting = _WAIT in body
        read_s = self._read_s + (MAX_WAIT_S if is_waiting else 0)
        request = self._client.build_request(
            scope["method"],
            owner.url + target_of(scope),
            headers=self._headers(scope),
            content=body,
            timeout=httpx.Timeout(CONNECT_S, read=read_s),
        )
        asking = self._client.send(request, stream=True)
        if not is_waiting:
            response = await _unless(asking, hung_up(receive))
        else:
            with waiting(scope, MAX_WAIT_S), self._streams.opened(scope) as ended:
                response = await _unless(asking, hung_up(receive), ended.wait())
                if response is None and ended.is_set():
                    raise moving()
        if response is None:
            raise ClientGone
        if response.status_code == HTTPStatus.TEMPORARY_REDIRECT:
            await response.aclose()
            raise moving()  # the pool has moved just now, and this caller cannot follow it
        return response

    async def _tell(self, response: httpx.Response, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name.lower(), value) for name, value in _kept(response.headers.raw)]
        start = {"type": "http.response.start", "status": response.status_code, "headers": headers}
        if is_stream(start):
            self._streams.check()
            with self._streams.opened(scope) as ended:
                await send(start)
                await _unless(_parts(response, send), hung_up(receive), ended.wait())
        else:
            await send(start)
            await _parts(response, send)
        await send({"type": "http.response.body", "body": b""})

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def _headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        return [*_kept(scope["headers"]), (FORWARDED, self._node)]


def _kept(headers: list[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Without those that are between two neighbours alone."""
    return ((name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP)


async def _parts(response: httpx.Response, send: Send) -> None:
    async for part in response.aiter_raw():
        await send({"type": "http.response.body", "body": part, "more_body": True})


async def _unless(work: Coroutine[Any, Any, T], *ends: Coroutine[Any, Any, Any]) -> T | None:
    """What comes of ``work``; None where one of ``ends`` comes before."""
    task = asyncio.create_task(work)
    ending = [asyncio.create_task(each) for each in ends]
    try:
        await asyncio.wait([task, *ending], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        await end(task, *ending)
