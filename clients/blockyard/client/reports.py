"""What a server tells of itself and its pools, beside the replies of `blockyard.core.replies`."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator

from blockyard.core.config import EventsConfig, GroupConfig
from blockyard.core.errors import InvalidRequest
from blockyard.core.extra_keys import ExtraKeyForm
from blockyard.core.hash_chain import Hasher
from blockyard.core.hashing import HashAlgorithm
from blockyard.planning.memory_map import MemoryMap

HexBytes = Annotated[
    bytes, BeforeValidator(lambda value: bytes.fromhex(value) if isinstance(value, str) else value)
]
"""Bytes that JSON carries as lower-case hex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDescription:
    """A pool's configuration as the server runs it, defaults filled in. See `blockyard.core.config`.

    Attributes:
        pool: The name under which it was created.
        epoch: Rises when a worker lost what it had cached.
        hash_block_size: Tokens that one block hash stands for.
        hash_algorithm: What its clients hash with.
        extra_key_form: ``tagged`` or ``bare``.
        publish: ``on_commit`` or ``on_allocate``.
        max_model_len: None for no bound.
        num_host_blocks: Of groups whose blocks lie in the host's memory; None where none does.
        prefix_cache_retention_interval: None for every block.
        worker_timeout_ms: A worker that has not called for so long is lost.
        needs_all_workers: Whether no blocks are given, once a worker has registered, while one is lost or a
            rank has none.
        max_replies: Idempotency keys that each lease remembers.
        num_ranks: Of the plan; None for a pool that was made from sizes.
        share_across_tenants: Whether tenants find each other's blocks, but for those with a cache salt.
        events: How it publishes what becomes a hit and what is one no more; None: not at all.
    """

    pool: str
    epoch: int
    num_blocks: int
    groups: list[GroupConfig]
    scheduler_block_size: int
    hash_block_size: int
    hash_algorithm: str
    extra_key_form: str
    publish: str
    eviction: str
    enable_prefix_caching: bool
    max_model_len: int | None
    max_in_flight_tokens: int
    watermark_blocks: int
    num_host_blocks: int | None
    prefix_cache_retention_interval: int | None
    worker_timeout_ms: int
    needs_all_workers: bool
    num_ranks: int | None
    max_replies: int
    share_across_tenants: bool
    events: EventsConfig | None

    def hasher(self, seed: str | None = None) -> Hasher:
        """What clients of this pool hash with. ``seed``: the secret one, where the algorithm needs it."""
        return Hasher(
            algorithm=HashAlgorithm(self.hash_algorithm),
            block_size=self.hash_block_size,
            seed=seed,
            extra_key_form=ExtraKeyForm(self.extra_key_form),
        )

    def check_hasher(self, hasher: Hasher) -> None:
        """Refuse a hasher whose hashes mean something else in this pool. The secret seed is not compared.

        Raises:
            InvalidRequest: The algorithm, the block size or the form of extra keys differs.
        """
        own = (self.hash_algorithm, self.hash_block_size, self.extra_key_form)
        given = (hasher.algorithm, hasher.block_size, hasher.extra_key_form)
        if given != own:
            raise InvalidRequest.of(
                "hasher",
                f"pool {self.pool!r} hashes by {_named(*own)}, this hasher by {_named(*given)}: "
                "take the one that the pool's hasher() makes",
            )


def _named(algorithm: str, block_size: int, extra_key_form: str) -> str:
    return f"{algorithm} over {block_size} tokens with {extra_key_form} keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolList:
    """All pools of a server."""

    pools: list[PoolDescription]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashed:
    """Hashes of a sequence's full blocks, as a server computed them.

    Attributes:
        none_hash: What the first block's hash follows on.
        block_hashes: One a full block.
        extra_keys: Per block, what its hash depends on beside tokens; None for nothing.
        event_extra_keys: The same as events carry it; None without a full block.
        external_int64: The block hashes as events name them: the low 64 bits, unsigned.
    """

    none_hash: HexBytes
    block_hashes: list[HexBytes]
    extra_keys: list[Any]
    event_extra_keys: list[Any] | None
    external_int64: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A worker's place in its pool.

    Attributes:
        epoch: The pool's.
        heartbeat_ms: How often the worker has to call.
        memory: What it has to allocate; None where the pool was not made from a plan.
    """

    epoch: int
    heartbeat_ms: int
    memory: MemoryMap | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """A worker as the pool knows it.

    Attributes:
        worker_id: Its name.
        rank: Its place in the pool's plan.
        device: Where its tensors lie.
        incarnation: As old as its memory.
        state: ``alive``, or ``lost`` once it has been silent for too long.
        silent_ms: Since it called last.
    """

    worker_id: str
    rank: int
    device: str
    incarnation: str
    state: str
    silent_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerList:
    """A pool's workers."""

    workers: list[WorkerReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantReport:
    """A tenant in a pool: what it is promised, and what it has.

    Attributes:
        tenant: Its name; empty for those who are of none.
        guaranteed_blocks: So many it can always hold, whatever the others do.
        max_blocks: More it never holds; None for no bound.
        weight: Its share, beside the others', of what comes free while several wait.
        num_held_blocks: The device's blocks that its leases and hard pins hold, each counted once.
        num_leases, num_sequences, num_pins: Live ones.
        num_waiting: Its calls that wait for blocks.
    """

    tenant: str
    guaranteed_blocks: int
    max_blocks: int | None
    weight: int
    num_held_blocks: int
    num_leases: int
    num_sequences: int
    num_pins: int
    num_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantList:
    """A pool's tenants."""

    tenants: list[TenantReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class PinReport:
    """A prefix that is kept.

    Attributes:
        tenant: Whose it is; empty for nobody's in particular.
        hard: Whether it holds blocks; else they are only evicted last.
        expires_at_ms: On the server's clock (ms since 1970), unless it is renewed.
        num_tokens: Of its full blocks.
        num_cached_tokens: So many of them are a hit now; of a hard pin, what it holds.
        num_held_blocks: Those that it holds, of all groups.
    """

    pin_id: str
    tenant: str
    hard: bool
    ttl_ms: int
    expires_at_ms: int
    num_tokens: int
    num_cached_tokens: int
    num_held_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PinList:
    """A pool's pins."""

    pins: list[PinReport]
