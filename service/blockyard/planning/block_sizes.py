"""At which lengths scheduling and hashing step, when groups have blocks of different sizes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from blockyard.core.errors import InvalidRequest
from blockyard.planning.errors import InvalidPrefixMatchUnit
from blockyard.planning.groups import Group
from blockyard.planning.layers import AttentionLayer, Mamba
from blockyard.planning.request import PlanRequest

MAX_TOKENS = 2**48
"""No step is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSizes:
    """Tokens.

    Attributes:
        scheduler: Every group ends a block at multiples of it.
        hash: That a block hash stands for: divides the block sizes of all groups whose blocks can be found;
            the scheduler's step where none can.
    """

    scheduler: int
    hash: int


def block_sizes(groups: Sequence[Group], request: PlanRequest) -> BlockSizes:
    """The least common multiple of the groups' block sizes; their greatest common divisor, or what is asked.

    Raises:
        InvalidRequest: Blocks of all groups end together beyond any sequence's length only.
        InvalidPrefixMatchUnit: Hits cannot end at multiples of the unit that is asked.
    """
    decode_context = request.parallel.decode_context
    sizes = [group.table_block_size(decode_context) for group in groups]
    if len(sizes) <= 1:
        (size,) = sizes or [request.block_size]
        if sizes and request.enable_prefix_caching and request.prefix_match_unit not in (None, size):
            raise _invalid(request, sizes, f"with a single group, hits end at whole blocks of {size}")
        return BlockSizes(scheduler=size, hash=size)
    scheduler = math.lcm(*sizes)
    if scheduler > MAX_TOKENS:
        raise InvalidRequest.of(
            "workers.layers", f"block sizes {sorted(set(sizes))[:8]} end together at no common length of use"
        )
    if not request.enable_prefix_caching or not all(_ends_states_with_blocks(group) for group in groups):
        return BlockSizes(scheduler=scheduler, hash=scheduler)
    hashed = [size for group, size in zip(groups, sizes, strict=True) if group.prefix_cacheable] or sizes
    unit = request.prefix_match_unit or math.gcd(*hashed)
    if any(size % unit for size in hashed):
        raise _invalid(request, sizes, f"the unit of {unit} tokens has to divide the block sizes {hashed}")
    # A state may be kept at any hash boundary where its block is larger; with decode-context ranks also where
    # it is as large, since the blocks of attention then span more tokens.
    ends_inside_blocks = any(
        isinstance(group.form, Mamba) and (size > unit or (size == unit and decode_context > 1))
        for group, size in zip(groups, sizes, strict=True)
    )
    alignment = unit if ends_inside_blocks else scheduler
    if any(alignment % tokens for tokens in _tokens_per_state(groups)):
        raise _invalid(request, sizes, f"hits at multiples of {alignment} tokens would end inside a state")
    return BlockSizes(scheduler=scheduler, hash=unit)


def _ends_states_with_blocks(group: Group) -> bool:
    """Whether a recurrent group keeps the states at the ends of its blocks, so that hits can end there."""
    return not isinstance(group.form, Mamba) or group.form.mamba_cache_mode == "align"


def _tokens_per_state(groups: Sequence[Group]) -> set[int]:
    """Of the attention layers whose blocks can be found."""
    return {
        layer.tokens_per_state
        for group in groups
        for layer in group.layers.values()
        if isinstance(layer, AttentionLayer) and layer.prefix_cacheable
    }


def _invalid(request: PlanRequest, sizes: Sequence[int], why: str) -> InvalidPrefixMatchUnit:
    return InvalidPrefixMatchUnit(
        f"prefix_match_unit: {why}; leave it out for the finest unit that fits",
        {"prefix_match_unit": request.prefix_match_unit, "block_sizes": list(sizes)},
    )
