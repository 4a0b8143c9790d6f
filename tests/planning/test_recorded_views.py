"""Where each layer of the recorded plans is seen in memory: offsets, shapes and strides."""

import pytest

from blockyard.planning.memory_map import MemoryMap, memory_map
from planning.recorded_plans import PLANS, VIEWS, Case, plan_of_body

REQUESTS = {case["name"]: case["request"] for case in PLANS}


def recorded_form(rank: MemoryMap) -> Case:
    """The layers' views as they are recorded."""
    return {
        name: {
            "offset_bytes": layer.offset_bytes,
            "shape": list(layer.shape),
            "strides_bytes": list(layer.strides_bytes),
        }
        for name, layer in rank.layers.items()
    }


@pytest.mark.parametrize("case", VIEWS, ids=lambda case: case["plan"])
def test_every_layer_is_seen_where_recorded(case: Case) -> None:
    plan = plan_of_body(REQUESTS[case["plan"]])
    assert len(plan.ranks) == len(case["workers"])
    for number, worker in enumerate(case["workers"]):
        rank = memory_map(plan, number)
        assert rank.num_blocks == worker["num_blocks"]
        assert rank.device_bytes == worker["size_bytes"]
        views = recorded_form(rank)
        # Of models with many layers, some are recorded.
        assert {name: views[name] for name in worker["layers"]} == worker["layers"]
