"""What a run is made of, as plain values that travel to its processes."""

from dataclasses import dataclass
from typing import Any

from examples.two_processes.model_config import MODELS, ModelConfig
from examples.two_processes.workload import MAX_MODEL_LEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One run.

    Attributes:
        model: One of `MODELS`.
        layout: Of the worker's memory.
        device: Where the worker computes.
        num_requests: In each round.
        num_rounds: How often the same requests are sent.
        num_blocks: Of the pool, the null block included.
        max_num_sequences: That run at a time.
        max_num_batched_tokens: That one step computes.
        seed: Of weights and requests.
        kill_worker_at_step: Kill the worker process once this step is done; None for never.
        swap_blocks_at_step: From this step on, have two sequences read each other's first block, once. A
            fault, planted to see that it is noticed.
    """

    model: str = "windows"
    layout: str = "LBNHC"
    device: str = "cpu"
    num_requests: int = 50
    num_rounds: int = 2
    num_blocks: int = 70
    max_num_sequences: int = 8
    max_num_batched_tokens: int = 48
    seed: int = 0
    kill_worker_at_step: int | None = None
    swap_blocks_at_step: int | None = None

    @property
    def model_config(self) -> ModelConfig:
        """The model's sizes."""
        return MODELS[self.model]

    def plan(self) -> dict[str, Any]:
        """A request for the pool's plan."""
        return self.model_config.plan(
            num_blocks=self.num_blocks,
            layout=self.layout,
            max_model_len=MAX_MODEL_LEN,
            max_in_flight_tokens=self.max_num_batched_tokens,
        )
