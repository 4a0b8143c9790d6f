"""The answers of a plan in sentences."""

from collections.abc import Iterator
from typing import Any

from blockyard.planning.planner import Plan
from blockyard.server.commands.plan.sizes import show_size
from blockyard.server.plan_schemas import PlanBody


def counted(count: int, noun: str) -> str:
    """``1 block``, ``2 blocks``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def model_name(body: PlanBody, plan: Plan) -> str:
    """The model's class or type, as its configuration has it."""
    config: dict[str, Any] = body.hf_config or {}
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures and isinstance(architectures[0], str):
        return architectures[0]
    model_type = config.get("model_type")
    if isinstance(model_type, str):
        return model_type
    num_layers = sum(len(group.layers) for group in plan.grouping.groups if not group.derived)
    return f"A model of {counted(num_layers, 'cache layer')}"


def hardware(body: PlanBody, plan: Plan) -> str:
    """The ranks: ``8 ranks (tensor 4, pipeline 2)``."""
    parallel = body.parallel
    counts = {
        "tensor": parallel.tensor,
        "pipeline": parallel.pipeline,
        "decode context": parallel.decode_context,
    }
    split = ", ".join(f"{name} {count}" for name, count in counts.items() if count > 1)
    return counted(len(plan.ranks), "rank") + (f" ({split})" if split else "")


def answer(body: PlanBody, plan: Plan) -> str:
    """How many requests, of which length, in how many blocks."""
    subject = f"{model_name(body, plan)} on {hardware(body, plan)}"
    if plan.capacity is None:
        return f"{subject} keeps nothing for its requests: no blocks are needed."
    sizes = sorted({group.form.block_size for group in plan.grouping.groups})
    longest = plan.longest_model_len
    return (
        f"{subject} serves {plan.capacity.max_concurrency:,.2f} requests of "
        f"{plan.max_model_len:,} tokens at a time, {plan.capacity.num_tokens:,} tokens in all, from "
        f"{plan.num_blocks:,} blocks of {' or '.join(f'{size:,}' for size in sizes)} tokens. "
        + (
            f"The longest request that fits has {longest:,} tokens."
            if longest is not None
            else "A request of any length fits: its blocks have a bound."
        )
    )


def remarks(plan: Plan) -> Iterator[str]:
    """What else there is to know, a sentence each."""
    if plan.capacity is None:
        return
    asked = plan.request.max_model_len
    if plan.max_model_len < asked:
        yield f"max_model_len is cut from {asked:,} to {plan.max_model_len:,} tokens, to what fits."
    sizes = sorted({rank.placement.bytes_per_block for rank in plan.ranks})
    span = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    yield (
        f"A block takes {span} bytes of a rank and holds the pages of any one group; "
        f"block 0, the null block, is never handed out."
    )
    steps = plan.block_sizes
    yield (
        f"Layout {plan.request.layout.value}; scheduling in steps of {steps.scheduler:,} tokens, "
        f"hashing in steps of {steps.hash:,}."
    )
    replicas = {rank.num_replicas for rank in plan.ranks}
    if max(replicas) > 1:
        yield f"{max(replicas)} consecutive tensor-parallel ranks keep the same content."
    if plan.host_pool is not None:
        pool = plan.host_pool
        yield (
            f"The host keeps {pool.num_blocks:,} blocks, {pool.block_stride:,} bytes apart, "
            f"{show_size(pool.num_blocks * pool.block_stride)} in all."
        )
