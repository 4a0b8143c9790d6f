"""Pools of small plans for real workers, and waiting for what they do in the background."""

from functools import partial
from pathlib import Path
from typing import Any

from waiting import wait_for

CLIENTS = Path(__file__).parents[2] / "clients"
"""Where the examples are found: they are not installed."""

LAYER = {"kind": "full_attention", "block_size": 4, "num_kv_heads": 2, "head_size": 8, "dtype": "float16"}


def plan(num_ranks: int = 1, **options: Any) -> dict[str, Any]:
    """A request of a plan with two layers a rank."""
    rank = {"available_memory_bytes": 2**16, "layers": {"0": LAYER, "1": LAYER}}
    return {"workers": [rank] * num_ranks, "max_model_len": 64, **options}


wait_until = partial(wait_for, timeout_s=20)
