"""Ways to carry a request to its server: all of them alike to the caller.

`blockyard.client.lean` and `blockyard.client.async_lean` speak HTTP over their own sockets and cost a tenth
of a general client; `HttpxTransport` and `AsyncHttpxTransport` do what httpx does: proxies, settings of one's
own.
"""

import asyncio
from typing import Protocol

import httpx

from blockyard.client.errors import ConnectionLost, TlsRefused, UnexpectedReply
from blockyard.client.tls import is_refusal
from blockyard.client.wire import Request, Response


class Transport(Protocol):
    """Carries requests, from any thread."""

    def send(self, request: Request, timeout_s: float) -> Response:
        """The response, whatever its status; sent once, and no redirect is followed.

        Raises:
            ConnectionLost: No response arrived within ``timeout_s``.
            UnexpectedReply: It cannot be read.
            RuntimeError: The transport is closed.
        """
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class AsyncTransport(Protocol):
    """Carries requests, on one event loop."""

    async def send(self, request: Request, timeout_s: float) -> Response:
        """As `Transport.send`."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class HttpxTransport:
    """A Transport of httpx.

    Args:
        client: With settings of one's own (TLS, proxies, limits); closed with the transport.
    """

    def __init__(self, client: httpx.Client | None = None) -> None:
        self._client = client or httpx.Client()

    def send(self, request: Request, timeout_s: float) -> Response:
        """As `Transport.send`; ``timeout_s`` holds for each phase, such as a pause in the response."""
        try:
            reply = self._client.request(
                request.method,
                request.origin + request.target,
                headers=request.headers,
                content=request.body or None,
                timeout=timeout_s,
                follow_redirects=False,
            )
        except httpx.RequestError as error:
            raise _failed(request, error) from error
        return Response(reply.status_code, dict(reply.headers), reply.content)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


class AsyncHttpxTransport:
    """An AsyncTransport of httpx.

    Args:
        client: As for `HttpxTransport`.
    """

    def __init__(self, client: httpx.AsyncClient | None = None) -> None:
        self._client = client or httpx.AsyncClient()

    async def send(self, request: Request, timeout_s: float) -> Response:
        """As `Transport.send`."""
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._client.request(
                    request.method,
                    request.origin + request.target,
                    headers=request.headers,
                    content=request.body or None,
                    timeout=timeout_s,
                    follow_redirects=False,
                )
        except TimeoutError as error:
            raise ConnectionLost(f"no reply from {request.origin} within {timeout_s:g} s") from error
        except httpx.RequestError as error:
            raise _failed(request, error) from error
        return Response(reply.status_code, dict(reply.headers), reply.content)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _failed(request: Request, error: httpx.RequestError) -> Exception:
    """What ``error`` is to a caller.

    A RemoteProtocolError is a connection lost: httpx tells a peer that broke off so, too.
    """
    sentence = f"{request.method} {request.origin}{request.target}: {str(error) or type(error).__name__}"
    if isinstance(error, (httpx.LocalProtocolError, httpx.UnsupportedProtocol)):
        return ValueError(sentence)
    if isinstance(error, httpx.DecodingError):
        return UnexpectedReply(sentence)
    if is_refusal(error):
        return TlsRefused(sentence)
    return ConnectionLost(sentence)
