"""The routes of a pool's workers: who holds the tensors, and what they look like. Ordinary FastAPI."""

from typing import Annotated, Literal

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from blockyard.core import commands as ask
from blockyard.core.errors import (
    InvalidRequest,
    PoolNotFound,
    StaleEpoch,
    WorkerNotFound,
    WorkerReplaced,
)
from blockyard.core.ids import WorkerId
from blockyard.core.pool import Pool
from blockyard.core.replies import WorkerNoted, WorkerRemoved
from blockyard.core.workers import Worker
from blockyard.planning.memory_map import MemoryMap, memory_map
from blockyard.planning.planner import Plan
from blockyard.server.access.protection import Asking
from blockyard.server.api_router import api_router
from blockyard.server.body import Count, Name
from blockyard.server.clock import Clock
from blockyard.server.idempotency_key import IDEMPOTENCY_KEY, once
from blockyard.server.plan_reply import GroupReply, SlotReply, TensorReply, rank_reply
from blockyard.server.pools import Pools
from blockyard.server.refusals import refusals
from blockyard.server.schemas import PoolBody

WorkerName = Annotated[Name, Field(pattern=r"^[^\x00-\x1f\x7f]+$")]
"""Anything but control characters: it stands in a path."""

Incarnation = Annotated[Name | Count, Field(description="Another one means that the worker's memory is new.")]


class RegisterBody(PoolBody):
    """A worker that holds the tensors of a rank."""

    worker_id: WorkerName = Field(description="Its own name. One that comes back registers under the same.")
    rank: Count = Field(description="Its place in the pool's plan, from 0.")
    device: Name = Field(description="Where its tensors lie, for people: cuda:0, say.")
    incarnation: Incarnation


class WorkerBody(PoolBody):
    """A worker that has registered."""

    incarnation: Incarnation | None = Field(None, description="Its own: then an earlier one is refused.")

    @property
    def incarnation_text(self) -> str | None:
        """As the core knows it."""
        return None if self.incarnation is None else str(self.incarnation)


class RankMemory(BaseModel):
    """What a worker has to allocate. Of a pool that was made from sizes, nothing is known."""

    tensors: list[TensorReply] | list[SlotReply] = Field(description="As in the plan.")
    groups: list[GroupReply] = Field(description="As in the plan.")
    layout: str | None = Field(description="Of the device's memory.")
    memory: MemoryMap | None = Field(description="Each layer's view of the rank's memory, ready to be used.")

    @classmethod
    def of(cls, plan: Plan | None, rank: int) -> "RankMemory":
        """The memory of ``rank``.

        Raises:
            InvalidRequest: The plan has no such rank.
        """
        if plan is None:
            return cls(tensors=[], groups=[], layout=None, memory=None)
        num_ranks = len(plan.ranks)
        if rank >= num_ranks:
            raise InvalidRequest.of("rank", f"the pool's plan has {num_ranks} ranks, from 0")
        reply = rank_reply(plan.ranks[rank], plan)
        return cls(
            tensors=reply.tensors,
            groups=reply.groups,
            layout=plan.request.layout.value,
            memory=memory_map(plan, rank),
        )


class RegisteredReply(RankMemory):
    """A worker is known."""

    epoch: int
    worker_id: str
    heartbeat_ms: int = Field(description="How often it has to call.")


class WorkerReply(BaseModel):
    """A worker as the pool knows it."""

    worker_id: str
    rank: int
    device: str
    incarnation: str
    state: Literal["alive", "lost"]
    silent_ms: int = Field(description="Since it called last.")

    @classmethod
    def of(cls, worker: Worker, now_ms: int, *, is_lost: bool) -> "WorkerReply":
        """``worker`` at ``now_ms``."""
        return cls(
            worker_id=worker.worker_id,
            rank=worker.rank,
            device=worker.device,
            incarnation=worker.incarnation,
            state="lost" if is_lost else "alive",
            silent_ms=max(0, now_ms - worker.last_heartbeat_ms),
        )


