"""A follower's keys for CURVE, the encryption of ZeroMQ. Needs the extra ``events``."""

import os
from dataclasses import dataclass, field
from typing import Any, Self

import zmq
import zmq.auth


@dataclass(frozen=True, slots=True)
class Curve:
    """What a follower connects with; keys are in Z85.

    Attributes:
        public_key, secret_key: The follower's own; the server has to know the public one.
        server_key: The server's public one: who does not have the secret to it is not talked to.
    """

    public_key: bytes
    secret_key: bytes = field(repr=False)
    server_key: bytes

    @classmethod
    def read(cls, key_file: str | os.PathLike[str], server_key_file: str | os.PathLike[str]) -> Self:
        """From files of ``blockyard curve-key``: one's own ``.key_secret``, and the server's ``.key``.

        Raises:
            OSError: A file cannot be read.
            ValueError: It holds no such key.
        """
        public_key, secret_key = zmq.auth.load_certificate(key_file)
        if secret_key is None:
            raise ValueError(f"{os.fspath(key_file)} has no secret key")
        server_key, _ = zmq.auth.load_certificate(server_key_file)
        return cls(public_key, secret_key, server_key)

    def use(self, socket: "zmq.Socket[Any]") -> None:
        """For all that ``socket`` connects to from now on."""
        socket.curve_publickey = self.public_key
        socket.curve_secretkey = self.secret_key
        socket.curve_serverkey = self.server_key
