"""Recurrent layers (Mamba, gated delta nets and other linear attention): a page is a state, not tokens."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from blockyard.core.arithmetic import div_ceil
from blockyard.core.errors import InvalidRequest
from blockyard.planning.dtypes import DTYPE_BYTES
from blockyard.planning.layers.base import Layer, Workload

MAMBA_CACHE_MODES = ("none", "align", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba(Layer):
    """One recurrent state a block.

    Attributes:
        shapes: Of the tensors that a state is made of, such as the convolution's and the recurrence's.
        dtypes: Their element types, one a shape.
        mamba_cache_mode: ``none`` keeps the running state alone, ``align`` also one at the last block's end,
            ``all`` one at the end of every block.
        num_speculative_blocks: Further states, for tokens that are not yet accepted.
    """

    kind: ClassVar[str] = "mamba"

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    mamba_cache_mode: str = field(default="none", metadata={"choices": MAMBA_CACHE_MODES})
    num_speculative_blocks: int = field(default=0, metadata={"min": 0})

    def __post_init__(self) -> None:
        """Refuse shapes and types that do not fit each other.

        Raises:
            InvalidRequest: Names the field at fault.
        """
        if not self.shapes or any(size < 1 for shape in self.shapes for size in shape):
            raise InvalidRequest.of("shapes", "give at least one, of sizes that are at least 1")
        if len(self.dtypes) != len(self.shapes):
            raise InvalidRequest.of("dtypes", f"give one a shape, {len(self.shapes)} in all")
        for dtype in self.dtypes:
            if dtype not in DTYPE_BYTES:
                raise InvalidRequest.of("dtypes", f"{dtype!r} is none of {', '.join(DTYPE_BYTES)}")
        Layer.__post_init__(self)

    @property
    def num_heads(self) -> int:
        """One: a state is kept whole."""
        return 1

    @property
    def num_states(self) -> int:
        """One a page."""
        return 1

    @property
    def state_bytes(self) -> int:
        """See `Layer.state_bytes`."""
        return sum(
            math.prod(shape) * DTYPE_BYTES[dtype]
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        )

    def max_blocks(self, workload: Workload) -> int:
        """States that a request keeps at a time."""
        match workload.mamba_cache_mode:
            case "all":
                num_states = div_ceil(workload.max_model_len, self.block_size)
            case "align":
                num_states = 2
            case _:
                num_states = 1
        return num_states + self.num_speculative_blocks

    def _needs_same_slots(self, other: Layer) -> bool:
        return (
            isinstance(other, Mamba)
            and other.num_speculative_blocks == self.num_speculative_blocks
            and other.page_bytes == self.page_bytes
        )

    def can_pad_page(self) -> bool:
        """See `Layer.can_pad_page`."""
        return True

    def grows_with_block(self) -> bool:
        """See `Layer.grows_with_block`: a state's size does not depend on the tokens before it."""
        return False
