"""Where in a rank's memory each layer's page of each block lies.

One backing allocation a rank, of ``num_blocks`` times the bytes of a block. Groups overlay each other from
byte 0, since a block belongs to one group at a time:

    block-outermost            block 0            block 1
        group 0:        | [ A | B | pad ]  | [ A | B | pad ]  | ...
        group 1:        | [ C | D       ]  | [ C | D       ]  | ...

    layer-outermost            (pages of one size, or one group)
        group 0:        | A [ block 0 | block 1 | ... ] | B [ block 0 | block 1 | ... ] |
        group 1:        | C [ block 0 | block 1 | ... ] | D [ block 0 | block 1 | ... ] |
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from blockyard.core.arithmetic import div_ceil
from blockyard.core.errors import InvalidRequest
from blockyard.planning.errors import LayoutCannotExpress
from blockyard.planning.groups import Group, Grouping, by_layer, split_pooled
from blockyard.planning.layers import MAX_BYTES, KpoolTail, Layer, Mamba
from blockyard.planning.layouts import Inexpressible, Layout, Strides, View
from blockyard.planning.request import TensorForm


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Equal layers: layer ``l``'s page of block ``b`` begins at offset + l * layer_stride + b * block_stride.

    Where a layout parts a page by heads, it begins there with the first head's share.

    Attributes:
        size: Bytes of the backing allocation.
        layers: Names, in the order of their places.
        layer_stride: Bytes from one to the next.
        block_stride: Bytes from block to block.
        offset: Bytes before the first layer's block 0.
        host_resident: Whether the allocation is in host memory.
        is_elsewhere: None of the layers is on this rank, and nothing is kept for them: groups of several page
            sizes are listed on every rank.
    """

    size: int
    layers: Sequence[str]
    layer_stride: int
    block_stride: int
    offset: int
    host_resident: bool = False
    is_elsewhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A page of every block, and the layers that share it, one a group.

    Attributes:
        size: Bytes of the backing allocation.
        shared_by: Names of the layers.
        offset: Bytes before it in block 0.
        block_stride: Bytes from block to block.
    """

    size: int
    shared_by: Sequence[str]
    offset: int
    block_stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How one rank's groups lie in memory, for any number of blocks.

    Attributes:
        groups: The rank's part of each of the model's groups, in their order.
        layout: Of the memory.
        form: How tensors are described.
        shares_slots: See `Grouping`.
        bytes_per_block: 0 for a rank without layers.
    """

    groups: Sequence[Group]
    layout: Layout
    form: TensorForm = TensorForm.LAYERS
    shares_slots: bool = False
    bytes_per_block: int = field(init=False)

    def __post_init__(self) -> None:
        """Work out a block's size.

        Raises:
            InvalidRequest: It is beyond any memory.
        """
        object.__setattr__(self, "bytes_per_block", self._bytes_per_block())

    @classmethod
    def of(cls, grouping: Grouping, names: Sequence[str], layout: Layout, form: TensorForm) -> "Placement":
        """Of the rank that computes the layers of ``names``."""
        groups = grouping.on_rank(names)
        has_slots = grouping.shares_slots and any(split_pooled(group.layers)[1] for group in groups)
        return cls(groups=groups, layout=layout, form=form, shares_slots=has_slots)

    @property
    def device_groups(self) -> list[Group]:
        """Groups whose blocks lie in the device's memory."""
        return [group for group in self.groups if not group.host_resident]

    @property
    def host_groups(self) -> list[Group]:
        """Groups whose blocks lie in the host's."""
        return [group for group in self.groups if group.host_resident]

    def check_layout(self) -> None:
        """Refuse a layout under which groups would not own the same bytes of a block.

        Raises:
            LayoutCannotExpress: It does not.
        """
        pages = sorted({layer.page_bytes for group in self.device_groups for layer in group.layers.values()})
        layout = self.layout
        if self.form is TensorForm.SLOTS:
            fits = layout.is_block_outermost and layout.keeps_pages_whole
        else:
            fits = self._fits(len(pages))
        if not fits:
            what = f"pages of several sizes, {pages}" if len(pages) > 1 else "pages of several layers as one"
            raise _cannot_express(layout, what)

    def _fits(self, num_page_sizes: int) -> bool:
        """Whether a block's bytes are the same for every group under the layout."""
        layout = self.layout
        groups = [group for group in self.device_groups if group.layers]
        heads = {layer.num_heads for group in groups for layer in group.layers.values()}
        if self.shares_slots:
            return layout.keeps_pages_whole or heads == {1}
        if layout.is_block_outermost:
            return layout.keeps_pages_whole or num_page_sizes <= 1
        if layout.keeps_pages_whole:
            return num_page_sizes <= 1 or len(groups) <= 1
        # A region a head: where it begins depends on how many there are.
        return num_page_sizes <= 1 and (len(groups) <= 1 or len(heads) == 1)

    def tensors(self, num_blocks: int) -> list[Tensor] | list[Slot]:
        """Where the layers of the device's groups lie, for ``num_blocks`` blocks, at least 1.

        Raises:
            LayoutCannotExpress: The layout parts pages that are padded.
        """
        if self.form is TensorForm.SLOTS:
            return list(self._slots(num_blocks))
        if self.shares_slots:
            return list(self._shared_tensors(num_blocks))
        groups = [group for group in self.device_groups if not group.derived]
        return list(run_tensors(groups, self.layout, num_blocks, self.bytes_per_block))

    def _bytes_per_block(self) -> int:
        groups = [group for group in self.device_groups if group.layers]
        if not groups:
            return 0
        if self.form is TensorForm.SLOTS:
            num_bytes = sum(page for page, _ in self._slot_pages())
        elif self.shares_slots:
            return sum(group.page_bytes for group in groups if not _borrows(group))
        else:
            num_bytes = max(group.page_bytes for group in groups)
        alignments = {layer.stride_alignment for group in groups for layer in set(group.layers.values())}
        alignment = math.lcm(*alignments)
        bytes_per_block = div_ceil(num_bytes, alignment) * alignment
        if bytes_per_block > MAX_BYTES:
            why = f" aligned to {len(alignments)} different strides" if alignment > num_bytes else ""
            raise InvalidRequest.of(
                "workers.layers", f"a block of them{why} takes more than {MAX_BYTES} bytes"
            )
        return bytes_per_block

    def _slot_pages(self) -> list[tuple[int, list[str]]]:
        """The pages of a block: the i-th layer of a size in each group shares the i-th page of that size."""
        pages: dict[int, list[list[str]]] = {}
        for group in self.device_groups:
            columns: dict[int, list[str]] = {}
            for name, layer in group.layers.items():
                columns.setdefault(layer.page_bytes, []).append(name)
            for page, names in columns.items():
                slots = pages.setdefault(page, [])
                slots += [[] for _ in range(len(names) - len(slots))]
                for slot, name in zip(slots, names, strict=False):
                    slot.append(name)
        return [(page, slot) for page, slots in pages.items() for slot in slots]

    def _slots(self, num_blocks: int) -> Iterator[Slot]:
        offset = 0
        for page, names in self._slot_pages():
            yield Slot(
                size=self.bytes_per_block * num_blocks,
                shared_by=names,
                offset=offset,
                block_stride=self.bytes_per_block,
            )
            offset += page

    def _shared_tensors(self, num_blocks: int) -> Iterator[Tensor]:
        """A region a slot, whatever the layout: views of recurrent states and kernels want dense pages."""
        layers = {name: layer for group in self.groups for name, layer in group.layers.items()}
        attention = next(group.layers for group in self.groups if not _borrows(group))
        states = [list(group.layers) for group in self.groups if isinstance(group.form, Mamba)]
        tails = [list(group.layers) for group in self.groups if isinstance(group.form, KpoolTail)]
        mla, indexers = split_pooled(attention)
        offset = 0
        for owners, borrowers in ((list(mla), states), (list(indexers), tails)):
            assert all(len(names) <= len(owners) for names in borrowers), "a borrower finds no slot"
            for place, owner in enumerate(owners):
                page = layers[owner].page_bytes
                if page % layers[owner].stride_alignment:
                    raise _cannot_express(self.layout, "aligned blocks in shared slots")
                for name in (owner, *(names[place] for names in borrowers if place < len(names))):
                    yield Tensor(
                        size=self.bytes_per_block * num_blocks,
                        layers=[name],
                        layer_stride=page * num_blocks,
                        block_stride=page,
                        offset=offset,
                    )
                offset += page * num_blocks


