"""The routes that nobody waits for on a hot path: pools, reads, hashing, health. Ordinary FastAPI."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from blockyard.core.audit import Audit
from blockyard.core.config import config_to_state
from blockyard.core.errors import (
    LimitExceeded,
    PlanNotFound,
    PoolExists,
    PoolInUse,
    PoolNotFound,
    SequenceNotFound,
)
from blockyard.core.hash_chain import hash_tokens
from blockyard.core.ids import SequenceId, TenantId
from blockyard.core.pool import Pool
from blockyard.core.replies import SequenceState
from blockyard.core.statistics import Statistics
from blockyard.planning.errors import PLAN_ERRORS
from blockyard.planning.planner import plan
from blockyard.server.access.protection import Asking
from blockyard.server.api_router import api_router
from blockyard.server.body import TENANT_PATTERN
from blockyard.server.clock import Clock
from blockyard.server.hash_limit import HashLimit
from blockyard.server.plan_reply import PlanReply, plan_reply
from blockyard.server.plan_schemas import PlanBody
from blockyard.server.pool_config_body import PoolConfigBody
from blockyard.server.pools import Pools
from blockyard.server.refusals import refusals
from blockyard.server.schemas import HashBody

PoolName = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", description="Letters, digits, '.', '_' and '-'.")
]


class PoolDescription(BaseModel):
    """A pool's configuration with every default filled in. A secret hash seed is not shown."""

    pool: str
    epoch: int
    num_blocks: int
    groups: list[dict[str, Any]]
    scheduler_block_size: int
    hash_block_size: int
    num_host_blocks: int | None
    max_model_len: int | None
    max_in_flight_tokens: int
    enable_prefix_caching: bool
    hash_algorithm: str
    extra_key_form: str
    publish: str
    eviction: str
    watermark_blocks: int
    prefix_cache_retention_interval: int | None
    max_replies: int
    worker_timeout_ms: int
    needs_all_workers: bool
    num_ranks: int | None
    share_across_tenants: bool
    events: dict[str, Any] | None = Field(
        description="How it publishes events; null: not at all. With needs_token_ids they all have "
        "token_ids; else these are empty where only hashes were told."
    )

    @classmethod
    def of(cls, name: str, pool: Pool) -> "PoolDescription":
        """``pool`` as it is known by ``name``."""
        state = config_to_state(pool.config)
        del state["hash_seed"]
        state["groups"] = [
            {name: value for name, value in group.items() if value or name in ("kind", "block_size")}
            for group in state["groups"]
        ]
        return cls(pool=name, epoch=pool.epoch, **state)


class PoolList(BaseModel):
    """All pools that the caller may know of, in the order of their making."""

    pools: list[PoolDescription]


class Hashes(BaseModel):
    """What a prompt hashes to. One entry a full block, in hex where it is bytes."""

    none_hash: str = Field(description="What stands for the parent of the first block.")
    block_hashes: list[str]
    extra_keys: list[list[Any] | None] = Field(
        description="What went into a hash beside its tokens and its parent."
    )
    event_extra_keys: list[list[Any] | None] | None = Field(description="The same in the form of KV events.")
    external_int64: list[int] = Field(description="The low 64 bits of each hash, unsigned.")


class Health(BaseModel):
    """The process answers."""

    status: str = "ok"


