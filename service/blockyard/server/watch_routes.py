"""`GET /v1/watch` and `GET /v1/pools/{pool}/map`: what people look at. The dashboard is made of these."""

import asyncio
import base64
import zlib
from typing import Annotated

from fastapi import APIRouter, Query, Response

from blockyard.core.block_map import BlockMap, map_by_lease, map_by_state
from blockyard.core.errors import PoolNotFound
from blockyard.server.access.protection import Asking
from blockyard.server.api_router import api_router
from blockyard.server.documented import event_stream
from blockyard.server.refusals import refusals
from blockyard.server.slices import Slices
from blockyard.server.sse import EventStream
from blockyard.server.watch import EVENT, Asked, Watched, WatchFeed
from blockyard.server.watch_messages import Figures, MapBy, MapReply

MAX_ROWS = 200
"""Pools in one message."""

COMPRESSION_LEVEL = 1
"""Runs of equal blocks are found at any level; this one takes a millisecond or two for a million."""


def watch_routes(watched: Watched, slices: Slices) -> APIRouter:
    """The routes over ``watched``; maps are made in ``slices``."""
    router = api_router(tag="watching")

    @router.get(
        "/watch",
        summary="Follow the pools' figures: an event `figures` at once, and whenever something has changed.",
        description="Events are a quarter of a second apart at least.",
        response_class=Response,
        responses=event_stream({EVENT: Figures}),
    )
    async def watch(
        principal: Asking,
        part: Annotated[
            str, Query(alias="filter", max_length=128, description="Part of a pool's name, in any case.")
        ] = "",
        offset: Annotated[int, Query(ge=0, description="Of the matching pools, pass over so many.")] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="Show so many.")] = 50,
        pool: Annotated[str | None, Query(description="Show all of this one, too, if there is one.")] = None,
    ) -> Response:
        watched.streams.check()
        asked = Asked(part=part, offset=offset, limit=limit, chosen=pool, principal=principal)
        return EventStream(WatchFeed(asked, watched), watched.streams)

    @router.get(
        "/pools/{pool}/map",
        summary="What every block is, one byte a block.",
        response_model=MapReply,
        responses=refusals(PoolNotFound),
    )
    async def block_map(
        pool: str, by: Annotated[MapBy, Query(description="What blocks are told apart by.")] = MapBy.STATE
    ) -> Response:
        found = watched.pools.get(pool)
        look = map_by_state(found) if by is MapBy.STATE else map_by_lease(found)
        made, _ = await slices.run(look)
        reply = await asyncio.to_thread(_render, made, by)
        if watched.pools.find(pool) is not found:
            raise PoolNotFound(f"pool {pool!r} was deleted in the meantime")
        return Response(reply, headers={"cache-control": "no-store"}, media_type="application/json")

    return router


def _render(made: BlockMap, by: MapBy) -> bytes:
    codes = base64.b64encode(zlib.compress(made.codes, COMPRESSION_LEVEL)).decode()
    reply = MapReply(epoch=made.epoch, num_blocks=len(made.codes), by=by, legend=made.legend, codes=codes)
    return reply.model_dump_json().encode()
