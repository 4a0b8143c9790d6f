"""A pool's events over HTTP: a stream of server-sent events, and all that is stored at one moment."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import ormsgpack
import pydantic_core
from fastapi import APIRouter, Header, Request, Response
from starlette.responses import StreamingResponse

from blockyard.core.errors import NoEvents, PoolNotFound
from blockyard.core.kv_events import runs
from blockyard.server.api_router import api_router
from blockyard.server.documented import event_stream, reference
from blockyard.server.events.codec import BLOCKS_A_PART
from blockyard.server.events.feed import EventFeed
from blockyard.server.events.hub import EventHub
from blockyard.server.events.messages import KvBatch, KvSnapshotPart, KvSnapshotReply
from blockyard.server.events.pool_stream import KvSnapshot, PoolStream
from blockyard.server.media import JSON, MSGPACK, wants_msgpack
from blockyard.server.pools import Pools
from blockyard.server.refusals import refusals
from blockyard.server.sse import EventStream, Streams

RUNS_A_SLICE = 64
"""Runs of blocks that are counted in one turn of the event loop."""

STREAM_TEXT = """
Server-sent events. First come `snapshot` messages with all that is stored, in parts, the last with
`is_last`; then a `batch` for each command that changes the pool's prefix index. Both have `stream_id`,
`sequence_number`, `ts` (seconds), `rank` and `events`: `BlockStored`, `BlockRemoved`, `AllBlocksCleared`, as
over ZeroMQ, with whole hashes in hex. A snapshot's number is that of the batch after it. With
`Last-Event-ID` the stream goes on behind that message, as long as the batches since are kept; else it begins
with a snapshot again: drop what you have.
"""
SNAPSHOT_TEXT = """
All that is stored after the batch before `sequence_number` of `stream_id`, as `BlockStored` events. Subscribe
to `topic` over ZeroMQ first, then ask for this, then apply the batches from `sequence_number` on.
"""


def event_routes(pools: Pools, hub: EventHub, streams: Streams) -> APIRouter:
    """The routes over the pools of ``hub``; a stream each is one of ``streams``."""
    turn = asyncio.Lock()
    router = api_router("/pools/{pool}/events", tag="watching")

    @router.get(
        "",
        summary="What becomes a hit and what is one no more, as it happens.",
        description=STREAM_TEXT,
        response_class=Response,
        responses={
            **event_stream({"snapshot": KvSnapshotPart, "batch": KvBatch}),
            **refusals(PoolNotFound, NoEvents),
        },
    )
    async def events(pool: str, last_event_id: Annotated[str | None, Header()] = None) -> Response:
        stream = _stream(pools, hub, pool)
        streams.check()
        return EventStream(EventFeed(stream, last_event_id, turn), streams)

    @router.get(
        "/snapshot",
        summary="All that is a hit at the moment, and the number of the batch to go on with.",
        description=SNAPSHOT_TEXT,
        response_class=Response,
        responses={
            200: {"content": {form: {"schema": reference(KvSnapshotReply)} for form in (JSON, MSGPACK)}},
            **refusals(PoolNotFound, NoEvents),
        },
    )
    async def snapshot(pool: str, request: Request) -> Response:
        stream = _stream(pools, hub, pool)
        is_json = not wants_msgpack(dict(request.scope["headers"]))
        pieces = _pieces(stream, stream.snapshot(), is_json=is_json, turn=turn)
        return StreamingResponse(pieces, media_type=JSON if is_json else MSGPACK)

    return router


def _stream(pools: Pools, hub: EventHub, name: str) -> PoolStream:
    """The stream of the pool of this name. Raises PoolNotFound, NoEvents."""
    pools.get(name)
    stream = hub.get(name)
    if stream is None:
        raise NoEvents(f"pool {name!r} has no events: create it with events set to true")
    return stream


async def _pieces(
    stream: PoolStream, snapshot: KvSnapshot, *, is_json: bool, turn: asyncio.Lock
) -> AsyncIterator[bytes]:
    """``snapshot`` as one map whose last member are its events; one part is made at a time, for whoever."""
    head = {"topic": stream.topic, **stream.codec.head(snapshot.number, snapshot.now_ms)}
    if is_json:
        yield _json_head(head)
    else:
        yield _msgpack_head(head, await _count_events(snapshot, turn))
    parts = stream.codec.snapshot_parts(snapshot.stored, json=is_json)
    comma = b""
    while True:
        async with turn:
            part = next(parts, None)
            if part is None:
                break
            written = pydantic_core.to_json(part)[1:-1] if is_json else b"".join(map(ormsgpack.packb, part))
            await asyncio.sleep(0)
        yield comma + written
        comma = b"," if is_json else b""
    if is_json:
        yield b"]}"


async def _count_events(snapshot: KvSnapshot, turn: asyncio.Lock) -> int:
    """How many events `EventCodec.snapshot_parts` makes: msgpack has a list's length before it."""
    num_events = 0
    for blocks in snapshot.stored:
        for _ in runs(blocks, BLOCKS_A_PART):
            num_events += 1
            if num_events % RUNS_A_SLICE == 0:
                async with turn:
                    await asyncio.sleep(0)
    return num_events


def _json_head(head: dict[str, Any]) -> bytes:
    return pydantic_core.to_json(head)[:-1] + b',"events":['


def _msgpack_head(head: dict[str, Any], num_events: int) -> bytes:
    # map of so many members { ..., "events": array with its length in 32 bits
    members = b"".join(ormsgpack.packb(part) for member in head.items() for part in member)
    length = b"\xdd" + num_events.to_bytes(4, "big")
    return bytes([0x80 + len(head) + 1]) + members + ormsgpack.packb("events") + length
