"""Recurrent layers in the slots of MLA layers, and tails in those of indexers.

Models that mix linear attention with compressed MLA have, in a block, a page an MLA layer and a smaller one
an indexer, which pools several tokens into one state. A recurrent state fits an MLA page, and a tail an
indexer's: since a block belongs to one group at a time, they lie in the same bytes and cost no memory of
their own.

    slot          MLA 0 | MLA 1 | ... | indexer 0 | indexer 1 | ...
    recurrent a     *   |   *   |
    recurrent b     *   |   *   |
    tail                |       |     |     *     |     *     |
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from blockyard.core.arithmetic import div_ceil
from blockyard.core.errors import InvalidRequest
from blockyard.planning.errors import IncompatiblePageSizes, PipelineStageWithoutMla, StatePageTooLarge
from blockyard.planning.groups import Group, Layers, can_share_table, split_pooled
from blockyard.planning.layers import KpoolTail, Layer, Mamba, MlaAttention
from blockyard.planning.request import PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sharers:
    """The layers of such a model by what they do; each in registration order."""

    states: Layers
    tails: Layers
    attention: Layers
    mla: Layers
    indexers: Layers

    @classmethod
    def of(cls, layers: Layers) -> "_Sharers | None":
        """None where the model is of another sort."""
        states = {name: layer for name, layer in layers.items() if isinstance(layer, Mamba)}
        tails = {name: layer for name, layer in layers.items() if isinstance(layer, KpoolTail)}
        attention = {name: layer for name, layer in layers.items() if type(layer) is MlaAttention}
        mla, indexers = split_pooled(attention)
        if not states or not mla or not indexers or len(states) + len(tails) + len(attention) < len(layers):
            return None
        return cls(states=states, tails=tails, attention=attention, mla=mla, indexers=indexers)


def shared_slots(layers: Layers, request: PlanRequest) -> list[Group] | None:
    """One group of MLA and indexer layers, one of tails, and the recurrent ones spread over as few as fit.

    None where the model is not of this sort: recurrent layers, tails, and MLA layers of which some, the
    indexers, keep one state for several tokens.

    Raises:
        StatePageTooLarge: A recurrent state does not fit an MLA page, or a tail an indexer's.
        PipelineStageWithoutMla: A stage has recurrent layers and no slot for them.
        IncompatiblePageSizes: Layers that should be alike differ, or there are more tails than indexers.
    """
    sharers = _Sharers.of(layers)
    if sharers is None:
        return None
    _check_owners(sharers)
    state = _fitted("the recurrent state", sharers.states, "MLA", sharers.mla)
    stages = _stages([*sharers.states, *sharers.attention, *sharers.tails], request)
    num_groups = _num_state_groups(sharers, stages)
    names = list(sharers.states)
    groups = [Group.of(sharers.attention)]
    if sharers.tails:
        tail = _fitted("the tail", sharers.tails, "indexer", sharers.indexers)
        _check_tails(sharers, stages)
        groups.append(Group.of(dict.fromkeys(sharers.tails, tail)))
    return groups + [
        Group.merged(dict.fromkeys(names[first::num_groups], state)) for first in range(num_groups)
    ]


def _check_owners(sharers: _Sharers) -> None:
    """Refuse slots of several sizes."""
    is_padded = any(layer.page_bytes != layer.content_bytes for layer in sharers.attention.values())
    sizes = [{layer.page_bytes for layer in part.values()} for part in (sharers.mla, sharers.indexers)]
    if is_padded or not can_share_table(sharers.attention) or any(len(pages) > 1 for pages in sizes):
        raise _differ(
            "MLA and indexer layers that share slots need one block size and one page size each, unpadded",
            sharers.attention,
        )


def _check_tails(sharers: _Sharers, stages: Iterable[tuple[int, set[str]]]) -> None:
    """Refuse tails that find no indexer on their stage."""
    for _, names in stages:
        if len(names & sharers.tails.keys()) > len(names & sharers.indexers.keys()):
            raise _differ("there are more tails than indexers whose slots they share", sharers.tails)


def _fitted(what: str, borrowers: Layers, whose: str, owners: Layers) -> Layer:
    """The one layer that all ``borrowers`` are, padded to the page of ``owners``."""
    layer, *others = dict.fromkeys(borrowers.values())
    if others:
        raise _differ(f"layers that share {whose} slots have to be alike", borrowers)
    page_bytes = next(iter(owners.values())).page_bytes
    if layer.content_bytes > page_bytes:
        raise StatePageTooLarge(
            f"{what} takes {layer.content_bytes} bytes and the {whose} page that it would share "
            f"{page_bytes}: use more tensor-parallel ranks, larger blocks, or a wider KV cache dtype",
            {"state_bytes": layer.content_bytes, "page_size_bytes": page_bytes},
        )
    return layer.but(page_size_padded=page_bytes)


def _differ(what: str, layers: Layers) -> IncompatiblePageSizes:
    pages = {name: layer.page_bytes for name, layer in layers.items()}
    return IncompatiblePageSizes(what, {"page_size_bytes": pages})


def _num_state_groups(sharers: _Sharers, stages: Iterable[tuple[int, set[str]]]) -> int:
    """Groups over which recurrent layers are spread in turn, so that each finds a slot on its stage."""
    num_groups = div_ceil(len(sharers.states), len(sharers.mla))
    shares = []
    for stage, names in stages:
        places = [place for place, name in enumerate(sharers.states) if name in names]
        num_slots = len(names & sharers.mla.keys())
        if places and not num_slots:
            raise PipelineStageWithoutMla(
                f"stage {stage} has {len(places)} recurrent layers and no MLA layer to share slots with: "
                "move the stage's bounds (parallel.pipeline_partition)",
                {"stage": stage},
            )
        if places:
            shares.append((places, num_slots))
            num_groups = max(num_groups, div_ceil(len(places), num_slots))
    while any(max(Counter(p % num_groups for p in places).values()) > n for places, n in shares):
        num_groups += 1
    return num_groups


def _stages(layers: Sequence[str], request: PlanRequest) -> list[tuple[int, set[str]]]:
    """Stages and their layers: as the ranks say, or the partition where every rank has them all."""
    parallel = request.parallel
    shares = {frozenset(each.layers): rank // parallel.tensor for rank, each in enumerate(request.ranks)}
    if parallel.pipeline == 1 or len(shares) > 1:
        return [(stage, set(names)) for names, stage in shares.items()]
    numbers = {name: _layer_number(name) for name in layers}
    num_layers = parallel.num_hidden_layers or max(numbers.values()) + 1
    ends = [stage.stop for stage in parallel.stages(num_layers)]
    stages: list[tuple[int, set[str]]] = [(stage, set()) for stage in range(len(ends))]
    for name, number in numbers.items():
        if number < num_layers:
            stages[bisect_right(ends, number)][1].add(name)
    return stages


def _layer_number(name: str) -> int:
    """The number in a layer's dotted name, such as 7 in ``model.layers.7.attn``."""
    numbers = [int(part) for part in name.split(".") if part.isdecimal()]
    if len(numbers) != 1:
        raise InvalidRequest.of(
            "workers.layers", f"{name!r} does not tell its layer's number, which its stage follows from"
        )
    return numbers[0]
