"""Grouping: which layers share a block table, and how their pages are brought to one size.

A pool hands out one kind of block: each group takes its blocks from it, so a block has to hold the pages of
any one group's layers. What fits the model best is tried first:

    1. sparse pages on the host            `sparse_host`        if asked for
    2. one group, all layers alike         most models
    3. one group, pages of several sizes   layers that need the same slots, such as MLA and its indexer
    4. recurrent layers in MLA slots       `shared_slots`
    5. groups packed side by side          `packed`             several sizes, block-outermost layouts
    6. groups of one page size             `one_page_size`      by larger blocks or padded pages
    7. one group after all                 `promotion`          a window is allocated like full attention
"""

from dataclasses import replace

from blockyard.core.errors import InvalidRequest
from blockyard.planning.errors import IncompatiblePageSizes
from blockyard.planning.grouping.drafts import flag_drafts
from blockyard.planning.grouping.hidden_states import with_hidden_states
from blockyard.planning.grouping.one_page_size import equal_groups, to_one_page_size
from blockyard.planning.grouping.packed import packed_groups
from blockyard.planning.grouping.promotion import all_full_allocation, promote_all
from blockyard.planning.grouping.shared_slots import shared_slots
from blockyard.planning.grouping.sparse_host import sparse_host_groups
from blockyard.planning.groups import Group, Grouping, Layers, can_merge, can_share_table
from blockyard.planning.layers import HiddenState
from blockyard.planning.request import PlanRequest

MAX_FORMS = 1024
"""Layers of a model that differ from each other: more are a mistake, and would take long to compare."""


def group_layers(layers: Layers, request: PlanRequest) -> Grouping:
    """The groups of the model's ``layers``, none for a model without any.

    Raises:
        InvalidRequest: There are too many layers that all differ.
        CannotUnifyHybrid: Hybrid groups are off, and the layers are of kinds that cannot be allocated alike.
        IncompatiblePageSizes: Pages cannot be brought to one size.
        PlanError: See the ways above.
    """
    if not layers:
        return Grouping(groups=())
    if len(set(layers.values())) > MAX_FORMS:
        raise InvalidRequest.of("workers.layers", f"more than {MAX_FORMS} of them differ from each other")
    warnings: list[str] = []
    if not request.hybrid_groups:
        layers = promote_all(layers, warnings)
    if request.sparse_host is not None:
        grouping = sparse_host_groups(
            layers, request, lambda others: _group_on_device(others, request, warnings)
        )
    else:
        grouping = _group_on_device(layers, request, warnings)
    return replace(grouping, warnings=tuple(warnings))


def _group_on_device(layers: Layers, request: PlanRequest, warnings: list[str]) -> Grouping:
    """The groups of ``layers``; what the operator should know of them goes into ``warnings``."""
    if can_merge(list(layers.values())):
        return Grouping(groups=[Group.merged(layers)])
    if can_share_table(layers):
        return Grouping(groups=[Group.of(layers)])
    shared = shared_slots(layers, request)
    if shared is not None:
        return Grouping(groups=shared, shares_slots=True)
    hidden = {name: layer for name, layer in layers.items() if isinstance(layer, HiddenState)}
    visible = {name: layer for name, layer in layers.items() if name not in hidden}
    packed = packed_groups(visible, request.layout) if visible else []
    if packed is not None:
        alone = [Group.of({name: layer}) for name, layer in hidden.items()]
        return Grouping(groups=[*flag_drafts(packed, visible, request.speculative, warnings), *alone])
    try:
        paged = to_one_page_size(visible, warnings)
    except IncompatiblePageSizes:
        fallback = all_full_allocation(layers)
        if fallback is None:
            raise
        warnings.append(
            "pages cannot be brought to one size: sliding-window layers keep blocks for all tokens, "
            "as full attention does; what they compute is unchanged"
        )
        return Grouping(groups=[Group.of(fallback)])
    groups = flag_drafts(equal_groups(paged, warnings), visible, request.speculative, warnings)
    return Grouping(groups=with_hidden_states(groups, hidden))


__all__ = ["group_layers"]
