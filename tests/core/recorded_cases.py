"""The recorded pools, and the calls that were made to them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from blockyard.core.config import GroupConfig, PoolConfig, Publish

DATA = Path(__file__).parents[1] / "data"

Operation: TypeAlias = dict[str, Any]
"""A call; under ``expected``, what was answered."""


@dataclass(frozen=True)
class RecordedCase:
    """A pool and the calls that were made to it."""

    name: str
    config: PoolConfig
    operations: list[Operation]


def recorded_cases(file: str) -> list[RecordedCase]:
    """The cases of ``file``."""
    cases = json.loads((DATA / file).read_text())
    return [RecordedCase(case["name"], _config(case["pool"]), case["ops"]) for case in cases]


def _config(pool: dict[str, Any]) -> PoolConfig:
    groups = tuple(GroupConfig(**group) for group in pool["groups"])
    return PoolConfig(**{**pool, "groups": groups, "publish": Publish(pool["publish"])})
