"""Batches of events as routers read them: msgpack for ZeroMQ, JSON for server-sent events.

A payload is ``[ts, events, rank]``; an event is a map with its ``type``. The first event of a batch has one
field more, ``stream_id``: batches of one stream are numbered without a gap and without a repeat. Whoever does
not know that field passes over it.

In msgpack hashes are the pool's `HashForm`. In JSON they are whole, in hex, and the id stands beside the
events.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import ormsgpack
import pydantic_core

from blockyard.core.config import HashForm, PoolConfig
from blockyard.core.hash_chain import external_int64
from blockyard.core.ids import BlockHash, GroupIndex
from blockyard.core.kv_batch import Batch, BlockRemoved, BlocksStored, KvEvent, StoredBlock
from blockyard.core.kv_events import runs

DEVICE: Final = "GPU"
HOST: Final = "CPU"
BLOCKS_A_PART: Final = 128
"""Events of a snapshot's part have together about as many blocks, at most twice: a millisecond's work."""

Event: TypeAlias = dict[str, Any]
Stored: TypeAlias = Sequence[Sequence[StoredBlock]]
"""Per group, what is told of each block that is stored."""
HashWriter: TypeAlias = Callable[[BlockHash], Any]


class EventCodec:
    """How events of a pool of ``config`` are written, under ``stream_id``."""

    def __init__(self, config: PoolConfig, stream_id: str) -> None:
        assert config.events is not None
        self._rank = config.events.rank
        self.stream_id = stream_id
        self._external: HashWriter = external_int64 if config.events.hash_form is HashForm.INT64 else bytes
        self._groups = config.groups

    def msgpack(self, batch: Batch) -> bytes:
        """The payload of ``batch``."""
        events = [self._event(event, self._external) for event in batch.events]
        events[0]["stream_id"] = self.stream_id
        return ormsgpack.packb([batch.now_ms / 1e3, events, self._rank])

    def json(self, batch: Batch) -> bytes:
        """The same in JSON, with what a message of its own has to say besides."""
        head = self.head(batch.number, batch.now_ms)
        events = [self._event(event, bytes.hex) for event in batch.events]
        return pydantic_core.to_json({**head, "events": events})

    def head(self, number: int, now_ms: int) -> dict[str, Any]:
        """What stands beside the events in JSON, and in a snapshot."""
        return {
            "stream_id": self.stream_id,
            "sequence_number": number,
            "ts": now_ms / 1e3,
            "rank": self._rank,
        }

    def snapshot_parts(self, stored: Stored, *, json: bool) -> Iterator[list[Event]]:
        """The events that tell of all that is ``stored``, a few at a time."""
        write = bytes.hex if json else self._external
        part: list[Event] = []
        num_blocks = 0
        for group, blocks in enumerate(stored):
            for run in runs(blocks, BLOCKS_A_PART):
                part.append(self._stored(group, run, write))
                num_blocks += len(run)
                if num_blocks >= BLOCKS_A_PART:
                    yield part
                    part, num_blocks = [], 0
        if part:
            yield part

    def _event(self, event: KvEvent, write: HashWriter) -> Event:
        if isinstance(event, BlocksStored):
            return self._stored(event.group, event.blocks, write)
        if isinstance(event, BlockRemoved):
            hashes, medium = [write(event.block_hash)], self._medium(event.group)
            return {
                "type": "BlockRemoved",
                "block_hashes": hashes,
                "medium": medium,
                "group_idx": event.group,
            }
        return {"type": "AllBlocksCleared"}

    def _stored(self, number: GroupIndex, blocks: Sequence[StoredBlock], write: HashWriter) -> Event:
        first, group = blocks[0], self._groups[number]
        event: Event = {
            "type": "BlockStored",
            "block_hashes": [write(block.block_hash) for block in blocks],
            "parent_block_hash": None if first.parent_hash is None else write(first.parent_hash),
            "token_ids": array("Q", b"".join(block.token_ids or b"" for block in blocks)).tolist(),
            "block_size": first.num_tokens,
            "lora_id": None,  # a number of the engine's own, which callers do not tell
            "medium": self._medium(number),
            "lora_name": first.lora_name,
        }
        if first.extra_keys is not None:
            event["extra_keys"] = [_plain(block.extra_keys, write) or None for block in blocks]
        event["group_idx"] = number
        event["kv_cache_spec_kind"] = group.kind
        if group.sliding_window is not None:
            event["kv_cache_spec_sliding_window"] = group.sliding_window
        return event

    def _medium(self, group: GroupIndex) -> str:
        return HOST if self._groups[group].is_host_resident else DEVICE


def _plain(value: Any, write: HashWriter) -> Any:
    """Extra keys: bytes as hex in JSON, as they are in msgpack."""
    if isinstance(value, (list, tuple)):
        return [_plain(part, write) for part in value]
    return value.hex() if isinstance(value, bytes) and write is bytes.hex else value
