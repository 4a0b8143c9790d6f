"""All workloads of the laboratory: those that are made, and the recorded trace where it is there."""

import os
from pathlib import Path

from benchmarks.laboratory.adverse import bursts, loop, one_shot, recency
from benchmarks.laboratory.conversations import agents, chat
from benchmarks.laboratory.mixtures import synthetic_mix, tool_agents
from benchmarks.laboratory.shared_texts import retrieval, scans, system_prompts
from benchmarks.laboratory.shifting import shifting
from benchmarks.laboratory.workload import Kind, Workload
from blockyard.server.commands.replay.trace import TraceFile

TRACE_BLOCK_SIZE = 512
RECORDED = "conversation"

KINDS = {
    kind.name: kind
    for kind in (
        Kind(prompts=system_prompts, block_size=64, num_requests=8_000),
        Kind(prompts=chat, block_size=64, num_requests=10_000),
        Kind(prompts=agents, block_size=256, num_requests=9_000),
        Kind(prompts=retrieval, block_size=64, num_requests=6_000),
        Kind(prompts=scans, block_size=64, num_requests=8_000),
        Kind(prompts=shifting, block_size=64, num_requests=10_000),
        Kind(prompts=tool_agents, block_size=TRACE_BLOCK_SIZE, num_requests=23_600),
        Kind(prompts=synthetic_mix, block_size=TRACE_BLOCK_SIZE, num_requests=5_000),
        Kind(prompts=loop, block_size=64, num_requests=6_000),
        Kind(prompts=recency, block_size=64, num_requests=10_000),
        Kind(prompts=bursts, block_size=64, num_requests=8_000),
        Kind(prompts=one_shot, block_size=64, num_requests=6_000),
    )
}


def recorded_trace() -> Path | None:
    """The recorded trace: that which BLOCKYARD_TRACE names, or the one beside the checkout; None without."""
    beside = Path(__file__).parents[4] / "shared" / "traces" / "conversation_trace.jsonl"
    path = Path(os.environ.get("BLOCKYARD_TRACE", beside))
    return path if path.is_file() else None


def read_trace(path: Path, block_size: int = TRACE_BLOCK_SIZE, limit: int | None = None) -> Workload:
    """The requests of a trace whose hash ids stand for ``block_size`` tokens each, at most ``limit``.

    Raises:
        TraceError: It cannot be read.
    """
    trace = TraceFile(path=path, id_block_size=block_size, block_size=block_size)
    return Workload(
        name=path.stem.removesuffix("_trace"), block_size=block_size, requests=list(trace.read(limit))
    )
