"""CURVE, the encryption of ZeroMQ: the server's key, and the followers that are let in.

Keys are in ZeroMQ's certificate format, as ``blockyard curve-key`` writes it. The folder of followers is
read again when someone knocks, once in `MAX_AGE_S` at most: a key that is put there is let in from then on,
and one that is taken away is not. Who is connected already stays so: ZeroMQ asks once, at the beginning.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import structlog
import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from blockyard.server.events.errors import EventsUnavailable

log = structlog.get_logger("blockyard.events")

DOMAIN = "events"
MAX_AGE_S = 1.0
"""How old the known keys may be when someone knocks."""


@dataclass(frozen=True, slots=True)
class Curve:
    """How the sockets are guarded.

    Attributes:
        secret_key: The server's, in Z85.
        followers: Folder of the public keys of those that are let in: its files ``*.key``.
    """

    secret_key: bytes = field(repr=False)
    followers: Path

    @classmethod
    def read(cls, key_file: Path, followers: Path) -> Self:
        """With the secret key in ``key_file``.

        Raises:
            EventsUnavailable: There is none, or no such folder.
        """
        try:
            _, secret_key = zmq.auth.load_certificate(key_file)
            if secret_key is None:
                raise ValueError("it has no secret key")  # noqa: TRY301 - told as the others
            zmq.curve_public(secret_key)
        except (OSError, ValueError, zmq.ZMQError) as error:
            hint = "'blockyard curve-key' makes one"
            raise EventsUnavailable(f"--event-curve-key {key_file}: {error}; {hint}") from error
        if not followers.is_dir():
            raise EventsUnavailable(f"--event-curve-clients {followers} is no directory")
        return cls(secret_key, followers)

    @contextlib.contextmanager
    def door(self, context: "zmq.Context[Any]") -> Iterator[None]:
        """Somebody who answers, in a thread, for the sockets of ``context``: open before these are bound."""
        keeper = ThreadAuthenticator(context)
        keeper.start()
        try:
            keeper.configure_curve_callback(DOMAIN, KnownFollowers(self.followers))
            yield
        finally:
            keeper.stop()

    def guard(self, socket: "zmq.Socket[Any]") -> None:
        """Let in through `door` alone; without one, nobody."""
        socket.curve_server = True
        socket.curve_secretkey = self.secret_key
        socket.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


class KnownFollowers:
    """The public keys in a folder, asked for by one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: frozenset[bytes] = frozenset()
        self._read_at_s: float | None = None
        self._has_told = False

    def callback(self, _domain: str, key: bytes) -> bool:
        """Whether ``key``, in Z85, is one of them: the question of ZeroMQ's authenticator, and its name."""
        now_s = time.monotonic()
        if self._read_at_s is None or now_s - self._read_at_s > MAX_AGE_S:
            self._keys = frozenset(_public_keys(self._folder))
            self._read_at_s = now_s
            self._has_told = False
        is_known = key in self._keys
        if not is_known and not self._has_told:  # once a reading: anyone can knock
            log.warning("an unknown key asked for events", public_key=key.decode(), known=len(self._keys))
            self._has_told = True
        return is_known


def _public_keys(folder: Path) -> Iterator[bytes]:
    """Those of its files that hold one: a file that is being written is read the next time."""
    for file in sorted(folder.glob("*.key")):
        try:
            yield zmq.auth.load_certificate(file)[0]
        except (OSError, ValueError) as error:
            log.warning("a follower's key cannot be read", file=str(file), reason=str(error))
