"""A plan's groups as a pool holds them."""

from dataclasses import replace

from blockyard.core.config import GroupConfig
from blockyard.core.errors import InvalidRequest
from blockyard.core.kinds import can_be_draft
from blockyard.planning.grouping.sparse_host import HotPage
from blockyard.planning.groups import Group
from blockyard.planning.layers import ChunkedLocalAttention, KpoolTail, Mamba, SlidingWindow
from blockyard.planning.planner import Plan


def planned_groups(plan: Plan) -> list[GroupConfig]:
    """The groups of a pool for ``plan``, in the plan's order; none for a model that keeps nothing.

    Where a drafter's layers cannot be told, any group may hold them: all are treated as the drafter's.

    Raises:
        InvalidRequest: Recurrent layers keep states as pools do not.
    """
    request = plan.request
    groups = plan.grouping.groups
    if not any(group.is_draft for group in groups):
        drafts = request.speculative is not None and request.speculative.drafts_with_kv
        groups = [replace(group, is_draft=drafts) for group in groups]
    return [_group(group, request.parallel.decode_context) for group in groups]


def _group(group: Group, decode_context: int) -> GroupConfig:
    form = group.form
    windows: dict[str, int | str | None] = {}
    if isinstance(form, ChunkedLocalAttention):
        windows = {"attention_chunk_size": form.attention_chunk_size}
    elif isinstance(form, SlidingWindow) and not isinstance(form, KpoolTail):
        windows = {
            "sliding_window": form.sliding_window,
            "extra_retained_tokens": form.extra_retained_tokens,
        }
    elif isinstance(form, Mamba):
        if form.mamba_cache_mode == "all":
            raise InvalidRequest.of("plan", "pools keep recurrent states in mode none or align, not all")
        windows = {
            "mamba_cache_mode": form.mamba_cache_mode,
            "num_speculative_blocks": form.num_speculative_blocks,
        }
    elif isinstance(form, HotPage):
        windows = {"num_blocks_per_request": form.num_blocks_per_request}
    return GroupConfig(
        kind=form.kind,
        block_size=group.table_block_size(decode_context),
        is_draft=group.is_draft and can_be_draft(form.kind),
        is_host_resident=group.host_resident,
        **windows,  # type: ignore[arg-type]
    )
