"""A pool's prefix index kept over ZeroMQ: `KvMirror` and its sockets. Needs the extra ``events``.

    with ZmqFollower(client.pool("chat"), "tcp://10.0.0.5:5557", "tcp://10.0.0.5:5558") as follower:
        while True:
            follower.follow(timeout_s=1.0)
            if follower.mirror.has(external_int64(block_hash)):
                ...

Hashes are in the form that the pool's events have: that of `external_int64`, unless it was created for
another.

In a cluster the endpoints of all nodes are given: the pool's owner alone publishes. That another node has
taken the pool over is learned when the one before ends the pool's stream, or its connection. A node that
stands still does neither: whoever has to know catches up from time to time.
"""

from collections.abc import Sequence
from typing import Self

try:
    import zmq
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("this needs ZeroMQ: pip install 'blockyard[events]'", name="zmq") from error

from blockyard.client.client import Pool
from blockyard.client.kv_events import AllBlocksCleared, KvBatch, KvSnapshot
from blockyard.client.kv_mirror import KvMirror
from blockyard.client.zmq_curve import Curve
from blockyard.client.zmq_handshakes import Handshakes
from blockyard.client.zmq_replay import Replay

MAX_WAITING = 100_000
"""Messages that are kept until they are taken."""


class ZmqFollower:
    """Subscribes, then reads all that is stored; from then on as far as it is asked to `follow`.

    Used by one thread.

    Args:
        pool: Of a client that stays open, and whose form is msgpack.
        endpoint: The server's ``--event-endpoint``, as it is reached from here; of a cluster, those of all
            nodes.
        replay_endpoint: Its ``--event-replay-endpoint``, or those of all nodes; None where it has none: a
            snapshot is then read in place of what was missed.
        curve: Keys, where the server wants them (its ``--event-curve-key``, which all nodes share).

    Attributes:
        mirror: The index.

    Raises:
        NoEvents: The pool was created without events.
        BlockyardError: The server does not answer, or refuses otherwise.
    """

    def __init__(
        self,
        pool: Pool,
        endpoint: str | Sequence[str],
        replay_endpoint: str | Sequence[str] | None = None,
        *,
        curve: Curve | None = None,
    ) -> None:
        self.mirror = KvMirror(self._snapshot, self._missed)
        self._pool = pool
        self._topic: bytes | None = None
        self._context = zmq.Context()
        self._replay = Replay(self._context, _several(replay_endpoint), curve)
        self._endpoints = _several(endpoint)
        self._updates = self._context.socket(zmq.SUB)
        self._updates.rcvhwm = MAX_WAITING
        try:
            if curve is not None:
                curve.use(self._updates)
            self._handshakes = Handshakes(self._updates)
            self.mirror.catch_up()  # says the topic; what comes until we are subscribed is caught up with
            for each in self._endpoints:
                self._updates.connect(each)
            self.mirror.catch_up()
        except BaseException:
            self.close()
            raise

    def follow(self, timeout_s: float = 0.0) -> int:
        """Take what has come, waiting up to ``timeout_s`` for the first of it.

        Returns:
            How many batches: at most `MAX_WAITING`; call again.

        Raises:
            BlockyardError: Something was missed, and the server does not answer, or the pool is gone.
            EventsRefused: The server does not let this follower in.
            InvalidEvents: What came is no batch.
        """
        num_taken = 0
        wait_ms = int(timeout_s * 1e3)
        while num_taken < MAX_WAITING and self._updates.poll(wait_ms):
            frames = self._updates.recv_multipart()
            wait_ms = 0
            if frames[0] != self._topic:  # a subscription is to all topics that begin so
                continue
            batch = KvBatch.from_frames(frames)
            self.mirror.receive(batch)
            num_taken += 1
            if AllBlocksCleared() in batch.events:  # a pool that is deleted ends so, and another may follow
                self.mirror.catch_up()
        self._handshakes.check()
        if self._handshakes.has_lost and len(self._endpoints) > 1:  # another node may have the pool by now
            self.mirror.catch_up()
            self._handshakes.has_lost = False
        return num_taken

    def catch_up(self) -> None:
        """Have what the server had when this was called, whatever was missed. Raises as `follow` does."""
        self.follow()
        self.mirror.catch_up()

    def close(self) -> None:
        """Give the sockets back."""
        self._context.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _snapshot(self) -> KvSnapshot:
        snapshot = self._pool.event_snapshot()
        topic = snapshot.topic.encode()
        if self._topic != topic:
            if self._topic is not None:
                self._updates.unsubscribe(self._topic)
            self._updates.subscribe(topic)
            self._topic = topic
        return snapshot

    def _missed(self, number: int) -> list[KvBatch]:
        """The batches from ``number`` on; none, too, if they did not all arrive."""
        return self._replay.since(number, self._topic or b"", MAX_WAITING)


def _several(endpoints: str | Sequence[str] | None) -> Sequence[str]:
    if endpoints is None:
        return ()
    return (endpoints,) if isinstance(endpoints, str) else endpoints
