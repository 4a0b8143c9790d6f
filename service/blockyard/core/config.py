"""What a pool is made from: a value that two callers can compare."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from blockyard.core.errors import InvalidRequest
from blockyard.core.extra_keys import ExtraKeyForm
from blockyard.core.hash_chain import Hasher
from blockyard.core.hashing import HashAlgorithm

MAX_GROUPS = 64
MAX_REPLIES = 65_536
MAX_BLOCKS = 2**31 - 1
"""A block id fits into 32 bits: of the arrays here, and of a worker's block tables."""


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
    ADAPTIVE = "adaptive"
    """That whose content was used the least, weighed against how long ago; see `blockyard.core.grade`."""


class HashForm(StrEnum):
    """How block hashes stand in events."""

    INT64 = "int64"
    """Their low 64 bits, unsigned: what engines send unless told otherwise."""
    BYTES = "bytes"
    """Whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsConfig:
    """What a pool tells of its prefix index.

    ``topic``, ``hash_form`` and ``rank`` are kept for whoever publishes it: the pool does not read them.

    Attributes:
        topic: Under which; None for the server's choice.
        hash_form: Of the hashes in it.
        rank: Of the data-parallel engine, if it is one of several.
        needs_token_ids: Whether callers have to tell the tokens as well, where they send hashes: then they
            stand in every event. Otherwise where they were told.
    """

    topic: str | None = None
    hash_form: HashForm = HashForm.INT64
    rank: int | None = None
    needs_token_ids: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Layers that share a block table.

    Attributes:
        kind: The name of a kind in `blockyard.core.kinds`, which says what else is needed.
        block_size: Tokens a block.
        sliding_window: Tokens that a token of a sliding-window layer sees, itself included.
        attention_chunk_size: Tokens a chunk of chunked local attention.
        rswa_window: Generated tokens that a token of a reference-window layer sees.
        extra_retained_tokens: Tokens kept behind a sliding window, which a hit does not need.
        mamba_cache_mode: Which states of a recurrent layer are kept: ``none`` or ``align``.
        num_speculative_blocks: Further states of a recurrent layer, for speculated tokens.
        num_blocks_per_request: Blocks of a hot buffer.
        is_draft: Whether a draft model's layers are among them.
        is_host_resident: Whether its blocks are the host's.
    """

    kind: str
    block_size: int
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    rswa_window: int | None = None
    extra_retained_tokens: int = 0
    mamba_cache_mode: str | None = None
    num_speculative_blocks: int = 0
    num_blocks_per_request: int | None = None
    is_draft: bool = False
    is_host_resident: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """A pool's whole configuration, defaults filled in by `PoolConfig.of`.

    Attributes:
        num_blocks: Blocks, the null block included.
        num_host_blocks: The same of the host's, for groups whose blocks lie there; None where none does.
        groups: Of a model that keeps nothing, none.
        scheduler_block_size: Tokens; hits and publishing are aligned to it when there are several groups.
        hash_block_size: Tokens a block hash stands for.
        max_model_len: No sequence gets slots for more tokens; None for no bound.
        max_in_flight_tokens: Tokens of one sequence that are computed at once, at most: bounds what a
            windowed group can need at a time.
        hash_seed: Secret seed of the hash algorithms that need one, for calls that send token ids.
        watermark_blocks: Blocks that admitting a new sequence leaves free.
        prefix_cache_retention_interval: Tokens from one place to the next at which sliding-window groups keep
            what a hit needs, beside the prompt's end; 0 for that alone, None for every block.
        worker_timeout_ms: How long a worker may be silent before it is lost.
        needs_all_workers: Whether no blocks are given, once a worker has registered, while one is lost or a
            rank has none.
        num_ranks: Of the workers, where that is known.
        max_replies: Idempotency keys that each lease remembers; the pool remembers four times as many of
            calls without a lease.
        events: What is told of the prefix index as it changes; None for nothing.
        share_across_tenants: Whether tenants find each other's blocks, but for those with a cache salt.
    """

    num_blocks: int
    groups: tuple[GroupConfig, ...]
    scheduler_block_size: int
    hash_block_size: int
    num_host_blocks: int | None = None
    max_model_len: int | None = None
    max_in_flight_tokens: int = 8192
    enable_prefix_caching: bool = True
    hash_algorithm: HashAlgorithm = HashAlgorithm.BLAKE2B
    extra_key_form: ExtraKeyForm = ExtraKeyForm.TAGGED
    hash_seed: str | None = None
    publish: Publish = Publish.ON_COMMIT
    eviction: Eviction = Eviction.LRU
    watermark_blocks: int = 0
    prefix_cache_retention_interval: int | None = None
    worker_timeout_ms: int = 5_000
    needs_all_workers: bool = True
    num_ranks: int | None = None
    max_replies: int = 256
    events: EventsConfig | None = None
    share_across_tenants: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes that do not fit each other.

        Raises:
            InvalidRequest: Names the field at fault.
        """
        sizes = [group.block_size for group in self.groups]
        _require(len(sizes) <= MAX_GROUPS, "groups", f"give at most {MAX_GROUPS} of them")
        _require(min(sizes, default=1) >= 1, "groups.block_size", "must be at least 1")
        _require(1 <= self.num_blocks <= MAX_BLOCKS, "num_blocks", f"must be 1 to {MAX_BLOCKS}")
        _require(
            (self.num_host_blocks is not None) == any(group.is_host_resident for group in self.groups),
            "num_host_blocks",
            "goes with groups that are host resident",
        )
        _require(
            1 <= (1 if self.num_host_blocks is None else self.num_host_blocks) <= MAX_BLOCKS,
            "num_host_blocks",
            f"must be 1 to {MAX_BLOCKS}",
        )
        for name, size in (
            ("scheduler_block_size", self.scheduler_block_size),
            ("hash_block_size", self.hash_block_size),
            ("max_in_flight_tokens", self.max_in_flight_tokens),
            ("worker_timeout_ms", self.worker_timeout_ms),
            ("max_model_len", 1 if self.max_model_len is None else self.max_model_len),
        ):
            _require(size >= 1, name, "must be at least 1")
        _require(
            not any(self.scheduler_block_size % size for size in sizes),
            "scheduler_block_size",
            f"must be a multiple of every group's block size, {sizes}",
        )
        _require(
            0 <= self.watermark_blocks < self.num_blocks,
            "watermark_blocks",
            "must be at least 0, and below num_blocks",
        )
        _require(1 <= self.max_replies <= MAX_REPLIES, "max_replies", f"must be 1 to {MAX_REPLIES}")
        interval = self.prefix_cache_retention_interval
        _require(
            interval is None or (interval >= 0 and interval % self.scheduler_block_size == 0),
            "prefix_cache_retention_interval",
            f"must be 0, or a multiple of the scheduler block size, {self.scheduler_block_size}",
        )
        if self.hash_seed is not None or self.hash_algorithm.default_seed is not None:
            self.hasher()

    def hasher(self) -> Hasher:
        """How tokens of this pool are hashed.

        Raises:
            InvalidRequest: The algorithm needs a secret seed and the pool has none, or it cannot hash these
                extra keys.
        """
        if self.hash_seed is None and self.hash_algorithm.default_seed is None:
            raise InvalidRequest.of(
                "token_ids", f"the pool has no hash_seed, without which {self.hash_algorithm} is not safe"
            )
        return Hasher(
            algorithm=self.hash_algorithm,
            block_size=self.hash_block_size,
            seed=self.hash_seed,
            extra_key_form=self.extra_key_form,
        )

    @classmethod
    def of(
        cls,
        *,
        groups: Sequence[GroupConfig],
        scheduler_block_size: int | None = None,
        hash_block_size: int | None = None,
        **options: Any,
    ) -> "PoolConfig":
        """A configuration whose sizes follow from its groups' block sizes unless they are given.

        The scheduler block size is then their least common multiple, the shortest length at which all of
        them end a block; the hash block size their greatest common divisor, so that each ends at a hash.

        Raises:
            InvalidRequest: As the constructor.
        """
        sizes = [group.block_size for group in groups] or [1]
        return cls(
            groups=tuple(groups),
            scheduler_block_size=math.lcm(*sizes) if scheduler_block_size is None else scheduler_block_size,
            hash_block_size=math.gcd(*sizes) if hash_block_size is None else hash_block_size,
            **options,
        )


def _require(holds: bool, field: str, message: str) -> None:
    if not holds:
        raise InvalidRequest.of(field, message)


def config_to_state(config: PoolConfig) -> dict[str, Any]:
    """``config`` as plain data."""
    state: dict[str, Any] = _plain(asdict(config))
    return state


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return list(map(_plain, value)) if isinstance(value, tuple) else value


def config_from_state(state: dict[str, Any]) -> PoolConfig:
    """The configuration that ``state`` was taken from."""
    events = state.get("events")
    if events is not None:
        events = EventsConfig(**{**events, "hash_form": HashForm(events["hash_form"])})
    return PoolConfig(
        **{
            **state,
            "groups": tuple(GroupConfig(**group) for group in state["groups"]),
            "hash_algorithm": HashAlgorithm(state["hash_algorithm"]),
            "extra_key_form": ExtraKeyForm(state["extra_key_form"]),
            "publish": Publish(state["publish"]),
            "eviction": Eviction(state["eviction"]),
            "events": events,
        }
    )
