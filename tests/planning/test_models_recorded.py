"""The layers of published models beside those that engines were recorded with."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from blockyard.planning.layers import LAYER_KINDS, Layer
from blockyard.planning.models import layers_of_model
from blockyard.planning.parallel import Parallel

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SHARED = Path(os.environ.get("BLOCKYARD_SHARED", ROOT.parent / "shared"))
CASES = next(
    (
        path
        for path in (HERE / "data" / "planning.json", SHARED / "conformance" / "planning.json")
        if path.exists()
    ),
    None,
)

# The recorded model of Mamba-2 layers alone is one of 32 layers.
MAMBA_2 = {
    "model_type": "mamba2",
    "num_hidden_layers": 32,
    "hidden_size": 2048,
    "expand": 2,
    "num_heads": 64,
    "head_dim": 64,
    "n_groups": 1,
    "state_size": 128,
    "conv_kernel": 4,
    "torch_dtype": "bfloat16",
}

RECORDED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-3.1-8b": ("llama-3.1-8b", {}),
    "llama-3.1-8b-fp8-kv": ("llama-3.1-8b", {"kv_cache_dtype": "fp8"}),
    "llama-3.1-70b-tp4": ("llama-3.1-70b", {"parallel": Parallel(tensor=4)}),
    "qwen2.5-7b": ("qwen2.5-7b-instruct", {}),
    "mistral-7b-v0.1-swa": ("mistral-7b-v0.1", {}),
    "gemma-3-27b": ("gemma-3-27b-it", {}),
    "gemma-2-9b": ("gemma-2-9b-it", {}),
    "gpt-oss-20b": ("gpt-oss-20b", {}),
    "llama-4-scout-unified": ("llama-4-scout", {}),
    "deepseek-v3-mla": ("deepseek-v3", {"block_size": 64, "parallel": Parallel(tensor=8)}),
    "deepseek-v3.2-indexer": ("deepseek-v3.2", {"block_size": 64, "kv_cache_dtype": "fp8"}),
    "qwen3-next-80b-gdn": ("qwen3-next-80b-a3b", {}),
    "qwen3-next-80b-gdn-align": ("qwen3-next-80b-a3b", {"mamba_cache_mode": "align"}),
    "mamba2-only": ("", {"block_size": 4096}),
    "pp2-llama": ("llama-3.1-8b", {"parallel": Parallel(pipeline=2)}),
}

ROLES = {"cache_role", "is_index_group_leader"}
"""The recorded requests leave these out; they do not change what is stored."""


def stored(layer: Layer) -> dict[str, Any]:
    """All that ``layer`` says of its cache, but for its role and the ranks that keep copies."""
    names = set(type(layer).__dataclass_fields__) - ROLES - {"max_tp_shards"}
    return {"kind": layer.kind, **{name: getattr(layer, name) for name in sorted(names)}}


def layer_of(request: dict[str, Any]) -> Layer:
    fields = dict(request)
    kind = LAYER_KINDS[fields.pop("kind")]
    for name in ("shapes", "dtypes"):
        if name in fields:
            fields[name] = tuple(tuple(item) if isinstance(item, list) else item for item in fields[name])
    return kind(**fields)


@pytest.mark.skipif(CASES is None, reason="the recorded plans are not here")
@pytest.mark.parametrize("case", RECORDED)
def test_a_published_model_has_the_recorded_layers(case: str) -> None:
    assert CASES is not None
    name, options = RECORDED[case]
    config = json.loads((HERE / "data" / "models" / f"{name}.json").read_text()) if name else MAMBA_2
    model = layers_of_model(config, **{"parallel": Parallel(), **options})
    recorded = next(found for found in json.loads(CASES.read_text()) if found["name"] == case)
    # Of ranks that keep the same, some requests describe the first alone.
    for layers, worker in zip(model.ranks, recorded["request"]["workers"], strict=False):
        assert list(layers) == list(worker["layers"])
        for layer_name, layer in layers.items():
            assert stored(layer) == stored(layer_of(worker["layers"][layer_name]))
