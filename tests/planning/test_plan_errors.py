"""The refusals of plans, as a tree of codes."""

import pytest

from blockyard.planning.errors import PLAN_ERRORS, PlanError


def test_every_refusal_is_listed_once() -> None:
    assert set(PLAN_ERRORS) == set(PlanError.__subclasses__())
    assert len({error.code for error in PLAN_ERRORS}) == len(PLAN_ERRORS)


def test_the_codes_are_those_that_clients_know() -> None:
    assert {error.code for error in PLAN_ERRORS} == {
        "no_memory",
        "insufficient_memory",
        "conflicting_layer_specs",
        "incompatible_page_sizes",
        "cannot_unify_hybrid",
        "layout_cannot_express",
        "invalid_prefix_match_unit",
        "state_page_too_large",
        "pipeline_stage_without_mla",
        "host_pool_too_small",
        "device_buffer_too_small",
        "unsupported_model",
    }


@pytest.mark.parametrize("error", PLAN_ERRORS, ids=lambda error: error.code)
def test_a_refusal_has_a_title_and_tells_its_figures(error: type[PlanError]) -> None:
    assert error.title
    assert "Figures:" in (error.__doc__ or "")
