"""What a worker's operations on blocks cost, beside plain torch on as many bytes in the same run.

python tests/benchmarks/bench_worker.py [--layers N] [--num-blocks N] [--rounds N] [--json]

A layer has 8 KV heads of 128 elements in bfloat16 and blocks of 16 tokens: 64 KiB a block. An eighth of the
blocks are copied or zeroed: ``runs`` follow each other, ``scattered`` are drawn. Plain torch does ``copy_``
and ``zero_`` on dense tensors of the same memory. Both are measured in turns, and each figure is the median;
a ratio of 1 is plain torch's speed. Slots are those of 256 sequences, beside a copy of as many int64.
"""

import argparse
import platform
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from blockyard.planning.layers import FullAttention
from blockyard.planning.layouts import Layout
from blockyard.planning.memory_map import memory_map
from blockyard.planning.planner import plan
from blockyard.planning.request import PlanRequest, Rank
from blockyard.worker import BlockMemory, slot_mapping

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.report.as_json import add_json_option, tell_as_json

LAYER = FullAttention(block_size=16, num_kv_heads=8, head_size=128, dtype="bfloat16")
NUM_SEQUENCES, MAX_MODEL_LEN = 256, 32_768


def make_memory(layout: Layout, num_layers: int, num_blocks: int, device: str) -> BlockMemory:
    """A memory whose every byte has been written."""
    layers = {f"model.layers.{number}.self_attn": LAYER for number in range(num_layers)}
    rank = Rank(available_bytes=2**60, layers=layers)
    request = PlanRequest(ranks=[rank], max_model_len=16, layout=layout, num_blocks_override=num_blocks)
    memory = BlockMemory(memory_map(plan(request), 0), device=device)
    memory.backing.fill_(1)
    return memory


def seconds_of(device: str, *calls: Callable[[], object], rounds: int) -> list[float]:
    """The median of each of ``calls``, which take turns."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds + 1):
        for call, taken in zip(calls, seconds, strict=True):
            wait_for(device)
            start = perf_counter()
            call()
            wait_for(device)
            taken.append(perf_counter() - start)
    # The first round is to warm up.
    return [median(taken[1:]) for taken in seconds]


def wait_for(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def measure_blocks(layout: Layout, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Copying and zeroing, of runs and of scattered blocks."""
    memory = make_memory(layout, args.layers, args.num_blocks, args.device)
    num_moved = args.num_blocks // 8
    num_bytes = num_moved * args.layers * LAYER.page_bytes
    source, destination = memory.backing[:num_bytes], memory.backing[-num_bytes:]
    in_order = list(range(1, args.num_blocks))
    scattered = random.Random(0).sample(in_order, len(in_order))
    for name, ids in (("runs", in_order), ("scattered", scattered)):
        written, read = ids[:num_moved], ids[-num_moved:]
        copies = list(zip(read, written, strict=True))
        calls: dict[str, list[Callable[[], object]]] = {
            "copy": [partial(memory.copy, copies), partial(destination.copy_, source)],
            "zero": [partial(memory.zero, written), destination.zero_],
        }
        for what, pair in calls.items():
            taken, plainly = seconds_of(args.device, *pair, rounds=args.rounds)
            yield {
                "what": f"{what} {name} {layout}",
                "num_bytes": num_bytes,
                "gb_a_second": round(num_bytes / taken / 1e9, 2),
                "plain_gb_a_second": round(num_bytes / plainly / 1e9, 2),
                "ratio": round(plainly / taken, 3),
            }


def measure_slots(tokens_a_sequence: int, args: argparse.Namespace) -> dict[str, Any]:
    """Slots of so many tokens of each sequence."""
    generator = torch.Generator().manual_seed(0)
    shape = (NUM_SEQUENCES, MAX_MODEL_LEN // LAYER.block_size)
    table = torch.randint(100_000, shape, dtype=torch.int32, generator=generator).to(args.device)
    sequences = torch.arange(NUM_SEQUENCES).repeat_interleave(tokens_a_sequence).to(args.device)
    starts = torch.randint(MAX_MODEL_LEN - tokens_a_sequence, (NUM_SEQUENCES, 1), generator=generator)
    positions = (starts + torch.arange(tokens_a_sequence)).flatten().to(args.device)
    out, plain = torch.empty_like(positions), torch.empty_like(positions)
    taken, plainly = seconds_of(
        args.device,
        lambda: slot_mapping(table, sequences, positions, LAYER.block_size, out),
        lambda: plain.copy_(positions),
        rounds=args.rounds * 20,
    )
    return {
        "what": f"slots of {positions.numel()} tokens",
        "num_bytes": positions.nbytes,
        "microseconds": round(taken * 1e6, 1),
        "plain_microseconds": round(plainly * 1e6, 1),
        "ratio": round(plainly / taken, 3),
    }


def hardware(device: str) -> str:
    """The processor's name, or the device's."""
    if device != "cpu":
        return torch.cuda.get_device_name()
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> int:
    """Print the figures as a table, or as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--num-blocks", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    add_json_option(parser)
    args = parser.parse_args()
    figures = [
        *measure_blocks(Layout.LBNHC, args),
        *measure_blocks(Layout.BLNHC, args),
        measure_slots(1, args),
        measure_slots(32, args),
    ]
    setting = {
        "hardware": hardware(args.device),
        "num_threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "layers": args.layers,
        "num_blocks": args.num_blocks,
    }
    if tell_as_json(args.json, {**setting, "figures": figures}):
        return 0
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in setting.items()))
    for each in figures:
        unit = "GB/s" if "gb_a_second" in each else "us"
        ours = each.get("gb_a_second", each.get("microseconds"))
        plain = each.get("plain_gb_a_second", each.get("plain_microseconds"))
        print(f"{each['what']:<24}{ours:>9,} {unit:<5} plain {plain:>9,} {unit:<5} ratio {each['ratio']:>7}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
