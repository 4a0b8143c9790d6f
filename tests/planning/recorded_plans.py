"""The recorded requests for plans, and what was answered."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from blockyard.planning.planner import Plan, plan
from blockyard.server.plan_schemas import PlanBody

DATA = Path(__file__).parents[1] / "data"

Case: TypeAlias = dict[str, Any]

PLANS: list[Case] = json.loads((DATA / "planning.json").read_text())
"""Each has a ``request``, and ``expected`` of its reply or an ``error``."""

VIEWS: list[Case] = json.loads((DATA / "views.json").read_text())
"""For a recorded ``plan``, the view of each layer on each of the ``workers``."""


def plan_of_body(body: Case) -> Plan:
    """The plan for a request as it comes over the wire."""
    return plan(PlanBody.model_validate_json(json.dumps(body)).request())


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values in a document by their paths; a list's length is one of them."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}/{key}")
    elif isinstance(value, list):
        yield f"{path}/length", len(value)
        for number, item in enumerate(value):
            yield from leaves(item, f"{path}/{number}")
    else:
        yield path, value
