"""How a node that is to own a pool asks the one that does for it: a word over NATS, without an answer.

What comes of it stands in the pool's stream.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable

from nats.aio.msg import Msg

from blockyard.server.cluster.connection import PASSING, Connection
from blockyard.server.cluster.names import Names

ASK_EVERY_S = 0.5
"""How often an owner is asked for one pool."""


class HandOverRequests:
    """Those that one node sends and gets.

    Args:
        connection: To NATS.
        names: The cluster's.
        node: The node's.
    """

    def __init__(self, connection: Connection, names: Names, node: str) -> None:
        self._client = connection.client
        self._names = names
        self._node = node
        self._asked_s: dict[str, float] = {}

    async def listen(self, heed: Callable[[str, str], None]) -> None:
        """From now on ``heed`` is called with the pool that is asked for, and the node that asks."""

        async def take(message: Msg) -> None:
            asked = json.loads(message.data)
            heed(asked["pool"], asked["heir"])

        await self._client.subscribe(self._names.requests(self._node), cb=take)

    def forget(self, pool: str) -> None:
        """The pool is not asked for any more."""
        self._asked_s.pop(pool, None)

    async def ask(self, pool: str, owner: str) -> None:
        """Ask ``owner`` for the pool, unless that was just done."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._asked_s.get(pool, -ASK_EVERY_S) >= ASK_EVERY_S:
            self._asked_s[pool] = now_s
            request = json.dumps({"pool": pool, "heir": self._node}).encode()
            with contextlib.suppress(*PASSING):
                await self._client.publish(self._names.requests(owner), request)
