"""How a model is spread over ranks."""

from dataclasses import dataclass
from itertools import accumulate

from blockyard.core.errors import InvalidRequest

MAX_RANKS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Ranks in the order pipeline stage, then tensor shard: rank = stage * tensor + shard.

    Attributes:
        tensor: Ranks that share every layer, at least 1.
        pipeline: Stages that share the layers out, at least 1.
        decode_context: Ranks that share the token positions of a request, at least 1.
        prefill_context: Ranks that share the tokens of a prefill; of no effect on what is kept.
        num_hidden_layers: Layers of the model; None where it does not matter.
        pipeline_partition: Layers of each stage; None for an even one.
    """

    tensor: int = 1
    pipeline: int = 1
    decode_context: int = 1
    prefill_context: int = 1
    num_hidden_layers: int | None = None
    pipeline_partition: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse counts below 1, and a partition that does not fit the stages.

        Raises:
            InvalidRequest: Names the field at fault.
        """
        for name in ("tensor", "pipeline", "decode_context", "prefill_context"):
            if getattr(self, name) < 1:
                raise InvalidRequest.of(f"parallel.{name}", "must be at least 1")
        if self.num_ranks > MAX_RANKS:
            raise InvalidRequest.of("parallel", f"tensor times pipeline may be {MAX_RANKS} ranks at most")
        if self.pipeline_partition is None:
            return
        if len(self.pipeline_partition) != self.pipeline:
            raise InvalidRequest.of("parallel.pipeline_partition", f"give one count a stage, {self.pipeline}")
        if self.num_hidden_layers is not None and sum(self.pipeline_partition) != self.num_hidden_layers:
            raise InvalidRequest.of(
                "parallel.pipeline_partition", f"must add up to the layers, {self.num_hidden_layers}"
            )

    @property
    def num_ranks(self) -> int:
        """Ranks in all."""
        return self.tensor * self.pipeline

    def stages(self, num_hidden_layers: int) -> list[range]:
        """The layers of each stage, by number.

        Layers left over from an even partition go to the last stages but one, which have neither the
        embedding nor the head: 45 layers over 4 stages are 11, 11, 12, 11.

        Source: vLLM's ``get_pp_indices``.

        Raises:
            InvalidRequest: The partition given does not add up to the layers.
        """
        counts = list(self.pipeline_partition or ())
        if not counts:
            even, left = divmod(num_hidden_layers, self.pipeline)
            counts = [even] * self.pipeline
            for stage in range(2, left + 2):
                counts[-stage] += 1
        if sum(counts) != num_hidden_layers:
            raise InvalidRequest.of(
                "parallel.pipeline_partition", f"must add up to the layers, {num_hidden_layers}"
            )
        ends = list(accumulate(counts))
        return [range(end - count, end) for end, count in zip(ends, counts, strict=True)]
