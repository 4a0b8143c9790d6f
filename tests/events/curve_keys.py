"""A machine's keys for the event sockets: the server's, and those of its followers."""

from pathlib import Path

import zmq.auth

from blockyard.client.zmq_curve import Curve


class CurveKeys:
    """All in ``folder``; nobody may follow yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.followers = folder / "followers"
        self.followers.mkdir()
        public, self.server_secret = zmq.auth.create_certificates(folder, "server")
        self.server_public = Path(public)

    @property
    def options(self) -> tuple[str, ...]:
        """What a server is told of them."""
        return ("--event-curve-key", str(self.server_secret), "--event-curve-clients", str(self.followers))

    def make(self, name: str, *, is_listed: bool = True) -> Curve:
        """A follower's, new; ``is_listed``: the server knows it."""
        _, secret = zmq.auth.create_certificates(self._folder, name)
        if is_listed:
            self.admit(name)
        return Curve.read(secret, self.server_public)

    def admit(self, name: str) -> None:
        """Let the server know the key that was made under ``name``."""
        own = self._folder / f"{name}.key"
        (self.followers / own.name).write_bytes(own.read_bytes())

    def dismiss(self, name: str) -> None:
        """Let it know that key no more."""
        (self.followers / f"{name}.key").unlink()