def run_tensors(
    groups: Sequence[Group],
    layout: Layout,
    num_blocks: int,
    bytes_per_block: int,
    *,
    host_resident: bool = False,
) -> Iterator[Tensor]:
    """A tensor for each run of equal layers, every group from byte 0.

    Raises:
        LayoutCannotExpress: ``layout`` parts pages that are padded.
    """
    for group in groups:
        num_bytes = 0
        for layer, names in by_layer(group.layers or group.elsewhere).items():
            strides = _strides(layer, layout, len(names), num_blocks, bytes_per_block)
            page = layer.page_bytes
            yield Tensor(
                size=bytes_per_block * num_blocks,
                layers=names,
                layer_stride=strides.layer,
                block_stride=strides.block,
                offset=num_bytes * max(strides.layer, page) // page,
                host_resident=host_resident,
                is_elsewhere=not group.layers,
            )
            num_bytes += len(names) * page


def view(tensor: Tensor, name: str, layer: Layer, layout: Layout, num_blocks: int) -> View:
    """How ``layer``, of ``name`` in ``tensor``, is seen in the backing allocation of ``num_blocks`` blocks.

    Raises:
        LayoutCannotExpress: ``layout`` parts pages that are padded.
    """
    try:
        strides = layout.strides(
            layer,
            num_layers=len(tensor.layers),
            num_blocks=num_blocks,
            block_stride=tensor.block_stride,
            layer_stride=tensor.layer_stride,
        )
    except Inexpressible:
        raise _cannot_express(layout, f"the padded pages of {name!r}") from None
    return View(
        offset=tensor.offset + list(tensor.layers).index(name) * tensor.layer_stride,
        shape=(num_blocks, layer.num_heads, layer.num_states, layer.state_bytes),
        strides=(strides.block, strides.head, strides.state, 1),
    )


def _strides(layer: Layer, layout: Layout, num_layers: int, num_blocks: int, bytes_per_block: int) -> Strides:
    try:
        strides = layout.strides(
            layer,
            num_layers=num_layers,
            num_blocks=num_blocks,
            block_stride=bytes_per_block if layout.is_block_outermost else None,
        )
    except Inexpressible:
        raise _cannot_express(layout, f"padded pages of {layer.kind} layers") from None
    if strides.block % layer.stride_alignment:
        raise _cannot_express(layout, f"blocks that begin at multiples of {layer.stride_alignment} bytes")
    return strides


def _borrows(group: Group) -> bool:
    """Whether its layers lie in other layers' slots."""
    return isinstance(group.form, (Mamba, KpoolTail))


def _cannot_express(layout: Layout, what: str) -> LayoutCannotExpress:
    possible = [each.value for each in Layout if each.is_block_outermost and each.keeps_pages_whole]
    return LayoutCannotExpress(
        f"layout {layout} cannot express {what}: use {' or '.join(possible)}",
        {"layout": layout.value, "possible_layouts": possible},
    )
