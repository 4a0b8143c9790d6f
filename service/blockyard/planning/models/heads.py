"""An attention layer's heads, and how far back its tokens look."""

from dataclasses import dataclass
from typing import Final

from blockyard.planning.models.fields import ConfigFields

NUM_HEADS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads")
NUM_KV_HEADS: Final = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "n_kv_heads",
    "multi_query_group_num",
    "num_query_groups",
)
HEAD_SIZE: Final = ("head_dim", "kv_channels")
HIDDEN_SIZE: Final = ("hidden_size", "n_embd", "n_embed", "d_model")


@dataclass(frozen=True, slots=True)
class Span:
    """How far back a token looks: to the first token, unless one of the two is given.

    Attributes:
        sliding_window: Tokens, itself included.
        attention_chunk_size: Tokens of the chunk to whose beginning it looks.
    """

    sliding_window: int | None = None
    attention_chunk_size: int | None = None


FULL: Final = Span()


@dataclass(frozen=True, slots=True)
class Heads:
    """Of the whole model, before ranks share them.

    Attributes:
        num_kv_heads: At least 1.
        head_size: Elements of a key, and of a value.
    """

    num_kv_heads: int
    head_size: int

    @classmethod
    def of(cls, fields: ConfigFields, *, grouped: bool = True) -> "Heads":
        """What ``fields`` say of attention heads, under any of the usual names.

        Args:
            fields: Of the model.
            grouped: Whether KV heads have to be stated; else there are as many as attention heads.

        Raises:
            UnsupportedModel: Names a field that is missing.
            InvalidRequest: Names a field that is wrong.
        """
        num_heads = fields.positive(*NUM_HEADS)
        num_kv_heads = _num_kv_heads(fields, num_heads, grouped=grouped)
        head_size = fields.optional(*HEAD_SIZE)
        if head_size is None:
            hidden_size = fields.positive(*HIDDEN_SIZE)
            if hidden_size % num_heads:
                name = next(name for name in HIDDEN_SIZE if fields.has(name))
                raise fields.invalid(name, f"must be a multiple of the attention heads, {num_heads}")
            head_size = hidden_size // num_heads
        return cls(num_kv_heads, head_size)


def _num_kv_heads(fields: ConfigFields, num_heads: int, *, grouped: bool) -> int:
    """KV heads of a layer.

    Falcon and ChatGLM have switches besides: one head unless the newer architecture is on; as many as
    attention heads unless groups are on.
    """
    if fields.flag("multi_query", default=False) and not fields.flag(
        "new_decoder_architecture", default=False
    ):
        return 1
    if not fields.flag("multi_query_attention", default=True):
        return num_heads
    num_kv_heads = fields.optional(*NUM_KV_HEADS)
    if num_kv_heads is None:
        if grouped:
            raise fields.missing(NUM_KV_HEADS[0])
        return num_heads
    if num_heads % num_kv_heads:
        name = next(name for name in NUM_KV_HEADS if fields.has(name))
        raise fields.invalid(name, f"must divide the attention heads, {num_heads}")
    return num_kv_heads
