"""How a model is spread over ranks."""

from typing import Any

import pytest

from blockyard.core.errors import InvalidRequest
from blockyard.planning.parallel import MAX_RANKS, Parallel


def test_layers_left_over_go_to_the_last_stages_but_one() -> None:
    stages = Parallel(pipeline=4).stages(45)
    assert [len(stage) for stage in stages] == [11, 11, 12, 11]
    assert [stage.start for stage in stages] == [0, 11, 22, 34]


def test_a_partition_says_how_many_layers_each_stage_has() -> None:
    assert Parallel(pipeline=2, pipeline_partition=(3, 42)).stages(45) == [range(3), range(3, 45)]


@pytest.mark.parametrize(
    ("counts", "field"),
    [
        ({"tensor": 0}, "parallel.tensor"),
        ({"pipeline": -1}, "parallel.pipeline"),
        ({"decode_context": 0}, "parallel.decode_context"),
        ({"prefill_context": 0}, "parallel.prefill_context"),
        ({"tensor": 2, "pipeline": MAX_RANKS}, "parallel"),
        ({"pipeline": 2, "pipeline_partition": (1, 1, 1)}, "parallel.pipeline_partition"),
        (
            {"pipeline": 2, "pipeline_partition": (1, 1), "num_hidden_layers": 3},
            "parallel.pipeline_partition",
        ),
    ],
)
def test_counts_that_do_not_fit_are_named(counts: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        Parallel(**counts)
    assert refusal.value.figures["errors"][0]["field"] == field


def test_a_partition_that_does_not_add_up_is_refused_with_the_layers() -> None:
    with pytest.raises(InvalidRequest, match="must add up to the layers, 46"):
        Parallel(pipeline=2, pipeline_partition=(3, 42)).stages(46)
