"""A plan's groups as a pool holds them."""

from typing import Any

from blockyard.core.config import GroupConfig
from blockyard.core.errors import InvalidRequest
from blockyard.planning.groups import Group
from blockyard.planning.layers import ChunkedLocalAttention, FullAttention, KpoolTail, SlidingWindow
from blockyard.planning.planner import Plan


def planned_groups(plan: Plan) -> list[GroupConfig]:
    """The groups of a pool for ``plan``, in the plan's order.

    Raises:
        InvalidRequest: The model keeps nothing, or has groups that pools do not hold.
    """
    if not plan.grouping.groups:
        raise InvalidRequest.of("plan", "no layer keeps a cache: there is nothing to pool")
    if plan.request.speculative is not None and plan.request.speculative.drafts_with_kv:
        raise InvalidRequest.of("plan.speculative", "pools do not compute a drafter's last block anew")
    return [_group(group, plan) for group in plan.grouping.groups]


def _group(group: Group, plan: Plan) -> GroupConfig:
    form = group.form
    sizes: dict[str, Any] = {"block_size": group.table_block_size(plan.request.parallel.decode_context)}
    if group.is_draft or group.host_resident or group.derived:
        what = "draft" if group.is_draft else "host and resident"
        raise InvalidRequest.of("plan", f"pools do not hold {what} groups")
    if isinstance(form, FullAttention):
        return GroupConfig(kind="full_attention", **sizes)
    if isinstance(form, ChunkedLocalAttention):
        return GroupConfig(
            kind="chunked_local_attention", attention_chunk_size=form.attention_chunk_size, **sizes
        )
    if isinstance(form, SlidingWindow) and not isinstance(form, KpoolTail):
        if form.extra_retained_tokens:
            raise InvalidRequest.of("plan", "pools do not retain tokens behind a sliding window")
        return GroupConfig(kind="sliding_window", sliding_window=form.sliding_window, **sizes)
    raise InvalidRequest.of("plan", f"pools do not hold groups of kind {form.kind}")
