"""The planner: from a model's layers and a memory size to blocks, groups of layers, and tensors.

    config = json.loads(Path("config.json").read_text())
    parallel = Parallel(tensor=4)
    model = layers_of_model(config, parallel=parallel)
    ranks = [Rank(available_bytes=60 * 2**30, layers=layers) for layers in model.ranks]
    made = plan(PlanRequest(ranks=ranks, max_model_len=32_768, parallel=parallel))
    made.num_blocks, made.ranks[0].tensors

Pure: no torch, environment, clock or I/O.
"""

from blockyard.planning.models import ModelLayers, layers_of_model
from blockyard.planning.parallel import Parallel
from blockyard.planning.planner import Plan, plan
from blockyard.planning.request import PlanRequest, Rank

__all__ = ["ModelLayers", "Parallel", "Plan", "PlanRequest", "Rank", "layers_of_model", "plan"]
