"""Which groups hold a draft model's layers: their last block is computed anew after a hit."""

from collections.abc import Sequence
from dataclasses import replace

from blockyard.planning.groups import Group, Layers
from blockyard.planning.layers import Mamba
from blockyard.planning.request import Speculative


def flag_drafts(
    groups: Sequence[Group], layers: Layers, speculative: Speculative | None, warnings: list[str]
) -> list[Group]:
    """``groups`` of ``layers`` with those flagged that hold a drafter's layers.

    A marked layer tells its group. A drafter that reuses the model's own decoder layer bears no mark, but is
    registered last: then the group of the last layer is the drafter's, if every layer is in just one group.
    """
    if speculative is None or not speculative.drafts_with_kv:
        return list(groups)
    last = (
        next(reversed(list(layers)), None)
        if speculative.draft_layers_come_last and _covers(groups, layers)
        else None
    )
    flagged = [
        replace(group, is_draft=last in group.layers or any(each.is_draft for each in group.layers.values()))
        for group in groups
    ]
    if not any(group.is_draft for group in flagged) and any(isinstance(g.form, Mamba) for g in flagged):
        warnings.append(
            f"speculative method {speculative.method!r}: no group can be told to be the drafter's, so all "
            "have to be treated like one, and recurrent states will hardly be reused"
        )
    return flagged


def _covers(groups: Sequence[Group], layers: Layers) -> bool:
    """Whether each of ``layers`` is in exactly one group."""
    names = [name for group in groups for name in group.layers]
    return len(names) == len(layers) and set(names) == layers.keys()
