"""Follows a JetStream stream: every message once and in order, whatever happens to servers in between.

An ephemeral consumer pushes them. Where one is missing, or nothing is heard any more, a new consumer goes on
behind the last message that came.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self

import structlog
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from blockyard.server.cluster.connection import PASSING, RETRY_S, Connection
from blockyard.server.cluster.tasks import end

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

log = structlog.get_logger("blockyard.cluster")

HEARTBEAT_S = 1.0
"""How often a consumer says that there is nothing new."""
SILENCE_S = 2.5 * HEARTBEAT_S
"""After that it is given up."""
FORGET_S = 30.0
"""A consumer that nobody listens to is forgotten after so long."""
_GOES_ON = "100"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a stream.

    Attributes:
        sequence: Its place in the stream, from 1.
        subject: What it was published to.
        data: Its body.
        headers: Its headers.
    """

    sequence: int
    subject: str
    data: bytes
    headers: Mapping[str, str]


class StreamReader:
    """From one sequence on. An asynchronous context manager, within which it follows.

    Args:
        connection: To NATS.
        stream: Its name.
        after: The first message is the one behind this sequence, or the first of all that there still are.
        subject: Of the messages; None: all.
    """

    def __init__(
        self, connection: Connection, stream: str, *, after: int, subject: str | None = None
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._subject = subject
        self._queue: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._subscription: Subscription | None = None
        self._received = after
        self._consumer = 0
        self._num_received = 0
        self._heard_s = 0.0
        self._restarting = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._num_behind = 0

    async def __aenter__(self) -> Self:
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._following is not None, "it was entered"
        await end(self._following)
        await self._unsubscribe()

    @property
    def num_pending(self) -> int:
        """Messages that `read` has not given yet, with those that the last one told of."""
        return self._num_behind + len(self._queue)

    async def read(self) -> list[Message]:
        """All that has come and was not read, one at least."""
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        messages = list(self._queue)
        self._queue.clear()
        return messages

    def restart(self) -> None:
        """Ask anew, since there is more than came."""
        self._restarting.set()

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._restarting.clear()
            try:
                await self._subscribe()
            except PASSING as error:
                log.debug("a stream cannot be followed", stream=self._stream, error=repr(error))
                await asyncio.sleep(RETRY_S)
                continue
            self._heard_s = loop.time()
            while not self._restarting.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_S):
                        await self._restarting.wait()
                if loop.time() - self._heard_s > SILENCE_S:
                    break

    async def _subscribe(self) -> None:
        await self._unsubscribe()
        client = self._connection.client
        inbox = client.new_inbox()
        self._num_received = 0
        self._consumer += 1
        self._subscription = await client.subscribe(inbox, cb=partial(self._take, self._consumer))
        await self._connection.jetstream.add_consumer(
            self._stream,
            ConsumerConfig(
                deliver_subject=inbox,
                filter_subject=self._subject,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=self._received + 1,
                ack_policy=AckPolicy.NONE,
                max_deliver=1,
                idle_heartbeat=HEARTBEAT_S,
                flow_control=True,
                inactive_threshold=FORGET_S,
                mem_storage=True,
                num_replicas=1,
            ),
        )

    async def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with contextlib.suppress(*PASSING):
                await subscription.unsubscribe()

    async def _take(self, consumer: int, message: Msg) -> None:
        if consumer != self._consumer:
            return  # of one that was given up
        self._heard_s = asyncio.get_running_loop().time()
        headers = message.headers or {}
        if "Status" in headers:
            await self._heed(headers, message.reply)
            return
        told = message.metadata
        place = told.sequence
        if place.consumer != self._num_received + 1:
            self.restart()
            return
        self._num_received += 1
        self._received = place.stream
        self._num_behind = told.num_pending
        self._queue.append(Message(place.stream, message.subject, message.data, headers))
        self._arrived.set()

    async def _heed(self, headers: Mapping[str, str], reply: str) -> None:
        """What the consumer says beside messages: that it waits, that there is nothing new, that it ends."""
        waits_at = reply or headers.get("Nats-Consumer-Stalled")
        if waits_at:
            await self._connection.client.publish(waits_at)
        if (
            headers["Status"] != _GOES_ON
            or int(headers.get("Nats-Last-Consumer", self._num_received)) != self._num_received
        ):
            self.restart()
