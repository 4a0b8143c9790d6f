"""The recorded pools that the naive pool knows as well."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from blockyard.core.config import GroupConfig, PoolConfig, Publish

DATA = Path(__file__).parents[1] / "data"

PLAIN_KINDS = {"full_attention", "sliding_window", "chunked_local_attention"}
"""The kinds that the naive pool knows."""

GROUP_FIELDS = {"kind", "block_size", "sliding_window", "attention_chunk_size"}

Operation: TypeAlias = dict[str, Any]
"""A call; under ``expected``, what was answered."""


@dataclass(frozen=True)
class RecordedCase:
    """A pool and the calls that were made to it."""

    name: str
    config: PoolConfig
    operations: list[Operation]


def recorded_cases(file: str) -> list[RecordedCase]:
    """The cases of ``file`` whose groups are of plain kinds and whose pools keep every full block."""
    cases = json.loads((DATA / file).read_text())
    return [
        RecordedCase(case["name"], _config(case["pool"]), case["ops"])
        for case in cases
        if "prefix_cache_retention_interval" not in case["pool"]
        and all(
            group["kind"] in PLAIN_KINDS and group.keys() <= GROUP_FIELDS for group in case["pool"]["groups"]
        )
    ]


def _config(pool: dict[str, Any]) -> PoolConfig:
    groups = tuple(GroupConfig(**group) for group in pool["groups"])
    return PoolConfig(**{**pool, "groups": groups, "publish": Publish(pool["publish"])})
