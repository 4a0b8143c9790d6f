"""What a pool is made from: a value that two callers can compare."""

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from blockyard.core.errors import InvalidRequest
from blockyard.core.extra_keys import ExtraKeyForm
from blockyard.core.hash_chain import Hasher
from blockyard.core.hashing import HashAlgorithm


class Publish(StrEnum):
    """When a full block becomes a hit for others."""

    ON_COMMIT = "on_commit"
    """Once its tokens are committed as computed."""
    ON_ALLOCATE = "on_allocate"
    """As soon as it is scheduled: right for one engine that runs its steps in order."""


class Eviction(StrEnum):
    """Which of the free blocks loses its cached content first."""

    LRU = "lru"
    """The one that was freed the longest ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Layers that share a block table.

    Attributes:
        kind: The name of a kind in `blockyard.core.kinds`, which says what else is needed.
        block_size: Tokens a block.
        sliding_window: Tokens that a token of a sliding-window layer sees, itself included.
        attention_chunk_size: Tokens a chunk of chunked local attention.
    """

    kind: str
    block_size: int
    sliding_window: int | None = None
    attention_chunk_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """A pool's whole configuration, defaults filled in by `PoolConfig.of`.

    Attributes:
        num_blocks: Blocks, the null block included.
        groups: At least one.
        scheduler_block_size: Tokens; hits and publishing are aligned to it when there are several groups.
        hash_block_size: Tokens a block hash stands for.
        max_model_len: No sequence gets slots for more tokens; None for no bound.
        max_in_flight_tokens: Tokens of one sequence that are computed at once, at most: bounds what a
            windowed group can need at a time.
        hash_seed: Secret seed of the hash algorithms that need one, for calls that send token ids.
        watermark_blocks: Blocks that admitting a new sequence leaves free.
    """

    num_blocks: int
    groups: tuple[GroupConfig, ...]
    scheduler_block_size: int
    hash_block_size: int
    max_model_len: int | None = None
    max_in_flight_tokens: int = 8192
    enable_prefix_caching: bool = True
    hash_algorithm: HashAlgorithm = HashAlgorithm.BLAKE2B
    extra_key_form: ExtraKeyForm = ExtraKeyForm.TAGGED
    hash_seed: str | None = None
    publish: Publish = Publish.ON_COMMIT
    eviction: Eviction = Eviction.LRU
    watermark_blocks: int = 0

    def __post_init__(self) -> None:
        """Refuse sizes that do not fit each other.

        Raises:
            InvalidRequest: Names the field at fault.
        """
        sizes = [group.block_size for group in self.groups]
        if not sizes:
            raise InvalidRequest.of("groups", "give at least one group")
        if self.num_blocks < 1 or min(sizes) < 1:
            raise InvalidRequest.of("num_blocks", "num_blocks and every block_size are at least 1")
        if self.scheduler_block_size < 1 or any(self.scheduler_block_size % size for size in sizes):
            raise InvalidRequest.of(
                "scheduler_block_size", f"must be a positive multiple of every group's block size, {sizes}"
            )
        if self.hash_block_size < 1 or any(size % self.hash_block_size for size in sizes):
            raise InvalidRequest.of("hash_block_size", f"must divide every group's block size, {sizes}")
        if self.hash_seed is not None or self.hash_algorithm.default_seed is not None:
            self.hasher()
        if not 0 <= self.watermark_blocks < self.num_blocks:
            raise InvalidRequest.of("watermark_blocks", "must be at least 0 and below num_blocks")

    def hasher(self) -> Hasher:
        """How tokens of this pool are hashed.

        Raises:
            InvalidRequest: The algorithm needs a secret seed and the pool has none, or it cannot hash these
                extra keys.
        """
        return Hasher(
            algorithm=self.hash_algorithm,
            block_size=self.hash_block_size,
            seed=self.hash_seed,
            extra_key_form=self.extra_key_form,
        )

    @staticmethod
    def default_scheduler_block_size(block_sizes: list[int]) -> int:
        """The least common multiple: the shortest length at which all groups end a block."""
        return math.lcm(*block_sizes)

    @staticmethod
    def default_hash_block_size(block_sizes: list[int]) -> int:
        """The greatest common divisor: every group's block then ends at a hash boundary."""
        return math.gcd(*block_sizes)


def config_to_state(config: PoolConfig) -> dict[str, Any]:
    """``config`` as plain data."""
    state = asdict(config)
    return {name: value.value if isinstance(value, StrEnum) else value for name, value in state.items()} | {
        "groups": list(state["groups"])
    }


def config_from_state(state: dict[str, Any]) -> PoolConfig:
    """The configuration that ``state`` was taken from."""
    return PoolConfig(
        **{
            **state,
            "groups": tuple(GroupConfig(**group) for group in state["groups"]),
            "hash_algorithm": HashAlgorithm(state["hash_algorithm"]),
            "extra_key_form": ExtraKeyForm(state["extra_key_form"]),
            "publish": Publish(state["publish"]),
            "eviction": Eviction(state["eviction"]),
        }
    )
