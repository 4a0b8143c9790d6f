"""How quantised keys and values are stored: bytes of one vector with the scales that belong to it.

Source: the packed page widths of vLLM's attention backends (``vllm/v1/kv_cache_interface.py``,
``KVQuantMode``), written down as formulas.
"""

from enum import StrEnum

_SCALE_BYTES = 4
"""A scale a token and head, float32."""


class KvQuantMode(StrEnum):
    """A layer's quantisation."""

    NONE = "none"
    """Elements as they are."""
    FP8_PER_TENSOR = "fp8_per_tensor"
    """One scale a tensor, kept elsewhere."""
    FP8_PER_TOKEN_HEAD = "fp8_per_token_head"  # noqa: S105  # nosec B105  # no password
    """A byte an element, and a float32 scale a vector."""
    INT8_PER_TOKEN_HEAD = "int8_per_token_head"  # noqa: S105  # nosec B105  # no password
    """A byte an element, and a float32 scale a vector."""
    INT4_PER_TOKEN_HEAD = "int4_per_token_head"  # noqa: S105  # nosec B105  # no password
    """Half a byte an element, and a float32 scale a vector."""
    NVFP4 = "nvfp4"
    """Half a byte an element, and a byte of scale for every 16 of them."""

    @property
    def element_multiple(self) -> int:
        """A vector's elements come in multiples of so many."""
        return {KvQuantMode.INT4_PER_TOKEN_HEAD: 2, KvQuantMode.NVFP4: 16}.get(self, 1)

    def vector_bytes(self, num_elements: int, dtype_bytes: int) -> int:
        """Bytes of one key or value of ``num_elements``; a layer without values has vectors of 0.

        Args:
            num_elements: At least 0.
            dtype_bytes: Of one element as it is stored, where it is not packed.
        """
        if num_elements == 0:
            return 0
        match self:
            case KvQuantMode.FP8_PER_TOKEN_HEAD | KvQuantMode.INT8_PER_TOKEN_HEAD:
                return num_elements + _SCALE_BYTES
            case KvQuantMode.INT4_PER_TOKEN_HEAD:
                return num_elements // 2 + _SCALE_BYTES
            case KvQuantMode.NVFP4:
                return num_elements // 2 + num_elements // 16
            case _:
                return num_elements * dtype_bytes
