"""Groups: layers that share a block table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from blockyard.planning.layers import CannotMerge, Layer, MlaAttention, Workload

Layers = Mapping[str, Layer]
"""Layers by name, in the order in which the model registers them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Layers that share a block table: all of the model's, or a rank's part of them.

    Attributes:
        layers: By name. A rank that has none of the group's layers still has the group.
        form: One of the model's layers in the group: what it says of blocks holds for all.
        is_draft: Whether a draft model's layers are among them.
        host_resident: Whether its blocks lie in host memory.
        derived: The layers follow from others that ranks report: their names are those and the kind's.
        is_merged: One layer describes all of them; else each keeps its own page.
        elsewhere: On a rank that has none of the group's layers, and where they are not merged: the others'.
    """

    layers: Layers
    form: Layer
    is_draft: bool = False
    host_resident: bool = False
    derived: bool = False
    is_merged: bool = False
    elsewhere: Layers = field(default_factory=dict)

    @classmethod
    def of(cls, layers: Layers) -> "Group":
        """A group of ``layers``, at least one; each keeps its own page size."""
        return cls(layers=layers, form=next(iter(layers.values())))

    @classmethod
    def merged(cls, layers: Layers) -> "Group":
        """A group of ``layers`` that are described by one layer.

        Raises:
            CannotMerge: They are not alike.
        """
        form = merge(list(layers.values()))
        return cls(layers=dict.fromkeys(layers, form), form=form, is_merged=True)

    @property
    def page_bytes(self) -> int:
        """Bytes of the pages of all its layers."""
        return sum(layer.page_bytes * len(names) for layer, names in by_layer(self.layers).items())

    @property
    def prefix_cacheable(self) -> bool:
        """Whether its blocks can be found by later requests."""
        return all(layer.prefix_cacheable for layer in (self.form, *self.layers.values()))

    def table_block_size(self, decode_context: int) -> int:
        """Tokens that an entry of the block table stands for."""
        return self.form.block_size * (decode_context if self.form.dcp_sharded else 1)

    def max_blocks(self, workload: Workload) -> int:
        """The most blocks that one request holds of this group."""
        return self.form.max_blocks(workload)

    def on_rank(self, names: Iterable[str]) -> "Group":
        """The part of the group with the layers of ``names``, which are some of its own in their order."""
        layers = {name: self.layers[name] for name in names}
        elsewhere = {} if layers or self.is_merged else self.layers
        return replace(self, layers=layers, elsewhere=elsewhere, is_draft=self.is_draft and bool(layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """How a model's layers are grouped.

    Attributes:
        groups: In the order of their block tables.
        shares_slots: Recurrent layers lie in the slots of MLA layers, tails in those of indexers; see
            `blockyard.planning.grouping.shared_slots`.
        warnings: What the operator should know.
    """

    groups: Sequence[Group]
    shares_slots: bool = False
    warnings: Sequence[str] = ()
    _places: Mapping[str, list[tuple[int, int, str]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Note where the layers that a rank reports stand: group, place in it, and name there."""
        places: dict[str, list[tuple[int, int, str]]] = {}
        for number, group in enumerate(self.groups):
            suffix = f".{group.form.kind}" if group.derived else ""
            for place, name in enumerate(group.layers):
                places.setdefault(name.removesuffix(suffix), []).append((number, place, name))
        object.__setattr__(self, "_places", places)

    def on_rank(self, names: Iterable[str]) -> list[Group]:
        """Each group's part on a rank that computes the layers of ``names``, all of them the model's."""
        mine: list[list[str]] = [[] for _ in self.groups]
        for number, _, here in sorted(place for name in names for place in self._places[name]):
            mine[number].append(here)
        return [group.on_rank(part) for group, part in zip(self.groups, mine, strict=True)]


def by_layer(layers: Layers) -> dict[Layer, list[str]]:
    """The names of equal layers, in order."""
    names: dict[Layer, list[str]] = {}
    for name, layer in layers.items():
        names.setdefault(layer, []).append(name)
    return names


def merge(layers: Sequence[Layer]) -> Layer:
    """One layer that describes all of ``layers``.

    Raises:
        CannotMerge: They are not alike.
    """
    first, *others = dict.fromkeys(layers)
    return first.merge(others)


def can_merge(layers: Sequence[Layer]) -> bool:
    """Whether one layer describes all of ``layers``."""
    try:
        merge(layers)
    except CannotMerge:
        return False
    return True


def split_pooled(attention: Layers) -> tuple[Layers, Layers]:
    """MLA layers that keep a state a token, and indexers that pool several tokens into one."""
    pooled = {
        name: layer
        for name, layer in attention.items()
        if isinstance(layer, MlaAttention) and layer.tokens_per_state > 1
    }
    return {name: layer for name, layer in attention.items() if name not in pooled}, pooled


def can_share_table(layers: Layers) -> bool:
    """Whether one block table serves all of ``layers``, whatever their page sizes."""
    first, *others = dict.fromkeys(layers.values())
    return all(first.can_share_table(other) for other in others)
