"""Fields that describe recurrent layers, under the names that families give them."""

from dataclasses import dataclass
from typing import Final

from blockyard.planning.models.fields import ConfigFields
from blockyard.planning.models.states import Mamba2Sizes
from blockyard.planning.models.text_part import model_dtype

STATE_DTYPE: Final = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")


def state_dtype(fields: ConfigFields) -> str | None:
    """The stated element type of what a recurrence carries on; None if none is stated."""
    return model_dtype(fields, *STATE_DTYPE)


def conv_kernel(fields: ConfigFields, name: str) -> int:
    """Inputs that the convolution reads, at least 2.

    Raises:
        InvalidRequest: One alone: then there is no state.
    """
    kernel = fields.positive(name)
    if kernel < 2:
        raise fields.invalid(name, "must be at least 2: a convolution of one input keeps no state")
    return kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2Names:
    """What a family calls the sizes of Mamba-2 layers, by what they are; see `Mamba2Sizes`."""

    num_heads: str
    head_size: str
    num_groups: str
    state_size: str
    conv_kernel: str


PURE: Final = Mamba2Names(
    num_heads="num_heads",
    head_size="head_dim",
    num_groups="n_groups",
    state_size="state_size",
    conv_kernel="conv_kernel",
)
"""In models of such layers alone."""

HYBRID: Final = Mamba2Names(
    num_heads="mamba_n_heads",
    head_size="mamba_d_head",
    num_groups="mamba_n_groups",
    state_size="mamba_d_state",
    conv_kernel="mamba_d_conv",
)
"""In models with attention besides."""


def mamba2_sizes(fields: ConfigFields, names: Mamba2Names, num_channels: int) -> Mamba2Sizes:
    """Heads of ``num_channels`` in all; a head's size may be ``auto``.

    Raises:
        InvalidRequest: The heads do not make up the channels.
    """
    num_heads = fields.positive(names.num_heads)
    auto = fields.values.get(names.head_size) == "auto"
    head_size = num_channels // num_heads if auto else fields.positive(names.head_size)
    if num_heads * head_size != num_channels:
        raise fields.invalid(names.num_heads, f"heads must make up the layer's {num_channels} channels")
    return Mamba2Sizes(
        num_heads=num_heads,
        head_size=head_size,
        num_groups=fields.positive(names.num_groups),
        state_size=fields.positive(names.state_size),
        conv_kernel=conv_kernel(fields, names.conv_kernel),
        dtype=state_dtype(fields),
    )
