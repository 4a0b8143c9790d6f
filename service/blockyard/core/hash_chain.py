"""A sequence's block hashes, computed as its tokens arrive.

A `Hasher` is what a pool agrees on; a `HashChain` is where one sequence stands. Both are values: appending
gives a new chain and leaves the old one as it was, so a call that is refused later has changed nothing. A
chain holds the last hash and the tokens of the block that is not full yet, never the past, so that cutting
a sequence's tokens into calls in any way gives the same hashes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from struct import pack, unpack
from typing import Any, Final

from blockyard.core.errors import InvalidRequest
from blockyard.core.extra_keys import (
    NO_EXTRAS,
    ExtraKeyForm,
    ExtraKeys,
    Extras,
    event_extra_keys,
    iter_extra_keys,
)
from blockyard.core.hashing import HashAlgorithm, check_token_ids, hash_blocks, root_hash
from blockyard.core.ids import BlockHash, GroupIndex

_GROUP_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Hasher:
    """How blocks are hashed.

    Attributes:
        algorithm: Of the hashes.
        block_size: Tokens a hash stands for, from 1.
        seed: What the root is made from; None for the algorithm's default, where it has one.
        extra_key_form: Of the keys that are hashed. blake2b takes tagged ones only.
        none_hash: The root: the parent of every sequence's first block.

    Raises InvalidRequest.
    """

    algorithm: HashAlgorithm
    block_size: int
    seed: str | None = field(default=None, repr=False)
    extra_key_form: ExtraKeyForm = ExtraKeyForm.TAGGED
    none_hash: BlockHash = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.block_size) is not int or self.block_size < 1:
            raise InvalidRequest.of("block_size", "has to be an integer of at least 1")
        if self.algorithm is HashAlgorithm.BLAKE2B and self.extra_key_form is ExtraKeyForm.BARE:
            raise InvalidRequest.of(
                "extra_key_form", "bare keys are ambiguous, and no engine has them with blake2b"
            )
        object.__setattr__(self, "none_hash", root_hash(self.algorithm, self.seed))

    def start(self, extras: Extras | None = None) -> "HashChain":
        """A sequence without tokens yet, whose KV depends on ``extras`` besides."""
        return HashChain(self, NO_EXTRAS if extras is None else extras, 0, self.none_hash, b"")


@dataclass(frozen=True, slots=True)
class HashChain:
    """How far a sequence is hashed; `Hasher.start` begins one.

    Attributes:
        hasher: How.
        extras: What the KV depends on besides the tokens.
        num_blocks: Blocks hashed so far.
        last_hash: The hash of the last of them, or the root.
        tail: The tokens after them, less than a block, each as 8 bytes little-endian.
    """

    hasher: Hasher
    extras: Extras
    num_blocks: int
    last_hash: BlockHash
    tail: bytes = field(repr=False)

    @property
    def num_tokens(self) -> int:
        """Tokens appended so far."""
        return self.num_blocks * self.hasher.block_size + len(self.tail) // 8

    @property
    def tail_token_ids(self) -> tuple[int, ...]:
        """The tokens of the block that is not full yet."""
        return unpack(f"<{len(self.tail) // 8}Q", self.tail)

    def append(self, token_ids: Iterable[int]) -> tuple["HashChain", list[BlockHash]]:
        """The chain with ``token_ids`` after its tokens, and the hashes of the blocks that they filled.

        Every id is a plain integer from 0 to 2^63 - 1. Raises InvalidRequest.
        """
        new_ids = check_token_ids(token_ids)
        block_size = self.hasher.block_size
        num_tail = len(self.tail) // 8
        if num_tail + len(new_ids) < block_size:
            tail = self.tail + pack(f"<{len(new_ids)}Q", *new_ids)
            return HashChain(self.hasher, self.extras, self.num_blocks, self.last_hash, tail), []
        ids = [*self.tail_token_ids, *new_ids] if num_tail else new_ids
        num_new_blocks = len(ids) // block_size
        num_full = num_new_blocks * block_size
        hashes = hash_blocks(
            self.hasher.algorithm,
            ids if num_full == len(ids) else ids[:num_full],
            block_size=block_size,
            parent=self.last_hash,
            extra_keys=None if self.extras == NO_EXTRAS else self._extra_keys_from(self.num_blocks),
        )
        tail = pack(f"<{len(ids) - num_full}Q", *ids[num_full:])
        return HashChain(self.hasher, self.extras, self.num_blocks + num_new_blocks, hashes[-1], tail), hashes

    def extra_keys(self, first_block: int = 0) -> list[ExtraKeys | None]:
        """The keys that were hashed with block ``first_block`` and each later one."""
        return list(islice(self._extra_keys_from(first_block), max(0, self.num_blocks - first_block)))

    def event_extra_keys(self, first_block: int = 0) -> list[ExtraKeys | None] | None:
        """The same as events carry them; None where there is no such block."""
        num_blocks = max(0, self.num_blocks - first_block)
        block_size = self.hasher.block_size
        keys = event_extra_keys(self.extras, block_size=block_size, start=first_block * block_size)
        return list(islice(keys, num_blocks)) or None

    def to_state(self) -> dict[str, Any]:
        """The same as plain values, for a snapshot; `from_state` takes it back. The hasher is not in it."""
        return {
            "extras": None if self.extras == NO_EXTRAS else self.extras.to_state(),
            "num_blocks": self.num_blocks,
            "last_hash": self.last_hash,
            "tail": self.tail,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], hasher: Hasher) -> "HashChain":
        """The chain that ``state`` was taken from, whose hasher was ``hasher``."""
        extras = NO_EXTRAS if state["extras"] is None else Extras.from_state(state["extras"])
        return cls(hasher, extras, state["num_blocks"], state["last_hash"], state["tail"])

    def _extra_keys_from(self, first_block: int) -> Iterator[ExtraKeys | None]:
        hasher, block_size = self.hasher, self.hasher.block_size
        return iter_extra_keys(
            self.extras, hasher.extra_key_form, block_size=block_size, start=first_block * block_size
        )


@dataclass(frozen=True, slots=True)
class HashedTokens:
    """Tokens hashed in one go: the root, and one entry for each full block.

    ``event_extra_keys`` is None where there is no full block.
    """

    none_hash: BlockHash
    block_hashes: list[BlockHash]
    extra_keys: list[ExtraKeys | None]
    event_extra_keys: list[ExtraKeys | None] | None
    external_int64: list[int]


def hash_tokens(hasher: Hasher, token_ids: Iterable[int], extras: Extras | None = None) -> HashedTokens:
    """All that is to be known of the full blocks of ``token_ids``. Raises InvalidRequest."""
    chain, hashes = hasher.start(extras).append(token_ids)
    external = [external_int64(block_hash) for block_hash in hashes]
    return HashedTokens(hasher.none_hash, hashes, chain.extra_keys(), chain.event_extra_keys(), external)


def coarser_view(block_hashes: Sequence[BlockHash], factor: int) -> Sequence[BlockHash]:
    """The hashes of blocks ``factor`` (from 1) times as large: each is the hash at its last boundary."""
    return block_hashes if factor == 1 else block_hashes[factor - 1 :: factor]


def external_int64(block_hash: BlockHash) -> int:
    """The hash as routers see it by default: its last eight bytes, a big-endian unsigned integer."""
    return int.from_bytes(block_hash[-8:], "big")


def hash_key(block_hash: BlockHash, group: GroupIndex) -> bytes:
    """A block's name in a cache of several groups: the hash, then the group as 4 bytes big-endian."""
    return block_hash + group.to_bytes(_GROUP_BYTES, "big")


def split_hash_key(key: bytes) -> tuple[BlockHash, GroupIndex]:
    """The inverse of `hash_key`."""
    return key[:-_GROUP_BYTES], int.from_bytes(key[-_GROUP_BYTES:], "big")
