"""What is told of a prefix index: events, in batches, a batch a command that changed it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from blockyard.core.extra_keys import ExtraKeys
from blockyard.core.ids import BlockHash, GroupIndex


class StoredBlock(NamedTuple):
    """What is told of a block that is stored.

    Attributes:
        block_hash: Its own.
        parent_hash: That of all tokens before it; None where there are none.
        num_tokens: Tokens that it holds.
        token_ids: These, each as 8 bytes in this machine's order; None where they were not told.
        extra_keys: What went into the hash besides, bare; None where that was not told.
        lora_name: Of the adapter that it was computed with, where there was one and it was told.
    """

    block_hash: BlockHash
    parent_hash: BlockHash | None
    num_tokens: int
    token_ids: bytes | None = None
    extra_keys: ExtraKeys | None = None
    lora_name: str | None = None

    def continues(self, before: "StoredBlock") -> bool:
        """Whether it follows ``before``, of the same group, and may be told in one event with it."""
        return (
            self.parent_hash == before.block_hash
            and self.num_tokens == before.num_tokens
            and (self.token_ids is None) == (before.token_ids is None)
            and (self.extra_keys is None) == (before.extra_keys is None)
            and self.lora_name == before.lora_name
        )

    def to_state(self) -> list[Any]:
        """The same as plain data."""
        return list(self)

    @classmethod
    def from_state(cls, state: Sequence[Any]) -> "StoredBlock":
        """The block that ``state`` was taken from."""
        return cls._make(map(_as_tuples, state))


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Consecutive blocks of a group are hits: each is the parent of the next."""

    group: GroupIndex
    blocks: Sequence[StoredBlock]


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """A hash is no hit in a group any more."""

    group: GroupIndex
    block_hash: BlockHash


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Nothing is a hit any more."""


KvEvent: TypeAlias = BlocksStored | BlockRemoved | AllBlocksCleared


@dataclass(frozen=True, slots=True)
class Batch:
    """What one command changed.

    Attributes:
        number: Of this batch in the pool's life, from 0.
        now_ms: When it was.
        events: In an order in which they may be applied; never none.
    """

    number: int
    now_ms: int
    events: Sequence[KvEvent]


def _as_tuples(value: Any) -> Any:
    """Lists as tuples, throughout."""
    return tuple(map(_as_tuples, value)) if isinstance(value, (list, tuple)) else value
