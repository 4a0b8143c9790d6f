"""The ZeroMQ sockets: PUB, which sends every batch, and ROUTER, which sends missed ones again.

A message has three frames: topic, number (8 bytes, big-endian), payload. A request for what was missed is an
empty frame and the number of the first batch wanted; a topic after these asks for that alone, else all pools
answer. The answer is a message a batch, each behind an empty frame, and at the end one with number -1.

PUB never waits: what a subscriber does not take in time is dropped for it, and it finds a gap in the numbers.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Self

import structlog
import zmq
import zmq.asyncio

from blockyard.core.kv_batch import Batch
from blockyard.server.events.errors import EventsUnavailable
from blockyard.server.events.pool_stream import PoolStream

log = structlog.get_logger("blockyard.events")

MAX_WAITING = 100_000
"""Messages that are kept for a subscriber that does not take them."""
END_NUMBER = (-1).to_bytes(8, "big", signed=True)
LINGER_MS = 500
"""How long the end waits for what was sent last."""
BATCHES_A_SLICE = 100
MAX_REQUEST_BYTES = 4_096


class EventSockets:
    """Both sockets, bound.

    Args:
        endpoint: Of PUB, such as ``tcp://127.0.0.1:5557``; port ``*`` takes a free one.
        replay_endpoint: Of ROUTER; empty for none.

    Raises:
        EventsUnavailable: An endpoint is not valid, or taken.
    """

    def __init__(self, endpoint: str, replay_endpoint: str = "") -> None:
        self._context = zmq.asyncio.Context()
        self._replay: zmq.asyncio.Socket | None = None
        try:
            self._publish = zmq.Context(self._context).socket(zmq.PUB)
            self._publish.sndhwm = MAX_WAITING
            self.endpoint = _bind(self._publish, endpoint, "--event-endpoint")
            if replay_endpoint:
                self._replay = self._context.socket(zmq.ROUTER)
                self._replay.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_BYTES)
                self._replay.setsockopt(zmq.ROUTER_MANDATORY, 1)
                self._replay.sndhwm = MAX_WAITING
                self.replay_endpoint = _bind(self._replay, replay_endpoint, "--event-replay-endpoint")
        except EventsUnavailable:
            self.close()
            raise

    def publish(self, stream: PoolStream, batches: Iterable[Batch]) -> None:
        """Send ``batches`` of ``stream`` to whoever subscribed to its topic."""
        for batch in batches:
            self._publish.send_multipart(_frames(stream, batch), flags=zmq.NOBLOCK)

    async def answer(self, streams: Callable[[], Iterable[PoolStream]]) -> None:
        """Send again what is asked for, of ``streams``, for ever."""
        if self._replay is None:
            return
        while True:
            asker, *request = await self._replay.recv_multipart()
            try:
                await self._send_again(asker, request, streams())
            except (ValueError, zmq.ZMQError) as error:  # it is none, or its sender is gone or takes nothing
                log.info("a request for missed events was not answered", reason=str(error))
            except Exception:  # whatever it is, others want an answer
                log.exception("a request for missed events failed")

    async def _send_again(self, asker: bytes, request: list[bytes], streams: Iterable[PoolStream]) -> None:
        assert self._replay is not None
        if not 2 <= len(request) <= 3 or request[0] or len(request[1]) != 8:
            raise ValueError("it is not an empty frame and a number of 8 bytes")
        number = int.from_bytes(request[1], "big")
        topic = request[2].decode() if len(request) == 3 else None
        for stream in streams:
            if topic is not None and stream.topic != topic:
                continue
            for sent, batch in enumerate(stream.since(number), start=1):
                frames = [asker, b"", *_frames(stream, batch)]
                await self._replay.send_multipart(frames, flags=zmq.NOBLOCK)
                if sent % BATCHES_A_SLICE == 0:
                    await asyncio.sleep(0)
        await self._replay.send_multipart([asker, b"", b"", END_NUMBER, b""], flags=zmq.NOBLOCK)

    def close(self) -> None:
        """Give the endpoints back."""
        for socket in (self._publish, self._replay):
            if socket is not None:
                socket.close(linger=LINGER_MS)
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
