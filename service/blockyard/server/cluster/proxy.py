"""Asks a pool's owner for a caller who cannot be sent there, and passes on what it says as it comes."""

import asyncio
import ssl
from collections.abc import Iterator
from http import HTTPStatus

import httpx
import structlog
from starlette.types import Receive, Scope, Send

from blockyard.server.cluster.directory import Owner
from blockyard.server.cluster.refusals import moving
from blockyard.server.cluster.target import target_of
from blockyard.server.cluster.tasks import end
from blockyard.server.guard import ClientGone, give_time
from blockyard.server.sse import hung_up

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


def is_forwarded(scope: Scope) -> bool:
    """Whether another node passes the request on."""
    return any(name == FORWARDED for name, _ in scope["headers"])


class Proxy:
    """Keeps connections to other nodes.

    Args:
        node: This node's name.
        tls: For ``https://``; None: what httpx trusts.
        timeout_s: How long an answer, or the next part of it, is waited for.
        max_wait_s: How much longer, since a call may wait for blocks there.
    """

    def __init__(self, node: str, tls: ssl.SSLContext | None, timeout_s: float, max_wait_s: float) -> None:
        self._node = node.encode()
        self._max_wait_s = max_wait_s
        timeout = httpx.Timeout(timeout_s + max_wait_s, connect=CONNECT_S)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._client = httpx.AsyncClient(
            verify=tls or True, timeout=timeout, limits=limits, trust_env=False, follow_redirects=False
        )

    async def forward(self, owner: Owner, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request of ``scope`` with what ``owner`` answers to it.

        Raises:
            NotReady: It does not; whether it has done what was asked is not known.
            ClientGone: Nobody is there to be answered, and it is told so by the end of the connection.
        """
        body = (await receive()).get("body", b"")
        give_time(scope, self._max_wait_s)
        forwarding = asyncio.create_task(self._answer(owner, scope, body, send))
        gone = asyncio.create_task(hung_up(receive))
        try:
            await asyncio.wait([forwarding, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(gone, forwarding)
        if forwarding.cancelled():
            raise ClientGone
        forwarding.result()

    async def _answer(self, owner: Owner, scope: Scope, body: bytes, send: Send) -> None:
        request = self._client.build_request(
            scope["method"], owner.url + target_of(scope), headers=self._headers(scope), content=body
        )
        try:
            response = await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            log.info("a pool's owner does not answer", node=owner.node, error=repr(error))
            raise moving() from error
        try:
            if response.status_code == HTTPStatus.TEMPORARY_REDIRECT:
                raise moving()  # the pool has moved just now, and this caller cannot follow it
            headers = [(name.lower(), value) for name, value in _kept(response.headers.raw)]
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            async for part in response.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
        finally:
            await response.aclose()
        await send({"type": "http.response.body", "body": b""})

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def _headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        return [*_kept(scope["headers"]), (FORWARDED, self._node)]


def _kept(headers: list[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Without those that are between two neighbours alone."""
    return ((name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP)
