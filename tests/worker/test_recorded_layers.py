"""The tensors of every recorded plan are seen where they were recorded; no plan is too big for this."""

import pytest
import torch

from blockyard.planning.memory_map import memory_map
from blockyard.worker import BlockMemory
from planning.recorded_plans import PLANS, VIEWS, Case, plan_of_body

REQUESTS = {case["name"]: case["request"] for case in PLANS}


def test_there_are_views_of_45_plans() -> None:
    assert len(VIEWS) == 45


@pytest.mark.parametrize("case", VIEWS, ids=lambda case: case["plan"])
def test_every_layers_bytes_are_seen_where_recorded(case: Case) -> None:
    plan = plan_of_body(REQUESTS[case["plan"]])
    for rank, worker in enumerate(case["workers"]):
        memory = BlockMemory(memory_map(plan, rank), device="meta")
        assert memory.backing.numel() == worker["size_bytes"]
        for name, recorded in worker["layers"].items():
            seen = memory.layers[name].bytes
            assert seen.dtype is torch.uint8
            assert seen.storage_offset() == recorded["offset_bytes"]
            assert list(seen.shape) == recorded["shape"]
            assert list(seen.stride()) == recorded["strides_bytes"]


@pytest.mark.parametrize("case", VIEWS, ids=lambda case: case["plan"])
def test_every_layers_elements_are_its_bytes(case: Case) -> None:
    plan = plan_of_body(REQUESTS[case["plan"]])
    for rank in range(len(case["workers"])):
        for cache in BlockMemory(memory_map(plan, rank), device="meta").layers.values():
            size = cache.dtype.itemsize
            content = cache.content
            assert content.dtype is cache.dtype
            assert content.storage_offset() * size == cache.bytes.storage_offset()
            assert content.shape[:3] == cache.bytes.shape[:3]
            assert content.shape[3] * size == cache.bytes.shape[3]
            assert [stride * size for stride in content.stride()[:3]] == [*cache.bytes.stride()[:3]]
