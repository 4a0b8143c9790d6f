"""Recurrent layers in the slots of MLA layers, and tails in those of indexers.

Models that mix linear attention with compressed MLA have, in a block, a page an MLA layer and a smaller one
an indexer. A recurrent state fits an MLA page, and a tail an indexer's: since a block belongs to one group at
a time, they lie in the same bytes and cost no memory of their own.

    slot          MLA 0 | MLA 1 | ... | indexer 0 | indexer 1 | ...
    recurrent a     *   |   *   |
    recurrent b     *   |   *   |
    tail                |       |     |     *     |     *     |
"""

from collections.abc import Sequence

from blockyard.core.arithmetic import div_ceil
from blockyard.core.errors import InvalidRequest
from blockyard.planning.errors import IncompatiblePageSizes, PipelineStageWithoutMla, StatePageTooLarge
from blockyard.planning.groups import Group, Layers, can_share_table
from blockyard.planning.layers import KpoolTail, Mamba, MlaAttention
from blockyard.planning.request import PlanRequest


def shared_slots(layers: Layers, request: PlanRequest) -> list[Group] | None:
    """One group of MLA and indexer layers, one of tails, and the recurrent ones spread over as few as fit.

    None where the model is not of this sort: recurrent layers, tails, and MLA layers of which some, the
    indexers, keep one state for several tokens.

    Raises:
        StatePageTooLarge: A recurrent state does not fit an MLA page, or a tail an indexer's.
        PipelineStageWithoutMla: A stage has recurrent layers and no slot for them.
        IncompatiblePageSizes: MLA pages, indexer pages or recurrent states differ among themselves.
    """
    states = {name: layer for name, layer in layers.items() if isinstance(layer, Mamba)}
    tails = {name: layer for name, layer in layers.items() if isinstance(layer, KpoolTail)}
    attention = {name: layer for name, layer in layers.items() if type(layer) is MlaAttention}
    if not states or len(states) + len(tails) + len(attention) < len(layers):
        return None
    mla, indexers = split_indexers(attention)
    if not indexers:
        return None
    mla_page = _only_page("MLA", mla)
    indexer_page = _only_page("indexer", indexers)
    if any(layer.page_size_padded is not None for layer in attention.values()) or not can_share_table(
        attention
    ):
        raise IncompatiblePageSizes(
            "MLA and indexer layers that share slots need pages without padding and one block size",
            {"page_size_bytes": {name: layer.page_bytes for name, layer in attention.items()}},
        )
    for _, share in _stages([*tails, *indexers], request) if tails else ():
        if len(share & tails.keys()) > len(share & indexers.keys()):
            raise IncompatiblePageSizes(
                "a tail shares the slot of an indexer, and there are more tails than indexers",
                {"page_size_bytes": {name: layer.page_bytes for name, layer in tails.items()}},
            )
    for name, layer in tails.items():
        if layer.content_bytes > indexer_page:
            raise _too_large(f"the tail of {name!r}", layer.content_bytes, "indexer", indexer_page)
    first_state = next(iter(states.values()))
    if any(state != first_state for state in states.values()):
        raise IncompatiblePageSizes(
            "recurrent layers that share MLA slots need equal states",
            {"page_size_bytes": {name: layer.page_bytes for name, layer in states.items()}},
        )
    if first_state.content_bytes > mla_page:
        raise _too_large("the recurrent state", first_state.content_bytes, "MLA", mla_page)
    padded_state = first_state.but(page_size_padded=mla_page)
    padded_tails = {name: layer.but(page_size_padded=indexer_page) for name, layer in tails.items()}
    names = list(states)
    num_groups = _num_state_groups(names, list(mla), request)
    return [
        Group.of(attention),
        *([Group.of(padded_tails)] if tails else []),
        *(Group.merged(dict.fromkeys(names[first::num_groups], padded_state)) for first in range(num_groups)),
    ]


def split_indexers(attention: Layers) -> tuple[Layers, Layers]:
    """MLA layers, and the indexers among them: those that keep one state for several tokens."""
    indexers = {
        name: layer
        for name, layer in attention.items()
        if isinstance(layer, MlaAttention) and layer.tokens_per_state > 1
    }
    return {name: layer for name, layer in attention.items() if name not in indexers}, indexers


def _only_page(what: str, layers: Layers) -> int:
    pages = {name: layer.page_bytes for name, layer in layers.items()}
    if len(set(pages.values())) != 1:
        raise IncompatiblePageSizes(
            f"recurrent layers can share slots with {what} layers of one page size only",
            {"page_size_bytes": pages},
        )
    return next(iter(pages.values()))


def _too_large(what: str, state_bytes: int, whose: str, page_bytes: int) -> StatePageTooLarge:
    return StatePageTooLarge(
        f"{what} takes {state_bytes} bytes and the {whose} page that it would share {page_bytes}: use more "
        "tensor-parallel ranks, larger blocks, or a wider KV cache dtype",
        {"state_bytes": state_bytes, "page_size_bytes": page_bytes},
    )


def _num_state_groups(states: Sequence[str], mla: Sequence[str], request: PlanRequest) -> int:
    """Groups over which recurrent layers are spread, so that on every stage each finds an MLA slot."""
    num_groups = div_ceil(len(states), len(mla))
    for stage, names in _stages([*states, *mla], request):
        num_states = sum(name in names for name in states)
        num_slots = sum(name in names for name in mla)
        if num_states and not num_slots:
            raise PipelineStageWithoutMla(
                f"stage {stage} has {num_states} recurrent layers and no MLA layer to share slots with: "
                "move the stage's bounds (parallel.pipeline_partition)",
                {"stage": stage},
            )
        while any(
            sum(name in names for name in states[i::num_groups]) > num_slots for i in range(num_groups)
        ):
            num_groups += 1
    return num_groups


def _stages(layers: Sequence[str], request: PlanRequest) -> list[tuple[int, set[str]]]:
    """Stages and their layers: as the ranks say, or the partition where every rank has them all."""
    parallel = request.parallel
    shares = [(rank // parallel.tensor, set(each.layers)) for rank, each in enumerate(request.ranks)]
    if parallel.pipeline == 1 or any(names != shares[0][1] for _, names in shares):
        return shares
    numbers = {name: _layer_number(name) for name in layers}
    num_layers = parallel.num_hidden_layers or max(numbers.values()) + 1
    return [
        (number, {name for name in layers if numbers[name] in stage})
        for number, stage in enumerate(parallel.stages(num_layers))
    ]


def _layer_number(name: str) -> int:
    """The number in a layer's dotted name, such as 7 in ``model.layers.7.attn``."""
    numbers = [int(part) for part in name.split(".") if part.isdecimal()]
    if len(numbers) != 1:
        raise InvalidRequest.of(
            "workers.layers", f"{name!r} does not tell its layer's number, which its stage follows from"
        )
    return numbers[0]
