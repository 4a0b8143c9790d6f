"""The answers of a plan in sentences."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from blockyard.planning.groups import Group
from blockyard.planning.planner import Plan
from blockyard.server.commands.plan.abbreviations import (
    counted,
    fold,
    group_digits,
    number_ranges,
    show_size,
    spanned,
)
from blockyard.server.commands.plan.figures import plain_attention, requests_at_a_time, show_requests
from blockyard.server.plan_schemas import PlanBody


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


def memory_is_told(body: PlanBody) -> bool:
    """Whether there is a memory to divide, or a number of blocks alone."""
    return body.num_blocks_override is None or any(
        worker.total_memory_bytes or worker.available_memory_bytes for worker in body.workers
    )


def answers(body: PlanBody, plan: Plan, maximum: int | None) -> Iterator[str]:
    """How many requests, of which length, in how many blocks; a token's bytes; which request is the longest.

    Args:
        body: What was asked.
        plan: What came of it.
        maximum: Tokens of the longest request that the model allows, where that is known.
    """
    subject = f"{model_name(body, plan)} on {hardware(body, plan)}"
    served = requests_at_a_time(plan, plan.max_model_len)
    if served is None:
        yield f"{subject} keeps nothing for its requests: no blocks are needed."
        return
    sizes = sorted({group.form.block_size for group in plan.grouping.groups})
    yield (
        f"{subject} serves {show_requests(served)} of {plan.max_model_len:,} tokens at a time, from "
        f"{plan.num_blocks:,} blocks of {' or '.join(f'{size:,}' for size in sizes)} tokens."
    )
    token = plain_attention(plan)
    if token is not None:
        yield f"{token}."
    longest = plan.longest_model_len
    fits = (
        "A request of any length fits, as its blocks have a bound"
        if longest is None
        else f"The longest request that fits has {longest:,} tokens"
    )
    is_beyond = maximum is not None and (longest is None or maximum < longest)
    yield fits + (f"; the model's own maximum is {maximum:,}." if is_beyond else ".")


def remarks(plan: Plan) -> Iterator[str]:
    """What else there is to know, a sentence each."""
    asked = plan.request.max_model_len
    if plan.max_model_len < asked:
        yield f"max_model_len is cut from {asked:,} to {plan.max_model_len:,} tokens, to what fits."
    yield (
        f"A block takes {spanned(rank.placement.bytes_per_block for rank in plan.ranks)} bytes of a rank and "
        f"holds the pages of any one group; block 0, the null block, is never handed out."
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
            f"The host keeps {pool.num_blocks:,} blocks of {pool.block_bytes:,} bytes, "
            f"{show_size(pool.num_blocks * pool.block_bytes)} in all."
        )


def in_flight_notes(plan: Plan) -> Iterator[str]:
    """Where a window's blocks are for tokens in flight rather than for the window, a sentence each."""
    workload = plan.request.workload(plan.max_model_len)
    least = replace(workload, max_in_flight_tokens=1)

    def blocks(group: Group) -> tuple[int, int]:
        return group.max_blocks(workload), group.max_blocks(least)

    for numbers, group in fold(plan.grouping.groups, blocks):
        held, needed = blocks(group)
        if held >= 2 * needed > 0:
            noun, each = ("Group", "") if len(numbers) == 1 else ("Groups", " each")
            yield (
                f"{noun} {number_ranges(numbers)}: {held - needed:,} of {held:,} blocks a request{each} "
                f"are for tokens in flight; fewer with a lower --max-in-flight-tokens, now "
                f"{workload.max_in_flight_tokens:,}."
            )


def warnings(body: PlanBody, plan: Plan) -> Iterator[str]:
    """What the planner warns of, but for blocks that exceed a memory that was not told."""
    for warning in plan.grouping.warnings:
        if memory_is_told(body) or not warning.startswith("num_blocks_override: "):
            yield group_digits(warning)
