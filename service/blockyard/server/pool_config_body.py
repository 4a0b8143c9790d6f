"""The body that creates a pool."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from blockyard.core.config import (
    MAX_REPLIES,
    EventsConfig,
    Eviction,
    GroupConfig,
    HashForm,
    PoolConfig,
    Publish,
)
from blockyard.core.errors import InvalidRequest
from blockyard.core.extra_keys import ExtraKeyForm
from blockyard.core.hashing import HashAlgorithm
from blockyard.core.kinds import KINDS, kind_of
from blockyard.planning.planner import Plan, plan
from blockyard.server.body import Body, Count, PositiveCount
from blockyard.server.plan_schemas import PlanBody
from blockyard.server.planned_groups import planned_groups


class Group(Body):
    """Layers that share a block table."""

    kind: Literal[tuple(KINDS)]  # type: ignore[valid-type]
    block_size: PositiveCount = Field(description="Tokens a block.")
    sliding_window: PositiveCount | None = Field(
        None, description="Tokens that a token sees, itself included."
    )
    attention_chunk_size: PositiveCount | None = Field(None, description="Tokens a chunk.")
    rswa_window: PositiveCount | None = Field(None, description="Generated tokens that a token sees.")
    extra_retained_tokens: Count = Field(0, description="Tokens kept behind a sliding window.")
    mamba_cache_mode: Literal["none", "align"] | None = Field(
        None, description="Which states are kept: the running one, or those at the ends of blocks, too."
    )
    num_speculative_blocks: Count = Field(0, description="Further states, for speculated tokens.")
    num_blocks_per_request: PositiveCount | None = Field(None, description="Blocks of a hot buffer.")
    is_draft: bool = Field(False, description="A draft model's: the last matched block is computed anew.")
    is_host_resident: bool = Field(False, description="Its blocks are those of num_host_blocks.")


class EventsBody(Body):
    """What is told of the prefix index as it changes."""

    topic: Annotated[str, Field(max_length=256)] | None = Field(
        None,
        description="Of the pool's ZeroMQ messages; default: kv@host:port@pool, by the host's name where "
        "the server listens on all addresses. GET .../events/snapshot says it.",
    )
    hash_form: Annotated[HashForm, Field(strict=False)] = Field(
        HashForm.INT64, description="Of hashes over ZeroMQ: their low 64 bits, or whole."
    )
    rank: Count | None = Field(None, description="Of the data-parallel engine, if it is one of several.")
    needs_token_ids: bool = Field(
        False,
        description="Refuse block_hashes without event_token_ids beside them, so that every event has the "
        "tokens of its blocks: some routers index by these. If false, events have them where they were told.",
    )


def _events_of(value: Any) -> Any:
    """True and false as the body that they stand for."""
    if isinstance(value, bool):
        return {} if value else None
    return value


_EVICTION = {Publish.ON_COMMIT: Eviction.ADAPTIVE, Publish.ON_ALLOCATE: Eviction.LRU}
"""What a pool gets whose body does not say; one that stands keeps what it has. See decision 0011."""

_FROM_PLAN = ("num_blocks", "num_host_blocks", "scheduler_block_size", "hash_block_size")


class PoolConfigBody(Body):
    """A pool to create: one full-attention group of ``block_size``, or ``groups``, or those of a ``plan``."""

    num_blocks: PositiveCount | None = Field(
        None, description="Blocks, the null block (id 0) included. With a plan: the plan's."
    )
    num_host_blocks: PositiveCount | None = Field(
        None, description="The same in host memory, for groups that are host resident."
    )
    block_size: PositiveCount | None = Field(None, description="Tokens a block, in place of groups.")
    groups: Annotated[list[Group], Field(min_length=1, max_length=64)] | None = None
    plan: PlanBody | None = Field(
        None, description="In place of blocks and groups: as POST /v1/plans takes it."
    )
    scheduler_block_size: PositiveCount | None = Field(
        None,
        description="Tokens that hits are aligned to; default: the least common multiple of the block sizes.",
    )
    hash_block_size: PositiveCount | None = Field(
        None,
        description="Tokens a block hash stands for; default: the greatest common divisor of block sizes.",
    )
    max_model_len: PositiveCount | None = Field(
        None, description="Tokens of the longest sequence; default: no bound, or the plan's."
    )
    max_in_flight_tokens: PositiveCount = Field(
        8192, description="Tokens of a sequence computed at once, at most; default with a plan: the plan's."
    )
    enable_prefix_caching: bool = Field(True, description="Default with a plan: the plan's.")
    hash_algorithm: Annotated[HashAlgorithm, Field(strict=False)] = HashAlgorithm.BLAKE2B
    hash_seed: str | None = Field(
        None, description="Secret seed, for calls that send token_ids. Never shown again."
    )
    extra_key_form: Annotated[ExtraKeyForm, Field(strict=False)] = ExtraKeyForm.TAGGED
    publish: Annotated[Publish, Field(strict=False)] = Publish.ON_COMMIT
    eviction: Annotated[Eviction, Field(strict=False)] | None = Field(
        None,
        description="Which free block loses its cached content first. lru: exactly the one that was freed "
        "the longest ago. adaptive: the one whose content was used the least, weighed against how long ago, "
        "by a weight that the pool finds by itself. Default: adaptive with on_commit, lru with on_allocate; "
        "a pool that stands keeps what it has, and is found with either.",
    )
    watermark_blocks: Count = Field(0, description="Blocks that admitting a new sequence leaves free.")
    prefix_cache_retention_interval: Count | None = Field(
        None,
        description="Sliding-window groups keep what a hit needs every so many tokens and at the prompt's "
        "end; 0: there alone; null: every block.",
    )
    max_replies: Annotated[int, Field(ge=1, le=MAX_REPLIES)] = Field(
        256,
        description="Idempotency keys that each lease remembers; four times as many are remembered of calls "
        "without a lease.",
    )
    worker_timeout_ms: PositiveCount = Field(
        5_000, description="A worker that has not called for so long is lost."
    )
    needs_all_workers: bool = Field(
        True,
        description="Once a worker has registered: give no blocks while one is lost, or a rank has none.",
    )
    share_across_tenants: bool = Field(
        False,
        description="Let tenants find each other's blocks, but for those with a cache salt. Otherwise a "
        "tenant is part of its hashes.",
    )
    events: Annotated[
        EventsBody | None,
        BeforeValidator(_events_of, json_schema_input_type=bool | EventsBody | None),
    ] = Field(
        None, description="Publish KV events: true, or how. Their token_ids are empty unless they were told."
    )

    def configure(self) -> tuple[PoolConfig, Plan | None]:
        """The pool's configuration with every default filled in, and the plan that it is from, if it is.

        Raises:
            InvalidRequest: Sizes are missing or do not fit each other.
            PlanError: There is no such plan.
        """
        given = [name for name in ("block_size", "groups", "plan") if getattr(self, name) is not None]
        if len(given) != 1:
            found = f", not {' and '.join(given)}" if given else ""
            raise InvalidRequest.of(
                given[-1] if given else "groups",
                f"give one of block_size (for a single full-attention group), groups and plan{found}",
            )
        options = self.model_dump(exclude={"num_blocks", "block_size", "groups", "plan", "events"})
        options["events"] = self._events()
        options["eviction"] = self.eviction or _EVICTION[self.publish]
        if self.plan is not None:
            for name in _FROM_PLAN:
                options.pop(name, None)
            return self._planned(self.plan, options)
        if self.num_blocks is None:
            raise InvalidRequest.of("num_blocks", "is missing")
        groups = self.groups or [Group(kind="full_attention", block_size=self.block_size or 0)]
        configs = [GroupConfig(**group.model_dump()) for group in groups]
        return PoolConfig.of(num_blocks=self.num_blocks, groups=configs, **options), None

    def _events(self) -> EventsConfig | None:
        return None if self.events is None else EventsConfig(**dict(self.events))

    def _planned(self, body: PlanBody, options: dict[str, Any]) -> tuple[PoolConfig, Plan]:
        for name in _FROM_PLAN:
            if getattr(self, name) is not None:
                raise InvalidRequest.of(name, "follows from the plan: leave it out")
        try:
            planned = plan(body.request())
        except InvalidRequest as error:
            raise error.inside("plan") from None
        request, groups = planned.request, planned_groups(planned)
        can_be_cached = all(kind_of(group).allows_hits for group in groups)
        limits = {
            "max_model_len": planned.max_model_len,
            "max_in_flight_tokens": request.max_in_flight_tokens,
            "enable_prefix_caching": request.enable_prefix_caching and can_be_cached,
        }
        for name, limit in limits.items():
            value = options[name] if name in self.model_fields_set else None
            if value is not None and value > limit:
                raise InvalidRequest.of(name, f"may not be more than the plan's, {limit}")
            options[name] = limit if value is None else value
        config = PoolConfig.of(
            num_blocks=planned.num_blocks,
            num_host_blocks=planned.host_pool and planned.host_pool.num_blocks,
            groups=groups,
            scheduler_block_size=planned.block_sizes.scheduler,
            num_ranks=len(planned.ranks),
            hash_block_size=planned.block_sizes.hash if request.enable_prefix_caching else None,
            **options,
        )
        return config, planned
