"""How long a plan takes: alone, and from a request's JSON to the reply's.

python tests/benchmarks/bench_planning.py [--rounds N] [--layers N] [--profile MODEL] [--json]

Models: 61 sparse MLA layers, without indexers and with, as in DeepSeek-V3.2; others have ``--layers`` layers.
Each figure is the median of several rounds, taken in turns. ``--profile`` shows where the time of one goes.
"""

import argparse
import cProfile
import json
import os
import platform
import pstats
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pydantic

from blockyard.planning.planner import plan
from blockyard.server.plan_reply import plan_reply
from blockyard.server.plan_schemas import PlanBody

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.report.as_json import add_json_option, tell_as_json

GIB = 2**30
MAX_MODEL_LEN = 131_072

LATENT = {"kind": "mla_attention", "block_size": 64, "num_kv_heads": 1, "max_tp_shards": 1}
MLA = {**LATENT, "head_size": 576, "dtype": "bfloat16"}
INDEXER = {**LATENT, "head_size": 132, "dtype": "uint8", "cache_role": "indexer"}
POOLED = {**INDEXER, "tokens_per_state": 4}
FULL = {"kind": "full_attention", "block_size": 16, "num_kv_heads": 1, "head_size": 128, "dtype": "bfloat16"}
WINDOW = {**FULL, "kind": "sliding_window", "sliding_window": 1024}
STATE = {"kind": "mamba", "block_size": 64, "shapes": [[4096]], "dtypes": ["float32"]}

Body = dict[str, Any]


def on_ranks(num_ranks: int, layers: Body, **options: Any) -> Body:
    worker = {"available_memory_bytes": 4096 * GIB, "layers": layers}
    return {
        "workers": [worker] * num_ranks,
        "max_model_len": MAX_MODEL_LEN,
        "parallel": {"tensor": num_ranks},
        **options,
    }


def named(forms: list[Body], num_layers: int) -> Body:
    """Layers like ``forms``, one after another, over and over."""
    return {f"model.layers.{place}.attn": forms[place % len(forms)] for place in range(num_layers)}


def models(num_layers: int) -> dict[str, tuple[Body, dict[str, Any]]]:
    """Layers and options of each model."""
    with_indexers = named([MLA], 61) | {f"model.layers.{place}.indexer": INDEXER for place in range(61)}
    wide = {**FULL, "head_size": 192}
    return {
        "61 MLA": (named([MLA], 61), {}),
        "61 MLA, 61 indexers": (with_indexers, {}),
        f"{num_layers} uniform": (named([FULL], num_layers), {}),
        f"{num_layers} hybrid 5:1": (named([WINDOW] * 5 + [FULL], num_layers), {}),
        f"{num_layers} packed": (named([WINDOW] * 3 + [wide, FULL], num_layers), {"layout": "BLHNC"}),
        f"{num_layers} sharing slots": (named([MLA, POOLED, STATE, STATE], num_layers), {}),
    }


def cases(num_layers: int) -> dict[tuple[str, int], bytes]:
    """Requests as JSON, by model and number of ranks."""
    return {
        (name, num_ranks): json.dumps(on_ranks(num_ranks, layers, **options)).encode()
        for name, (layers, options) in models(num_layers).items()
        for num_ranks in ((8,) if name.startswith("61 ") else (1, 8))
    }


def milliseconds(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return (perf_counter() - start) * 1e3


def answer(body: bytes) -> str:
    """All that a server does with a request, but for HTTP."""
    return plan_reply(plan(PlanBody.model_validate_json(body).request())).model_dump_json()


def measure(bodies: dict[tuple[str, int], bytes], num_rounds: int) -> list[dict[str, Any]]:
    """A row for each request."""
    requests = {case: PlanBody.model_validate_json(body).request() for case, body in bodies.items()}
    times: dict[tuple[str, int], list[tuple[float, float]]] = {case: [] for case in bodies}
    for number in range(num_rounds):
        if sys.stderr.isatty():
            print(f"\rround {number + 1} of {num_rounds}", end="", file=sys.stderr, flush=True)
        for case, body in bodies.items():
            alone = milliseconds(lambda case=case: plan(requests[case]))  # type: ignore[misc]
            times[case].append((alone, milliseconds(lambda body=body: answer(body))))  # type: ignore[misc]
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    return [
        {
            "model": name,
            "num_ranks": num_ranks,
            "num_groups": len(plan(requests[name, num_ranks]).grouping.groups),
            "plan_ms": round(median(alone for alone, _ in times[name, num_ranks]), 2),
            "json_to_json_ms": round(median(whole for _, whole in times[name, num_ranks]), 2),
            "request_bytes": len(bodies[name, num_ranks]),
        }
        for name, num_ranks in bodies
    ]


def show_profile(body: bytes) -> None:
    """The twenty functions that take most of a plan's time."""
    request = PlanBody.model_validate_json(body).request()
    profile = cProfile.Profile()
    profile.runcall(plan, request)
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(20)


def machine() -> dict[str, Any]:
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "python": platform.python_version(),
        "pydantic": pydantic.VERSION,
    }


def main() -> int:
    """Print the figures as a table, or as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--layers", type=int, default=1_000, help="of the larger models")
    parser.add_argument("--profile", metavar="MODEL", help="a model's name as in the table, on most ranks")
    add_json_option(parser)
    args = parser.parse_args()
    bodies = cases(args.layers)
    if args.profile:
        show_profile(next(body for (name, _), body in reversed(bodies.items()) if name == args.profile))
        return 0
    rows = measure(bodies, args.rounds)
    if tell_as_json(args.json, {**machine(), "rounds": args.rounds, "rows": rows}):
        return 0
    print(f"{', '.join(f'{name} {value}' for name, value in machine().items())}; median of {args.rounds}")
    print(f"{'model':<22}{'ranks':>6}{'groups':>8}{'plan ms':>10}{'JSON to JSON ms':>17}{'request KB':>12}")
    for row in rows:
        print(
            f"{row['model']:<22}{row['num_ranks']:>6}{row['num_groups']:>8}{row['plan_ms']:>10.2f}"
            f"{row['json_to_json_ms']:>17.2f}{row['request_bytes'] / 1000:>12.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
