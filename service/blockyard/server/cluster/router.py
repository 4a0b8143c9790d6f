"""Sends callers to the owner of the pool that they ask for, or asks it for them.

ASGI, between the guard and the application, which serves the pools of this node.
"""

import asyncio
from collections.abc import Callable

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blockyard.core.errors import PoolElsewhere
from blockyard.server.access.principal import PRINCIPAL_KEY
from blockyard.server.cluster.connection import PASSING
from blockyard.server.cluster.directory import Directory, Owner
from blockyard.server.cluster.proxy import Proxy, is_forwarded
from blockyard.server.cluster.refusals import moving
from blockyard.server.cluster.target import target_of
from blockyard.server.pool_journal import ALL_POOLS, NO_POOL, Commit, told_by

log = structlog.get_logger("blockyard.cluster")

LOOK_S = 2.0
"""How long NATS is asked for a pool that this node does not know."""


class Router:
    """ASGI middleware.

    Args:
        app: Serves the pools of this node.
        directory: Knows where the others are.
        is_here: Whether this node answers for the pool of a name.
        commit: The commit of the pool of a name.
        proxy: Asks other nodes; None: callers are sent there.
    """

    def __init__(
        self,
        app: ASGIApp,
        directory: Directory,
        is_here: Callable[[str], bool],
        commit: Callable[[str], Commit],
        proxy: Proxy | None,
    ) -> None:
        self._app = app
        self._directory = directory
        self._is_here = is_here
        self._commit = commit
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        pool = told_by(scope["path"]) if scope["type"] == "http" else NO_POOL
        if pool in (NO_POOL, ALL_POOLS):
            await self._app(scope, receive, send)
            return
        if not self._is_here(pool) and scope[PRINCIPAL_KEY].reaches(pool):  # else it is not found here
            owner = await self._owner(pool, scope)
            if owner is not None:
                await self._pass_on(pool, owner, scope, receive, send)
                return
        await self._app(scope, receive, self._marked(send, pool))

    async def _owner(self, pool: str, scope: Scope) -> Owner | None:
        """The other node that answers; None where this one does, if only that there is no such pool."""
        try:
            async with asyncio.timeout(LOOK_S):
                owner = await self._directory.owner(pool)
        except PASSING as error:
            log.debug("NATS was not asked where a pool is", pool=pool, error=repr(error))
            raise moving() from error
        makes_pool = scope["method"] == "PUT" and scope["path"].endswith(f"/{pool}")
        if owner is None and makes_pool:
            return self._directory.maker(pool)
        return owner

    async def _pass_on(self, pool: str, owner: Owner, scope: Scope, receive: Receive, send: Send) -> None:
        if self._proxy is not None and not is_forwarded(scope):
            await self._proxy.forward(owner, scope, receive, send)
            return
        raise PoolElsewhere.of(
            pool, node=owner.node, url=owner.url + target_of(scope), ownership=owner.ownership
        )

    def _marked(self, send: Send, pool: str) -> Send:
        """``send``, with what every answer about ``pool`` says beside itself."""
        headers = self._commit(pool).headers

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = headers or self._commit(pool).headers  # it may have been made just now
                lines = [(name.lower().encode(), value.encode()) for name, value in told.items()]
                message = {**message, "headers": [*message.get("headers", ()), *lines]}
            await send(message)

        return marked
