"""Where each layer of the recorded plans is seen in memory: offsets, shapes and strides."""

import pytest

from blockyard.planning.layouts import Layout
from blockyard.planning.placement import view
from blockyard.planning.planner import Plan
from planning.make_layers import groups_of, tensor_of, tensors_of
from planning.recorded_plans import PLANS, VIEWS, Case, plan_of_body

REQUESTS = {case["name"]: case["request"] for case in PLANS}


def views_of(plan: Plan, rank: int) -> Case:
    """The layers' views in the recorded form."""
    # Slots that several kinds share are dense regions, whatever the layout.
    layout = Layout.LBNHC if plan.ranks[rank].placement.shares_slots else plan.request.layout
    views = {}
    for group in groups_of(plan, rank):
        for name, layer in group.layers.items():
            seen = view(tensor_of(plan, name, rank), name, layer, layout, plan.num_blocks)
            views[name] = {
                "offset_bytes": seen.offset,
                "shape": list(seen.shape),
                "strides_bytes": list(seen.strides),
            }
    return views


@pytest.mark.parametrize("case", VIEWS, ids=lambda case: case["plan"])
def test_every_layer_is_seen_where_recorded(case: Case) -> None:
    plan = plan_of_body(REQUESTS[case["plan"]])
    assert len(plan.ranks) == len(case["workers"])
    for rank, worker in enumerate(case["workers"]):
        assert plan.num_blocks == worker["num_blocks"]
        assert {tensor.size for tensor in tensors_of(plan, rank)} <= {worker["size_bytes"]}
        views = views_of(plan, rank)
        # Of models with many layers, some are recorded.
        assert {name: views[name] for name in worker["layers"]} == worker["layers"]
