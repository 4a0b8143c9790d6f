"""The body that creates a pool."""

from typing import Annotated, Any, Literal

from pydantic import Field

from blockyard.core.config import Eviction, GroupConfig, PoolConfig, Publish
from blockyard.core.errors import InvalidRequest
from blockyard.core.extra_keys import ExtraKeyForm
from blockyard.core.hashing import HashAlgorithm
from blockyard.planning.planner import Plan, plan
from blockyard.server.body import Body, Count, PositiveCount
from blockyard.server.plan_schemas import PlanBody
from blockyard.server.planned_groups import planned_groups


class Group(Body):
    """Layers that share a block table."""

    kind: Literal["full_attention", "sliding_window", "chunked_local_attention"]
    block_size: PositiveCount = Field(description="Tokens a block.")
    sliding_window: PositiveCount | None = Field(
        None, description="Tokens that a token sees, itself included."
    )
    attention_chunk_size: PositiveCount | None = Field(None, description="Tokens a chunk.")


_FROM_PLAN = ("num_blocks", "scheduler_block_size", "hash_block_size")


class PoolConfigBody(Body):
    """A pool to create: one full-attention group of ``block_size``, or ``groups``, or those of a ``plan``."""

    num_blocks: PositiveCount | None = Field(
        None, description="Blocks, the null block (id 0) included. With a plan: the plan's."
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
    eviction: Annotated[Eviction, Field(strict=False)] = Eviction.LRU
    watermark_blocks: Count = Field(0, description="Blocks that admitting a new sequence leaves free.")

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
        options = self.model_dump(exclude={"num_blocks", "block_size", "groups", "plan"})
        if self.plan is not None:
            return self._planned(
                self.plan, self.model_dump(exclude={*_FROM_PLAN, "block_size", "groups", "plan"})
            )
        if self.num_blocks is None:
            raise InvalidRequest.of("num_blocks", "is missing")
        groups = self.groups or [Group(kind="full_attention", block_size=self.block_size or 0)]
        configs = [GroupConfig(**group.model_dump()) for group in groups]
        return PoolConfig.of(num_blocks=self.num_blocks, groups=configs, **options), None

    def _planned(self, body: PlanBody, options: dict[str, Any]) -> tuple[PoolConfig, Plan]:
        for name in _FROM_PLAN:
            if getattr(self, name) is not None:
                raise InvalidRequest.of(name, "follows from the plan: leave it out")
        try:
            planned = plan(body.request())
        except InvalidRequest as error:
            raise error.inside("plan") from None
        request = planned.request
        limits = {
            "max_model_len": planned.max_model_len,
            "max_in_flight_tokens": request.max_in_flight_tokens,
            "enable_prefix_caching": request.enable_prefix_caching,
        }
        for name, limit in limits.items():
            value = options[name] if name in self.model_fields_set else None
            if value is not None and value > limit:
                raise InvalidRequest.of(name, f"may not be more than the plan's, {limit}")
            options[name] = limit if value is None else value
        config = PoolConfig.of(
            num_blocks=planned.num_blocks,
            groups=planned_groups(planned),
            scheduler_block_size=planned.block_sizes.scheduler,
            hash_block_size=planned.block_sizes.hash if request.enable_prefix_caching else None,
            **options,
        )
        return config, planned
