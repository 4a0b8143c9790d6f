"""KV events as they come over ZeroMQ or as JSON, from a blockyard server or from an engine.

Both forms of an event are read: a map with its ``type``, and the list that engines sent before, its type
first and then its fields in their order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import ormsgpack

ExternalHash: TypeAlias = int | bytes | str
"""A block hash as it stands in events: its low 64 bits, all of it, or that in hex."""


class InvalidEvents(ValueError):
    """What came is no batch of events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStored:
    """Blocks are hits, each the parent of the next.

    Attributes:
        block_hashes: Theirs.
        parent_block_hash: Of all tokens before the first of them; None where there are none.
        token_ids: Of all of them, one after the other; empty where the publisher does not know them.
        block_size: Tokens of each.
        group_idx: The group of layers that they are hits of; None where the publisher has one only.
        extra_keys: What each was computed with besides; None where the publisher does not say.
    """

    block_hashes: Sequence[ExternalHash]
    parent_block_hash: ExternalHash | None = None
    token_ids: Sequence[int] = ()
    block_size: int = 0
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: Sequence[Sequence[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRemoved:
    """Hashes are no hits any more."""

    block_hashes: Sequence[ExternalHash]
    medium: str | None = None
    group_idx: int | None = None


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Nothing is a hit any more."""


KvEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared

_KINDS: dict[str, type[KvEvent]] = {
    kind.__name__: kind for kind in (BlockStored, BlockRemoved, AllBlocksCleared)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KvBatch:
    """What changed at once.

    Attributes:
        number: One more than that of the batch before, of the same stream.
        stream_id: Of the stream that the number belongs to; None from a publisher that does not say.
        ts: When, in seconds since 1970.
        events: In the order in which they are to be applied.
        rank: Of the data-parallel engine, if it is one of several.
    """

    number: int
    stream_id: str | None
    ts: float
    events: Sequence[KvEvent]
    rank: int | None = None

    @classmethod
    def from_frames(cls, frames: Sequence[bytes]) -> Self:
        """The batch in a message of ZeroMQ: topic, number, payload. Raises InvalidEvents."""
        try:
            _, number, payload = frames
            ts, events, *rest = ormsgpack.unpackb(payload)
            rank = rest[0] if rest else None
            return cls(
                number=int.from_bytes(number, "big"),
                stream_id=_stream_id(events),
                ts=ts,
                events=list(_events(events)),
                rank=rank,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidEvents(f"not a message of topic, number and batch: {error!r}") from error

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The batch in a server-sent ``batch`` or ``snapshot`` message. Raises InvalidEvents."""
        try:
            number = document["sequence_number"]
            if not isinstance(number, int):
                raise TypeError("sequence_number is no integer")  # noqa: TRY301 - told like all else
            return cls(
                number=number,
                stream_id=document["stream_id"],
                ts=document["ts"],
                events=list(_events(document["events"])),
                rank=document["rank"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidEvents(f"not a message with a batch of events: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class KvSnapshot:
    """All that is a hit, and where to go on.

    Attributes:
        number: Of the batch that follows.
        stream_id: Of its stream.
        topic: Under which it is sent over ZeroMQ.
        events: What is stored.
    """

    number: int
    stream_id: str | None
    topic: str
    events: Sequence[KvEvent] = field(repr=False)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """What ``GET .../events/snapshot`` answered. Raises InvalidEvents."""
        batch = KvBatch.from_json(document)
        topic = document.get("topic")
        if not isinstance(topic, str):
            raise InvalidEvents("not a snapshot: it has no topic")
        return cls(number=batch.number, stream_id=batch.stream_id, topic=topic, events=batch.events)


def _stream_id(events: Sequence[Any]) -> str | None:
    first = events[0] if events else None
    found: str | None = first.get("stream_id") if isinstance(first, dict) else None
    return found


def _events(found: Sequence[Any]) -> Iterator[KvEvent]:
    for event in found:
        if isinstance(event, dict):
            kind = _KINDS[event["type"]]
            known = kind.__dataclass_fields__
            yield _checked(kind(**{name: value for name, value in event.items() if name in known}))
        else:
            name, *values = event
            kind = _KINDS[name]
            yield _checked(kind(**dict(zip(kind.__dataclass_fields__, values, strict=False))))


def _checked(event: KvEvent) -> KvEvent:
    """``event``, whose hashes can be looked up. Raises TypeError."""
    if not isinstance(event, AllBlocksCleared):
        hashes = event.block_hashes
        if not isinstance(hashes, list) or not all(isinstance(found, (int, bytes, str)) for found in hashes):
            raise TypeError("block_hashes are no list of integers, bytes or hex")
    return event
