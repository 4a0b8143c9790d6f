"""Whether a ZeroMQ socket is let in: ZeroMQ itself tries for ever, or not again, and says nothing."""

from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from blockyard.client.errors import EventsRefused

MAX_BROKEN = 3
"""Handshakes in a row that may break off: a server that stops breaks one."""


class Handshakes:
    """Watches those of ``socket``, from before it connects on.

    Attributes:
        has_lost: Whether a connection that stood has ended, by the last look.
    """

    def __init__(self, socket: "zmq.Socket[Any]") -> None:
        self._events = socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED
            | zmq.EVENT_HANDSHAKE_FAILED_AUTH
            | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
            | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
            | zmq.EVENT_DISCONNECTED
        )
        self.has_lost = False
        self._num_broken = 0

    def check(self) -> None:
        """Look at what came of them since the last look.

        Raises:
            EventsRefused: The server does not know the key, wants one, or breaks off again and again.
        """
        while self._events.poll(0):
            event = recv_monitor_message(self._events)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._num_broken = 0
            elif event == zmq.EVENT_DISCONNECTED:
                self.has_lost = True
            elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                raise EventsRefused("the server does not know this follower's public key")
            elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                raise EventsRefused("one side uses CURVE, the other does not: give `curve`, or none")
            else:
                self._num_broken += 1
        if self._num_broken >= MAX_BROKEN:
            self._num_broken = 0
            raise EventsRefused("the handshake breaks off each time: is this the server's public key?")

    def close(self) -> None:
        """Watch no more."""
        self._events.close()
