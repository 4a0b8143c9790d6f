"""What was answered under which idempotency key, so that a repeat gets the first answer again."""

from typing import Any

from blockyard.core.errors import BlockyardError, InvalidRequest
from blockyard.core.replies import Reply
from blockyard.core.wire_value import decode_value, encode_value


class ReplyMemory:
    """The last ``max_replies`` outcomes; the oldest is forgotten first."""

    __slots__ = ("_outcomes", "max_replies")

    def __init__(self, max_replies: int) -> None:
        self.max_replies = max_replies
        self._outcomes: dict[str, tuple[bytes, Reply | BlockyardError]] = {}

    def recall(self, key: str, fingerprint: bytes) -> Reply | None:
        """The reply given under ``key``; None if there was none.

        Raises:
            InvalidRequest: The key was used for a request with another fingerprint.
            BlockyardError: The first request was refused with it.
        """
        known = self._outcomes.get(key)
        if known is None:
            return None
        first_fingerprint, outcome = known
        if first_fingerprint != fingerprint:
            raise InvalidRequest.of(
                "Idempotency-Key", "was used for another request: draw a new key for each"
            )
        if isinstance(outcome, BlockyardError):
            raise outcome.again()
        return outcome

    def remember(self, key: str, fingerprint: bytes, outcome: Reply | BlockyardError) -> None:
        """Keep ``outcome`` for repeats."""
        if len(self._outcomes) >= self.max_replies:
            del self._outcomes[next(iter(self._outcomes))]
        self._outcomes[key] = (fingerprint, outcome)

    def to_state(self) -> list[Any]:
        """The memory as plain data, the oldest first."""
        return [[key, mark, encode_value(outcome)] for key, (mark, outcome) in self._outcomes.items()]

    @classmethod
    def from_state(cls, state: list[Any], max_replies: int) -> "ReplyMemory":
        """The memory that ``state`` was taken from."""
        memory = cls(max_replies)
        memory._outcomes = {key: (mark, decode_value(outcome)) for key, mark, outcome in state}
        return memory
