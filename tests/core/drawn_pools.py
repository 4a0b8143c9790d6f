"""What Hypothesis draws for a run: a pool of any mixture of kinds."""

import math
from typing import Any

from hypothesis import strategies as st

from blockyard.core.config import EventsConfig, Eviction, GroupConfig, PoolConfig, Publish
from core.naive_kinds import is_found

FOUND_KINDS: tuple[str, ...] = (
    *("full_attention", "mla_attention", "hidden_state", "sink_full_attention"),
    *("sliding_window", "sliding_window", "sliding_window_mla"),
    *("chunked_local_attention", "chunked_local_attention", "rswa", "rswa", "mamba", "mamba"),
)
"""Often enough, so that most pools have hits."""

OTHER_KINDS: tuple[str, ...] = ("circular_buffer", "kpool_tail", "resident", "hot")
KINDS_WITHOUT_HITS = ("cross_attention", "cross_attention", "mamba", "mamba")
"""Their pools cache no prefixes."""

DRAFTABLE = {
    *("full_attention", "mla_attention", "hidden_state", "sink_full_attention"),
    *("sliding_window", "sliding_window_mla", "rswa"),
}

STATE_POOLS: tuple[str, ...] = ("full_attention", "mamba", "mamba", "mla_attention")
"""Kinds of pools whose hits may end inside blocks."""

WITH_TOKENS = "with tokens"
"""The topic of pools whose schedulers tell tokens beside hashes."""

rarely = st.sampled_from([False] * 7 + [True])


@st.composite
def group_configs(draw: st.DrawFn, kinds: tuple[str, ...], *, caching: bool, drafts: bool) -> GroupConfig:
    """One of ``kinds``. Chunks may begin inside a block; ``drafts``: it may be a draft model's."""
    kind = draw(st.sampled_from(kinds))
    sizes: dict[str, Any] = {}
    if kind.startswith("sliding_window"):
        sizes["sliding_window"] = draw(st.integers(1, 18))
        sizes["extra_retained_tokens"] = draw(st.sampled_from([0, 1, 4]))
    if kind == "chunked_local_attention":
        sizes["attention_chunk_size"] = draw(st.integers(1, 32))
    if kind == "rswa":
        sizes["rswa_window"] = draw(st.integers(1, 12))
    if kind == "mamba":
        sizes["mamba_cache_mode"] = "align" if caching else draw(st.sampled_from(["none", "none", "align"]))
        sizes["num_speculative_blocks"] = draw(st.sampled_from([0, 1, 2]))
    if kind == "hot":
        sizes["num_blocks_per_request"] = draw(st.integers(1, 3))
    if kind in DRAFTABLE:
        sizes["is_draft"] = drafts and draw(st.booleans())
    return GroupConfig(kind=kind, block_size=draw(st.sampled_from([2, 4, 8])), **sizes)


@st.composite
def pool_configs(
    draw: st.DrawFn,
    kinds: tuple[str, ...] = (),
    *,
    caching: bool | None = None,
    drafts: bool = False,
    host: bool = False,
) -> PoolConfig:
    """Few blocks: most runs are short of them.

    Where something is to be found, with groups of certain ``kinds`` only, with prefix caching or without, and
    with ``drafts`` or a ``host`` group among them; as it is drawn otherwise.
    """
    if caching is None:
        caching = not draw(rarely)
    if not kinds and not caching:
        kinds = FOUND_KINDS + OTHER_KINDS + 2 * KINDS_WITHOUT_HITS
    elif not kinds:
        kinds = draw(st.sampled_from([FOUND_KINDS + OTHER_KINDS] * 2 + [STATE_POOLS]))
    ends_inside = kinds == STATE_POOLS
    drafts = drafts or draw(st.sampled_from([False, False, True]))
    groups = draw(st.lists(group_configs(kinds, caching=caching, drafts=drafts), min_size=1, max_size=3))
    if len(groups) == 2 and draw(st.booleans()):
        groups.append(groups[1])  # groups with equal specs, which are looked up together
    num_host_blocks = None
    if host or (not ends_inside and draw(rarely)):
        groups[0] = draw(host_resident(groups[0]))
        num_host_blocks = draw(st.sampled_from([6, 14, 28]))
    sizes = [group.block_size for group in groups]
    scheduler_block_size = math.lcm(*sizes) * draw(st.sampled_from([1, 1, 1, 2]))
    retained = draw(st.sampled_from([None, None, None, 0, 1, 2, 3]))
    hashed = math.gcd(*(group.block_size for group in groups if is_found(group))) or 4
    finer = draw(st.sampled_from([2, 2, 4] if ends_inside else [1, 1, 2]))
    return PoolConfig(
        num_blocks=draw(st.sampled_from([8, 14, 20, 28, 40])) * len(groups),
        num_host_blocks=num_host_blocks,
        groups=tuple(groups),
        scheduler_block_size=scheduler_block_size,
        hash_block_size=max(hashed // finer, 1),
        max_model_len=draw(st.sampled_from([None, None, 20, 37])),
        max_in_flight_tokens=draw(st.sampled_from([4, 10, 8192])),
        enable_prefix_caching=caching,
        publish=draw(st.sampled_from(list(Publish))),
        worker_timeout_ms=draw(st.sampled_from([501, 1_000, 3_000])),
        needs_all_workers=not draw(rarely),
        num_ranks=draw(st.sampled_from([None, None, 1, 2])),
        watermark_blocks=draw(st.sampled_from([0, 0, 0, 1, 3])),
        prefix_cache_retention_interval=None if retained is None else retained * scheduler_block_size,
        events=draw(st.sampled_from([None, EventsConfig(), EventsConfig(topic=WITH_TOKENS)])),
        share_across_tenants=draw(st.booleans()),
        eviction=draw(st.sampled_from(list(Eviction))),
    )


@st.composite
def host_resident(draw: st.DrawFn, group: GroupConfig) -> GroupConfig:
    """The same in the host's blocks, if its kind can be found; else a group that can."""
    kind = draw(st.sampled_from(["mla_attention", "full_attention", "sliding_window"]))
    window = draw(st.integers(2, 18)) if kind == "sliding_window" else None
    return GroupConfig(kind=kind, block_size=group.block_size, sliding_window=window, is_host_resident=True)
