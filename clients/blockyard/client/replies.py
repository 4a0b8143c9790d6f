"""Reading the replies that need more than their class: the two hot ones, and the list of pools.

pydantic checks a field annotated ``Sequence`` in Python, item by item, and a ``list`` in native code. A step
of 256 sequences carries over 500 of them: its columns are read through a shape of lists, many times as fast.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from blockyard.client.call import validated
from blockyard.client.reports import PoolDescription, PoolList
from blockyard.client.wire import Response
from blockyard.core.ids import BlockId, SequenceHandle
from blockyard.core.replies import Admitted, Allocated, Refused, StepExtended, Stepped


@dataclass(slots=True, kw_only=True)
class _AdmittedShape:
    sequence: SequenceHandle
    num_cached_tokens: int | None = None
    num_new_tokens: int
    block_ids: list[list[BlockId]]


@dataclass(slots=True, kw_only=True)
class _AllocatedShape(_AdmittedShape):
    epoch: int
    copies: list[tuple[BlockId, BlockId]]
    num_free_blocks: int


@dataclass(slots=True, kw_only=True)
class _ExtendedShape:
    sequences: list[SequenceHandle]
    block_ids: list[list[list[BlockId]]]
    insufficient: list[SequenceHandle]


@dataclass(slots=True, kw_only=True)
class _SteppedShape:
    epoch: int
    step_id: int | None = None
    extend: _ExtendedShape
    copies: list[tuple[BlockId, BlockId]]
    admit: list[_AdmittedShape | Refused]
    num_free_blocks: int


_ALLOCATED = TypeAdapter(_AllocatedShape)
_STEPPED = TypeAdapter(_SteppedShape)
_POOL_LIST = TypeAdapter(PoolList)


def read_allocated(response: Response) -> Allocated:
    """The reply to ``allocate``."""
    shape = validated(_ALLOCATED, response)
    return Allocated(
        epoch=shape.epoch,
        sequence=shape.sequence,
        num_cached_tokens=shape.num_cached_tokens,
        num_new_tokens=shape.num_new_tokens,
        block_ids=shape.block_ids,
        copies=shape.copies,
        num_free_blocks=shape.num_free_blocks,
    )


def read_stepped(response: Response) -> Stepped:
    """The reply to ``step``."""
    shape = validated(_STEPPED, response)
    extend = shape.extend
    return Stepped(
        epoch=shape.epoch,
        step_id=shape.step_id,
        extend=StepExtended(
            sequences=extend.sequences, block_ids=extend.block_ids, insufficient=extend.insufficient
        ),
        copies=shape.copies,
        admit=[_admitted(item) for item in shape.admit],
        num_free_blocks=shape.num_free_blocks,
    )


def read_descriptions(response: Response) -> Sequence[PoolDescription]:
    """The reply to ``GET /v1/pools``."""
    return validated(_POOL_LIST, response).pools


def _admitted(item: _AdmittedShape | Refused) -> Admitted | Refused:
    if isinstance(item, Refused):
        return item
    return Admitted(
        sequence=item.sequence,
        num_cached_tokens=item.num_cached_tokens,
        num_new_tokens=item.num_new_tokens,
        block_ids=item.block_ids,
    )
