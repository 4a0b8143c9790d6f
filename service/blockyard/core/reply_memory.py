"""What was answered under which idempotency key, so that a repeat gets the first answer again."""

from typing import Any

from blockyard.core.codec import decode_value, encode_value
from blockyard.core.errors import BlockyardError, InvalidRequest
from blockyard.core.replies import Admitted, Allocated, BlocksAllocated, Reply, Stepped

MAX_BLOCK_IDS = 16_384
"""Block ids in the replies that one memory keeps, beside its newest: what makes replies large."""


class ReplyMemory:
    """The last ``max_replies`` outcomes of moderate size in all; the oldest is forgotten first."""

    __slots__ = ("_num_block_ids", "_outcomes", "max_replies")

    def __init__(self, max_replies: int) -> None:
        self.max_replies = max_replies
        self._outcomes: dict[str, tuple[bytes, Reply | BlockyardError]] = {}
        self._num_block_ids = 0

    def knows(self, key: str) -> bool:
        """Whether there was an outcome under ``key`` that is kept."""
        return key in self._outcomes

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
                "idempotency_key", "was used for another request: draw a new key for each"
            )
        if isinstance(outcome, BlockyardError):
            raise outcome.again()
        return outcome

    def remember(self, key: str, fingerprint: bytes, outcome: Reply | BlockyardError) -> None:
        """Keep ``outcome`` for repeats."""
        self._num_block_ids += count_block_ids(outcome)
        while self._outcomes and (
            len(self._outcomes) >= self.max_replies or self._num_block_ids > MAX_BLOCK_IDS
        ):
            _, oldest = self._outcomes.pop(next(iter(self._outcomes)))
            self._num_block_ids -= count_block_ids(oldest)
        self._outcomes[key] = (fingerprint, outcome)

    def to_state(self) -> list[Any]:
        """The memory as plain data, the oldest first."""
        return [[key, mark, encode_value(outcome)] for key, (mark, outcome) in self._outcomes.items()]

    @classmethod
    def from_state(cls, state: list[Any], max_replies: int) -> "ReplyMemory":
        """The memory that ``state`` was taken from."""
        memory = cls(max_replies)
        for key, mark, outcome in state:
            memory.remember(key, mark, decode_value(outcome))
        return memory


def count_block_ids(outcome: Reply | BlockyardError) -> int:
    """Entries of block tables, and raw blocks, that ``outcome`` tells of."""
    match outcome:
        case Allocated(block_ids=tables):
            return sum(map(len, tables))
        case BlocksAllocated(block_ids=block_ids):
            return len(block_ids)
        case Stepped(extend=extend, admit=admit):
            admitted = [answer.block_ids for answer in admit if isinstance(answer, Admitted)]
            return sum(len(table) for tables in (*extend.block_ids, *admitted) for table in tables)
    return 0
