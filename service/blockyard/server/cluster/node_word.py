"""What a node says of itself with each heartbeat."""

import json
from dataclasses import dataclass

from blockyard.server.cluster.bucket import NotOurs
from blockyard.server.cluster.entries import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWord:
    """Of one node.

    Attributes:
        url: Where it is reached.
        session: Under which lease.
        is_leaving: Whether it hands its pools over, and takes no others.
        num_owned: Pools that it owns.
        num_followed: Pools that it holds warm for others.
    """

    url: str
    session: Session
    is_leaving: bool = False
    num_owned: int = 0
    num_followed: int = 0

    def encode(self) -> bytes:
        """As it is stored."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()

    @classmethod
    def decode(cls, stored: bytes) -> "NodeWord":
        """The inverse; fields that it does not know are passed over. Raises NotOurs."""
        try:
            told = json.loads(stored)
            return cls(**{name: told[name] for name in cls.__slots__ if name in told})
        except (ValueError, TypeError) as error:
            raise NotOurs(f"no word of a node: {error}") from error
