"""What a pool may be created with."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypedDict

from blockyard.core.config import EventsConfig, GroupConfig


class PoolOptions(TypedDict, total=False):
    """Options of `Client.create_pool`. One of ``block_size``, ``groups`` and ``plan`` is needed.

    Attributes:
        block_size: Tokens a block, of a single full-attention group.
        groups: Or all groups, each a `GroupConfig` or a dict of its fields.
        plan: Or a plan's request, from which blocks and groups follow: ``num_blocks`` is left out then.
        scheduler_block_size: Tokens that hits are aligned to, with several groups. By default the least
            common multiple of the block sizes.
        hash_block_size: Tokens a block hash stands for. By default the greatest common divisor.
        max_model_len: Tokens of the longest sequence. By default there is no bound.
        max_in_flight_tokens: Tokens of one sequence that are computed at once, at most.
        enable_prefix_caching: On by default.
        hash_algorithm: One of `HashAlgorithm`.
        hash_seed: Secret seed, for calls that send token ids where the algorithm needs one.
        extra_key_form: One of `ExtraKeyForm`.
        publish: One of `Publish`: when a block becomes a hit for others.
        eviction: One of `Eviction`. By default ``adaptive`` where blocks are published on commit, ``lru``
            where they are on allocation; a pool that stands keeps what it has, and is found with either.
        watermark_blocks: Blocks that admitting a new sequence leaves free.
        num_host_blocks: Blocks in the host's memory, the null block included, for groups that are host
            resident. A plan's follow from its memory.
        prefix_cache_retention_interval: Tokens, a multiple of the scheduler block size: sliding-window groups
            keep what a hit needs so often and at the prompt's end; 0: there alone. By default every block.
        max_replies: Idempotency keys that each lease remembers: calls that it may have in flight and repeat.
            256 by default.
        worker_timeout_ms: A worker that has not called for so long is lost. 5,000 by default.
        needs_all_workers: Once a worker has registered, give no blocks while one is lost or a rank has none.
            On by default.
        share_across_tenants: Let tenants find each other's blocks, but for those with a cache salt. By
            default a tenant is part of its hashes: see `tenant_hashes`.
        events: Publish what becomes a hit and what is one no more: True, or an `EventsConfig` or a dict of
            its fields. By default nothing is published.
    """

    block_size: int
    groups: Sequence[GroupConfig | Mapping[str, Any]]
    plan: Mapping[str, Any]
    scheduler_block_size: int
    hash_block_size: int
    max_model_len: int
    max_in_flight_tokens: int
    enable_prefix_caching: bool
    hash_algorithm: str
    hash_seed: str
    extra_key_form: str
    publish: str
    eviction: str
    watermark_blocks: int
    num_host_blocks: int
    prefix_cache_retention_interval: int
    max_replies: int
    worker_timeout_ms: int
    needs_all_workers: bool
    share_across_tenants: bool
    events: bool | EventsConfig | Mapping[str, Any]


def options_body(options: PoolOptions) -> dict[str, Any]:
    """``options`` as they travel.

    Raises:
        TypeError: One is not an option.
    """
    unknown = options.keys() - PoolOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"a pool has no option {', '.join(sorted(unknown))}")
    body: dict[str, Any] = dict(options)
    if "groups" in options:
        body["groups"] = [_given_fields(group) for group in options["groups"]]
    if not isinstance(events := options.get("events", False), bool):
        body["events"] = _given_fields(events)
    return body


def _given_fields(config: GroupConfig | EventsConfig | Mapping[str, Any]) -> dict[str, Any]:
    """What has its default is left out."""
    if isinstance(config, Mapping):
        return {name: value for name, value in config.items() if value is not None}
    given = {field.name: (getattr(config, field.name), field.default) for field in fields(config)}
    return {name: value for name, (value, default) in given.items() if value != default}
