"""All workloads of the laboratory: those that are made, and the recorded trace where it is there."""

import os
from dataclasses import dataclass
from pathlib import Path

from benchmarks.laboratory.adverse import bursts, loop, one_shot, recency
from benchmarks.laboratory.conversations import agents, chat
from benchmarks.laboratory.mixtures import synthetic_mix, tool_agents
from benchmarks.laboratory.shared_texts import retrieval, scans, system_prompts
from benchmarks.laboratory.shifting import shifting
from benchmarks.laboratory.workload import Kind, Workload
from blockyard.server.commands.replay.trace import TraceFile

TRACE_BLOCK_SIZE = 512

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeSource:
    """A workload that is made.

    Attributes:
        kind: A name in `KINDS`.
        seed: Another seed gives another workload.
        num_requests: None for as many as are worth a look.
    """

    kind: str
    seed: int = 0
    num_requests: int | None = None

    @property
    def name(self) -> str:
        """That of its kind."""
        return self.kind

    def workload(self) -> Workload:
        """It."""
        return KINDS[self.kind].make(self.seed, self.num_requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSource:
    """A workload that was recorded.

    Attributes:
        path: The trace.
        block_size: Tokens that one of its hash ids stands for, and a block holds.
        num_requests: Of the first ones; None for all.
    """

    path: Path
    block_size: int = TRACE_BLOCK_SIZE
    num_requests: int | None = None

    @property
    def name(self) -> str:
        """That of the file, less what is the same in all."""
        return self.path.stem.removesuffix("_trace")

    def workload(self) -> Workload:
        """It.

        Raises:
            TraceError: The file cannot be read.
        """
        trace = TraceFile(path=self.path, id_block_size=self.block_size, block_size=self.block_size)
        return Workload(
            name=self.name, block_size=self.block_size, requests=list(trace.read(self.num_requests))
        )


Source = MadeSource | TraceSource


def recorded_trace() -> Path | None:
    """The recorded trace: that which BLOCKYARD_TRACE names, or the one beside the checkout; None without."""
    beside = Path(__file__).parents[4] / "shared" / "traces" / "conversation_trace.jsonl"
    path = Path(os.environ.get("BLOCKYARD_TRACE", beside))
    return path if path.is_file() else None
