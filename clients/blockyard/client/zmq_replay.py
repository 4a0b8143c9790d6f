"""What a follower has missed, asked for over ZeroMQ: of the nodes of a cluster, one has it."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import zmq

from blockyard.client.kv_events import KvBatch
from blockyard.client.zmq_curve import Curve

ANSWER_TIMEOUT_S = 5.0
"""After such a silence, what is left of an answer is not waited for: a snapshot takes its place."""
OTHERS_TIMEOUT_S = 1.0
"""The same once another node has answered that it has nothing: those that are silent may be gone."""
END_NUMBER = (-1).to_bytes(8, "big", signed=True)


class Replay:
    """Asks all of ``endpoints``; none: there is nobody to ask.

    Args:
        context: For sockets.
        endpoints: The servers' ``--event-replay-endpoint``.
        curve: Keys, where the servers want them.
    """

    def __init__(self, context: "zmq.Context[Any]", endpoints: Sequence[str], curve: Curve | None) -> None:
        self._context = context
        self._endpoints = endpoints
        self._curve = curve

    def since(self, number: int, topic: bytes, max_waiting: int) -> list[KvBatch]:
        """The batches of ``topic`` from ``number`` on; none, too, if they did not all arrive.

        Args:
            number: Of the first that is wanted.
            topic: Of the pool.
            max_waiting: Messages that may wait to be taken.

        Raises:
            InvalidEvents: What came is no batch.
        """
        with ExitStack() as stack:
            poller = zmq.Poller()
            answers: dict[Any, list[KvBatch]] = {}
            for endpoint in self._endpoints:
                socket = stack.enter_context(self._context.socket(zmq.DEALER))
                socket.linger = 0
                socket.rcvhwm = max_waiting
                if self._curve is not None:
                    self._curve.use(socket)
                socket.connect(endpoint)
                socket.send_multipart([b"", number.to_bytes(8, "big"), topic])
                poller.register(socket, zmq.POLLIN)
                answers[socket] = []
            return self._first(poller, answers)

    def _first(self, poller: zmq.Poller, answers: dict[Any, list[KvBatch]]) -> list[KvBatch]:
        """The first answer that is whole and has something."""
        timeout_s = ANSWER_TIMEOUT_S
        deadline_s = time.monotonic() + timeout_s
        while answers:
            ready = poller.poll(max(int((deadline_s - time.monotonic()) * 1e3), 0))
            if not ready:
                break
            for socket, _ in ready:
                _, *frames = socket.recv_multipart()
                if frames[1] != END_NUMBER:
                    answers[socket].append(KvBatch.from_frames(frames))
                    continue
                poller.unregister(socket)
                if batches := answers.pop(socket):
                    return batches
                timeout_s = OTHERS_TIMEOUT_S
            deadline_s = time.monotonic() + timeout_s
        return []
