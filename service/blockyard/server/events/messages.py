"""What followers of a pool's events are told, for the OpenAPI document: `EventCodec` writes it.

Over server-sent events, and in a snapshot in JSON, hashes are whole, in hex. A snapshot in msgpack has them
as over ZeroMQ: integers, or raw bytes.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

KvHash = Annotated[int | str, Field(description="A block's: hex in JSON; else as the pool tells hashes.")]


class BlockStoredEvent(BaseModel):
    """Consecutive blocks of one chain that are hits from now on."""

    type: Literal["BlockStored"]
    block_hashes: list[KvHash]
    parent_block_hash: KvHash | None
    token_ids: list[int] = Field(description="Those of all the blocks; empty where they were not told.")
    block_size: int = Field(description="Tokens that a hash stands for.")
    lora_id: None
    medium: Literal["GPU", "CPU"]
    lora_name: str | None
    extra_keys: list[list[Any] | None] = Field(
        default_factory=list, description="One entry a block; left out where they were not told."
    )
    group_idx: int
    kv_cache_spec_kind: str
    kv_cache_spec_sliding_window: int = Field(0, description="Left out where the group has no window.")


class BlockRemovedEvent(BaseModel):
    """Blocks that are hits no more."""

    type: Literal["BlockRemoved"]
    block_hashes: list[KvHash]
    medium: Literal["GPU", "CPU"]
    group_idx: int


class AllBlocksClearedEvent(BaseModel):
    """Nothing is a hit any more."""

    type: Literal["AllBlocksCleared"]


class KvHead(BaseModel):
    """What stands beside events."""

    stream_id: str
    sequence_number: int
    ts: float = Field(description="Seconds since 1970.")
    rank: int | None


class KvBatch(KvHead):
    """What one command changed."""

    events: list[BlockStoredEvent | BlockRemovedEvent | AllBlocksClearedEvent]


class KvSnapshotPart(KvHead):
    """Some of what is stored; ``sequence_number`` is that of the batch after the snapshot."""

    part: int
    is_last: bool
    events: list[BlockStoredEvent]


class KvSnapshotReply(KvHead):
    """All that is stored; ``sequence_number`` is that of the batch to go on with."""

    topic: str
    events: list[BlockStoredEvent]