class WorkersReply(BaseModel):
    """All workers, by rank."""

    epoch: int
    num_ranks: int | None = Field(description="Of the pool's plan; null where it has none.")
    workers: list[WorkerReply]


def worker_routes(pools: Pools, clock: Clock) -> APIRouter:
    """The routes over ``pools``, by the time of ``clock``."""
    router = api_router("/pools/{pool}/workers", tag="workers")

    @router.post(
        "",
        summary="Register a worker: what it has to allocate, and how often to call.",
        responses=refusals(PoolNotFound, StaleEpoch, WorkerReplaced),
        openapi_extra={"parameters": [IDEMPOTENCY_KEY]},
    )
    async def register(pool: str, body: RegisterBody, request: Request, principal: Asking) -> RegisteredReply:
        found, plan = pools.get(pool), pools.plan_if_any(pool)
        memory = await run_in_threadpool(RankMemory.of, plan, body.rank)  # large models take their time
        if pools.get(pool) is not found:
            raise PoolNotFound(f"pool {pool!r} was deleted in the meantime")
        command = ask.RegisterWorker(
            tenant=principal.tenant,
            worker_id=WorkerId(body.worker_id),
            rank=body.rank,
            device=body.device,
            incarnation=str(body.incarnation),
            epoch=body.epoch,
        )
        noted = pools.apply(pool, await _once(request, command), clock.now_ms())
        assert isinstance(noted, WorkerNoted)
        return RegisteredReply(
            epoch=noted.epoch, worker_id=noted.worker_id, heartbeat_ms=noted.heartbeat_ms, **dict(memory)
        )

    @router.post(
        "/{worker_id:path}/heartbeat",
        summary="Say that a worker is there.",
        responses=refusals(PoolNotFound, WorkerNotFound, StaleEpoch, WorkerReplaced),
        openapi_extra={"parameters": [IDEMPOTENCY_KEY]},
    )
    async def heartbeat(
        pool: str, worker_id: str, request: Request, principal: Asking, body: WorkerBody | None = None
    ) -> WorkerNoted:
        body = body or WorkerBody()
        command = ask.Heartbeat(
            tenant=principal.tenant,
            worker_id=WorkerId(worker_id),
            incarnation=body.incarnation_text,
            epoch=body.epoch,
        )
        noted = pools.apply(pool, await _once(request, command), clock.now_ms())
        assert isinstance(noted, WorkerNoted)
        return noted

    @router.get("", summary="A pool's workers.", responses=refusals(PoolNotFound))
    async def list_workers(pool: str) -> WorkersReply:
        found, plan = pools.get(pool), pools.plan_if_any(pool)
        return WorkersReply(
            epoch=found.epoch,
            num_ranks=None if plan is None else len(plan.ranks),
            workers=_workers(found, clock.now_ms()),
        )

    @router.delete(
        "/{worker_id:path}",
        summary="Forget a worker that has gone for good.",
        responses=refusals(PoolNotFound, WorkerNotFound, StaleEpoch, WorkerReplaced),
    )
    async def remove(pool: str, worker_id: str, body: WorkerBody | None = None) -> WorkerRemoved:
        body = body or WorkerBody()
        command = ask.RemoveWorker(
            worker_id=WorkerId(worker_id), incarnation=body.incarnation_text, epoch=body.epoch
        )
        removed = pools.apply(pool, command, clock.now_ms())
        assert isinstance(removed, WorkerRemoved)
        return removed

    return router


async def _once(request: Request, command: ask.PoolCommand) -> ask.Command:
    return once(dict(request.scope["headers"]), request.scope["path"], await request.body(), command)


def _workers(pool: Pool, now_ms: int) -> list[WorkerReply]:
    return [
        WorkerReply.of(worker, now_ms, is_lost=pool.workers.is_lost(worker, now_ms))
        for worker in pool.workers
    ]
