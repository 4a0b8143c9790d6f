"""What ``kv_cache_dtype`` means for a layer: element type and quantisation."""

from dataclasses import dataclass
from typing import Final

from blockyard.core.errors import InvalidRequest
from blockyard.planning.layers import KvQuantMode

_E4M3: Final = "float8_e4m3fn"

_ELEMENTS: Final = {
    "bfloat16": ("bfloat16", KvQuantMode.NONE),
    "float16": ("float16", KvQuantMode.NONE),
    "float32": ("float32", KvQuantMode.NONE),
    "fp8": (_E4M3, KvQuantMode.NONE),
    "fp8_e4m3": (_E4M3, KvQuantMode.NONE),
    "fp8_e5m2": ("float8_e5m2", KvQuantMode.NONE),
    "fp8_ds_mla": ("uint8", KvQuantMode.NONE),
    "nvfp4": ("uint8", KvQuantMode.NVFP4),
    "fp8_per_token_head": ("uint8", KvQuantMode.FP8_PER_TOKEN_HEAD),
    "int8_per_token_head": ("uint8", KvQuantMode.INT8_PER_TOKEN_HEAD),
    "int4_per_token_head": ("uint8", KvQuantMode.INT4_PER_TOKEN_HEAD),
}

KV_CACHE_DTYPES: Final = ("auto", *_ELEMENTS)
"""``auto`` is the model's own type; the others are engines' names."""

PACKED_LATENT: Final = "fp8_ds_mla"
"""The format of latent vectors for sparse attention: 656 bytes for 512 elements and 64 rotary ones."""


@dataclass(frozen=True, slots=True)
class KvStorage:
    """How keys and values are stored.

    Attributes:
        name: One of `KV_CACHE_DTYPES`, but for ``auto``.
        dtype: Element type.
        kv_quant_mode: Quantisation.
    """

    name: str
    dtype: str
    kv_quant_mode: KvQuantMode

    @classmethod
    def of(cls, kv_cache_dtype: str, model_dtype: str) -> "KvStorage":
        """What ``kv_cache_dtype`` means for a model that computes in ``model_dtype``.

        Raises:
            InvalidRequest: There is no such type.
        """
        name = model_dtype if kv_cache_dtype == "auto" else kv_cache_dtype
        if name not in _ELEMENTS:
            raise InvalidRequest.of("kv_cache_dtype", f"must be one of {', '.join(KV_CACHE_DTYPES)}")
        return cls(name, *_ELEMENTS[name])

    def check_vectors(self, head_size: int) -> None:
        """Refuse keys and values that cannot be stored so.

        Raises:
            InvalidRequest: Names ``kv_cache_dtype``.
        """
        if self.name == PACKED_LATENT:
            raise InvalidRequest.of(
                "kv_cache_dtype", f"{self.name} stores latent vectors, not keys and values"
            )
        multiple = self.kv_quant_mode.element_multiple
        if head_size % multiple:
            raise InvalidRequest.of(
                "kv_cache_dtype",
                f"{self.name} packs multiples of {multiple}, and a head has {head_size} elements",
            )

    def latent_format(self, rank: int, rotary: int, *, sparse: bool) -> str | None:
        """The engine's name of the format that latent vectors are packed in; None where they are not.

        Sparse attention reads 8-bit latents in one format only, whatever variant was asked for.
        Source: vLLM's ``DeepseekV32ForCausalLM`` configuration.

        Args:
            rank: Elements of the latent vector.
            rotary: Rotary elements beside it.
            sparse: Whether an indexer chooses what is read.

        Raises:
            InvalidRequest: Latent vectors, or these, cannot be stored so.
        """
        if self.kv_quant_mode is not KvQuantMode.NONE:
            raise InvalidRequest.of(
                "kv_cache_dtype", f"{self.name} stores keys and values, not latent vectors"
            )
        if not (self.name == PACKED_LATENT or (sparse and self.name.startswith("fp8"))):
            return None
        if (rank, rotary) != (512, 64):
            raise InvalidRequest.of(
                "kv_cache_dtype",
                f"{PACKED_LATENT} packs 512 elements and 64 rotary ones, not {rank} and {rotary}",
            )
        return PACKED_LATENT
