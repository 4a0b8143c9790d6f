"""The ZeroMQ sockets: PUB, which sends every batch, and ROUTER, which sends missed ones again.

A message has three frames: topic, number (8 bytes, big-endian), payload. A request for what was missed is an
empty frame and the number of the first batch wanted; a topic after these asks for that alone, else all pools
answer. The answer is a message a batch, each behind an empty frame, and at the end one with number -1.

PUB never waits: what a subscriber does not take in time is dropped for it, and it finds a gap in the numbers.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

import structlog
import zmq
import zmq.asyncio

from blockyard.core.kv_batch import Batch
from blockyard.server.events.curve import Curve
from blockyard.server.events.errors import EventsUnavailable
from blockyard.server.events.pool_stream import PoolStream

log = structlog.get_logger("blockyard.events")

MAX_WAITING = 2_000
"""Messages that are kept for a subscriber that does not take them."""
MAX_WAITING_ANSWERS = 100
"""The same of an answer; more of it is sent as these are taken."""
END_NUMBER = (-1).to_bytes(8, "big", signed=True)
LINGER_MS = 500
"""How long the end waits for what was sent last."""
MAX_REQUEST_BYTES = 4_096
"""Of a frame: a request, or a subscription."""
MAX_ANSWERS = 64
"""That are sent at a time."""
PAUSE_SHARE = 4.0
"""Of the time that writing takes, how long answers pause: they take a fifth of the server's time at most."""
ROOM_PAUSE_S = 0.02
ANSWER_TIMEOUT_S = 5.0
"""Whoever asked and takes nothing for so long gets no more."""


class EventSockets:
    """Both sockets, bound.

    Args:
        endpoint: Of PUB, such as ``tcp://127.0.0.1:5557``; port ``*`` takes a free one.
        replay_endpoint: Of ROUTER; empty for none.
        curve: Who may connect; None: whoever can.

    Raises:
        EventsUnavailable: An endpoint is not valid, or taken.
    """

    def __init__(self, endpoint: str, replay_endpoint: str = "", curve: Curve | None = None) -> None:
        self._context = zmq.asyncio.Context()
        self._replay: zmq.asyncio.Socket | None = None
        self._turn = asyncio.Lock()
        self._door = contextlib.ExitStack()
        plain = zmq.Context(self._context)
        self._publish = plain.socket(zmq.PUB)
        try:
            if curve is not None:
                self._door.enter_context(curve.door(plain))
                curve.guard(self._publish)
            self._publish.sndhwm = MAX_WAITING
            self._publish.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_BYTES)
            self.endpoint = _bind(self._publish, endpoint, "--event-endpoint")
            if replay_endpoint:
                self._replay = self._context.socket(zmq.ROUTER)
                if curve is not None:
                    curve.guard(self._replay)
                self._replay.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_BYTES)
                self._replay.setsockopt(zmq.ROUTER_MANDATORY, 1)
                self._replay.sndhwm = MAX_WAITING_ANSWERS
                self.replay_endpoint = _bind(self._replay, replay_endpoint, "--event-replay-endpoint")
        except EventsUnavailable:
            self.close()
            raise

    def publish(self, stream: PoolStream, batches: Iterable[Batch]) -> None:
        """Send ``batches`` of ``stream`` to whoever subscribed to its topic."""
        for batch in batches:
            self._publish.send_multipart(_frames(stream, batch), flags=zmq.NOBLOCK)

    async def answer(self, streams: Callable[[], Iterable[PoolStream]]) -> None:
        """Send again what is asked for, of ``streams``, for ever.

        Whoever asks is sent one answer at a time. With `MAX_ANSWERS` under way others have to ask again.
        """
        if self._replay is None:
            return
        waiting: dict[bytes, list[bytes] | None] = {}  # by who is being answered: what it has asked since
        async with asyncio.TaskGroup() as tasks:
            while True:
                asker, *request = await self._replay.recv_multipart()
                if asker in waiting:
                    waiting[asker] = request
                elif len(waiting) < MAX_ANSWERS:
                    waiting[asker] = request
                    tasks.create_task(self._serve(asker, waiting, streams))

    async def _serve(
        self,
        asker: bytes,
        waiting: dict[bytes, list[bytes] | None],
        streams: Callable[[], Iterable[PoolStream]],
    ) -> None:
        """Answer ``asker`` until it has asked nothing more in the meantime; of several requests the last."""
        while (request := waiting[asker]) is not None:
            waiting[asker] = None
            await self._answer(asker, request, streams)
        del waiting[asker]

    async def _answer(
        self, asker: bytes, request: list[bytes], streams: Callable[[], Iterable[PoolStream]]
    ) -> None:
        try:
            await self._send_again(asker, request, streams())
        except (ValueError, zmq.ZMQError) as error:  # it is none, or its sender is gone or takes nothing
            log.info("a request for missed events was not answered", reason=str(error))
        except Exception:  # whatever it is, others want an answer
            log.exception("a request for missed events failed")

    async def _send_again(self, asker: bytes, request: list[bytes], streams: Iterable[PoolStream]) -> None:
        if not 2 <= len(request) <= 3 or request[0] or len(request[1]) != 8:
            raise ValueError("it is not an empty frame and a number of 8 bytes")
        number = int.from_bytes(request[1], "big")
        topic = request[2].decode() if len(request) == 3 else None
        for stream in streams:
            if topic is not None and stream.topic != topic:
                continue
            for batch in stream.since(number):
                async with self._turn:
                    began_s = time.perf_counter()
                    frames = [asker, b"", *_frames(stream, batch)]
                    await asyncio.sleep((time.perf_counter() - began_s) * PAUSE_SHARE)
                await self._send_to(frames)
        await self._send_to([asker, b"", b"", END_NUMBER, b""])

    async def _send_to(self, frames: list[bytes]) -> None:
        """Send ``frames`` to whoever asked, once there is room. Raises ZMQError: there is none for long."""
        assert self._replay is not None
        for _ in range(int(ANSWER_TIMEOUT_S / ROOM_PAUSE_S)):
            try:
                await self._replay.send_multipart(frames, flags=zmq.NOBLOCK)
            except zmq.Again:
                await asyncio.sleep(ROOM_PAUSE_S)
            else:
                return
        raise zmq.Again

    def close(self) -> None:
        """Give the endpoints back."""
        for socket in (self._publish, self._replay):
            if socket is not None:
                socket.close(linger=LINGER_MS)
        self._door.close()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _frames(stream: PoolStream, batch: Batch) -> list[bytes]:
    return [stream.topic.encode(), batch.number.to_bytes(8, "big"), stream.codec.msgpack(batch)]


def _bind(socket: "zmq.Socket[Any]", endpoint: str, option: str) -> str:
    """Where ``socket`` listens now."""
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        hint = "Give another, as tcp://127.0.0.1:5557"
        raise EventsUnavailable(f"{option} {endpoint}: {error}. {hint}") from error
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)
