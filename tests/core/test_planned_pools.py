"""Every plan that can be made is a pool that works: a random day of each, watched by the audit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blockyard.core.config import PoolConfig, Publish
from blockyard.server.pool_config_body import PoolConfigBody
from core.engine_day import EngineDay
from rounds import NIGHTLY

CASES = json.loads((Path(__file__).parents[1] / "data" / "planning.json").read_text())
PLANS = [case for case in CASES if "error" not in case]

NUM_CALLS = 10_000 if NIGHTLY else 1_000
CALLS_PER_AUDIT = 20
MAX_BLOCKS_A_GROUP = 60


def planned_pool(request: dict[str, Any], publish: Publish) -> PoolConfig:
    """The pool of a plan, with so few blocks that they run out."""
    config, _ = PoolConfigBody.model_validate({"plan": request, "publish": publish.value}).configure()
    num_host_groups = sum(group.is_host_resident for group in config.groups)
    num_device_groups = len(config.groups) - num_host_groups
    num_host_blocks = config.num_host_blocks
    return replace(
        config,
        num_blocks=min(config.num_blocks, 1 + MAX_BLOCKS_A_GROUP * num_device_groups),
        num_host_blocks=num_host_blocks and min(num_host_blocks, 1 + MAX_BLOCKS_A_GROUP * num_host_groups),
    )


@pytest.mark.parametrize("number", range(len(PLANS)), ids=[case["name"] for case in PLANS])
def test_a_planned_pool_serves_a_day_and_gets_all_back(number: int) -> None:
    case, publish = PLANS[number], list(Publish)[number % 2]
    day = EngineDay(planned_pool(case["request"], publish), case["name"])
    for call in range(NUM_CALLS):
        day.call()
        if call % CALLS_PER_AUDIT == 0:
            assert day.pool.audit().problems == []
    assert day.pool.audit().problems == []
    day.end()
    assert day.pool.audit().problems == []
    assert day.pool.num_held_blocks == 0
