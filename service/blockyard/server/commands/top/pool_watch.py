"""How one pool is looked at: one message of ``GET /v1/watch``, and one map.

Both are read here and not by `blockyard.client`, which sends calls that have an end.
"""

import base64
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import httpx

from blockyard.client.call import Call, reader, success
from blockyard.client.errors import ConnectionLost
from blockyard.client.origins import origins_of
from blockyard.client.paths import check_pool_name, pool_path
from blockyard.client.retry import RetryPolicy
from blockyard.client.routes import Routes
from blockyard.client.sender import Sender
from blockyard.client.tls import context_for
from blockyard.client.token import token_headers
from blockyard.client.transport import HttpxTransport
from blockyard.client.wire import Response
from blockyard.core.block_map import BlockMap
from blockyard.core.errors import PoolNotFound
from blockyard.server.commands.connection import tls_files
from blockyard.server.commands.reach import Reach
from blockyard.server.latency import CallLatency
from blockyard.server.watch_messages import ChosenPool, Figures, MapReply

TIMEOUT_S = 10.0
"""Of a pause in a reply."""
DATA = "data: "
"""Before a message's content, in its line."""

_read_figures = reader(Figures)
_read_map = reader(MapReply)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPool:
    """One pool.

    Attributes:
        pool: Its figures, top holders and workers.
        latency: Of hot calls to all pools.
        blocks: Each block's state, from a moment before.
    """

    pool: ChosenPool
    latency: list[CallLatency]
    blocks: BlockMap


class PoolWatch:
    """Looks at one pool; to be closed.

    Args:
        server: How it is reached.
        pool: The pool's name.

    Raises:
        ValueError: ``server`` cannot be reached so.
        InvalidRequest: No pool can have this name.
    """

    def __init__(self, server: Reach, pool: str) -> None:
        self._pool = check_pool_name(pool)
        self._path = pool_path(self._pool, "map")
        origins = origins_of(server.url)
        verify = context_for(origins, tls_files(server)) or True
        self._http = httpx.Client(timeout=TIMEOUT_S, verify=verify)
        once_each = RetryPolicy(max_attempts=len(origins))
        self._routes = Routes(origins)
        self._sender = Sender(HttpxTransport(self._http), self._routes, once_each, TIMEOUT_S, server.token)
        self._headers = token_headers(server.token)

    def look(self) -> SeenPool:
        """The pool as it is now.

        Raises:
            PoolNotFound: There is none of this name, or not any more.
            BlockyardError: The server refuses, or does not answer.
        """
        blocks = self._map()
        origin = self._routes.start(self._path)
        try:
            figures = self._figures(origin)
        except ConnectionLost:
            self._routes.leave(self._path, origin)
            raise
        if figures.chosen is None:
            raise PoolNotFound(f"there is no pool {self._pool!r}: it was deleted in the meantime")
        return SeenPool(pool=figures.chosen, latency=figures.latency, blocks=blocks)

    def _map(self) -> BlockMap:
        read = self._sender.send(Call(method="GET", path=self._path, read=_read_map))
        codes = zlib.decompress(base64.b64decode(read.codes))
        return BlockMap(epoch=read.epoch, legend=read.legend, codes=codes)

    def _figures(self, origin: str) -> Figures:
        """The first message of a stream, which comes at once, from the node that has told the map."""
        asked: dict[str, str | int] = {"pool": self._pool, "limit": 1}
        with (
            _reaching(),
            self._http.stream("GET", f"{origin}/v1/watch", params=asked, headers=self._headers) as reply,
        ):
            if not reply.is_success:
                reply.read()
                success(_response(reply))
            for line in reply.iter_lines():
                if line.startswith(DATA):
                    return _read_figures(Response(reply.status_code, {}, line.removeprefix(DATA).encode()))
        raise ConnectionLost("the stream ended before its first message: the server stops")

    def close(self) -> None:
        """Close all connections."""
        self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _response(reply: httpx.Response) -> Response:
    return Response(reply.status_code, dict(reply.headers), reply.content)


@contextmanager
def _reaching() -> Iterator[None]:
    """What httpx says of a server that does not answer, as the client says it."""
    try:
        yield
    except httpx.HTTPError as error:
        raise ConnectionLost(str(error) or type(error).__name__) from error