def api_routes(pools: Pools, clock: Clock, hash_limit: HashLimit) -> APIRouter:
    """The routes under ``/v1`` over ``pools``, by the time of ``clock``; ``hash_limit`` bounds `hash`."""
    router = api_router()

    @router.put(
        "/pools/{pool}",
        tags=["pools"],
        summary="Create a pool, or find that it stands with the same configuration.",
        responses={201: {"model": PoolDescription}, **refusals(PoolExists, LimitExceeded, *PLAN_ERRORS)},
    )
    async def create_pool(
        pool: PoolName, body: PoolConfigBody, request: Request, response: Response
    ) -> PoolDescription:
        config, planned = await run_in_threadpool(body.configure)  # plans take their time
        request_of_plan = None if planned is None else await request.body()
        made, is_new = await pools.create(
            pool, config, planned, request_of_plan, any_eviction=body.eviction is None
        )
        response.status_code = 201 if is_new else 200
        return PoolDescription.of(pool, made)

    @router.get("/pools", tags=["pools"], summary="All pools.")
    async def list_pools(principal: Asking) -> PoolList:
        return PoolList(
            pools=[PoolDescription.of(name, pool) for name, pool in pools if principal.reaches(name)]
        )

    @router.get(
        "/pools/{pool}",
        tags=["pools"],
        summary="A pool's configuration.",
        responses=refusals(PoolNotFound),
    )
    async def describe_pool(pool: str) -> PoolDescription:
        return PoolDescription.of(pool, pools.get(pool))

    @router.delete(
        "/pools/{pool}",
        tags=["pools"],
        summary="Delete a pool that nobody uses.",
        responses=refusals(PoolNotFound, PoolInUse),
    )
    async def delete_pool(
        pool: str, force: Annotated[bool, Query(description="Even while blocks are held.")] = False
    ) -> PoolDescription:
        return PoolDescription.of(pool, await pools.delete(pool, force=force))

    @router.get(
        "/pools/{pool}/stats",
        tags=["pools"],
        summary="A pool's figures.",
        responses=refusals(PoolNotFound),
    )
    async def stats(pool: str) -> Statistics:
        return pools.get(pool).statistics(clock.now_ms())

    @router.get(
        "/pools/{pool}/audit",
        tags=["pools"],
        summary="Recount a pool from its block tables.",
        responses=refusals(PoolNotFound),
    )
    async def audit(pool: str) -> Audit:
        return pools.get(pool).audit()

    @router.get(
        "/pools/{pool}/sequences/{sequence_id:path}",
        tags=["sequences"],
        summary="A live sequence.",
        responses=refusals(PoolNotFound, SequenceNotFound),
    )
    async def sequence(
        pool: str,
        sequence_id: str,
        principal: Asking,
        tenant: Annotated[
            str | None,
            Query(
                pattern=f"^({TENANT_PATTERN})?$",
                description="Whose it is, where that is not the caller's own tenant: for those who see all.",
            ),
        ] = None,
    ) -> SequenceState:
        whose = principal.tenant if tenant is None else TenantId(tenant)
        if whose != principal.tenant and not principal.sees_all:
            raise SequenceNotFound.of(sequence_id)
        return pools.get(pool).sequence(SequenceId(sequence_id), whose)

    @router.post(
        "/hash",
        tags=["hashing"],
        summary="Block hashes of tokens, as a pool would compute them.",
        responses=refusals(LimitExceeded),
    )
    def hash_prompt(body: HashBody) -> Hashes:  # in a thread: pure, and slow for long prompts
        hash_limit.check(body)
        hashed = hash_tokens(body.hasher(), body.token_ids, body.extras())
        return Hashes(
            none_hash=hashed.none_hash.hex(),
            block_hashes=[block_hash.hex() for block_hash in hashed.block_hashes],
            extra_keys=_plain(hashed.extra_keys),
            event_extra_keys=_plain(hashed.event_extra_keys),
            external_int64=list(hashed.external_int64),
        )

    return router


def plan_routes(pools: Pools) -> APIRouter:
    """Plans, and those that ``pools`` were made from."""
    router = api_router(tag="plans")

    @router.post(
        "/plans",
        summary="Blocks, groups and tensors for a model and a memory size.",
        responses=refusals(*PLAN_ERRORS),
    )
    def make_plan(body: PlanBody) -> PlanReply:  # in a thread: pure, and slow for large models
        return plan_reply(plan(body.request()))

    @router.get(
        "/pools/{pool}/plan",
        summary="The plan that a pool was made from.",
        responses=refusals(PoolNotFound, PlanNotFound),
    )
    def pool_plan(pool: str) -> PlanReply:
        return plan_reply(pools.plan(pool))

    return router


def health_routes(check: Callable[[], None]) -> APIRouter:
    """Is the process alive, and does it take requests? ``check`` raises NotReady where it does not."""
    router = APIRouter(tags=["watching"], responses=refusals())

    @router.get("/healthz", summary="The process answers.")
    async def healthz() -> Health:
        return Health()

    @router.get("/readyz", summary="The server takes requests.")
    async def readyz() -> Health:
        check()
        return Health()

    return router


def _plain(value: Any) -> Any:
    """Extra keys for JSON: bytes as ``{"hex": ...}``."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
