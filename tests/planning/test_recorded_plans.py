"""The recorded plans, value by value, from the body of a request to that of its reply."""

import pytest

from blockyard.planning.errors import PlanError
from blockyard.server.plan_reply import plan_reply
from planning.recorded_plans import PLANS, Case, leaves, plan_of_body

PLANNED = [case for case in PLANS if "expected" in case]
REFUSED = [case for case in PLANS if "error" in case]


def test_every_recorded_case_is_planned_or_refused() -> None:
    assert len(PLANNED) + len(REFUSED) == len(PLANS) == 153


@pytest.mark.parametrize("case", PLANNED, ids=lambda case: case["name"])
def test_a_plan_has_every_value_recorded(case: Case) -> None:
    got = dict(leaves(plan_reply(plan_of_body(case["request"])).model_dump(mode="json")))
    want = dict(leaves(case["expected"]))
    assert {path: got.get(path) for path in want} == want


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
def test_a_refusal_has_the_code_and_figures_recorded(case: Case) -> None:
    with pytest.raises(PlanError) as refusal:
        plan_of_body(case["request"])
    assert case["error"].items() <= {"code": refusal.value.code, **refusal.value.figures}.items()
