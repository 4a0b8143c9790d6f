"""The kinds of layer that a pool can hold, by name."""

from blockyard.core.config import GroupConfig
from blockyard.core.errors import InvalidRequest
from blockyard.core.kinds.base import HitSearch, Kind
from blockyard.core.kinds.chunked_local import ChunkedLocalAttention
from blockyard.core.kinds.full_attention import FullAttention
from blockyard.core.kinds.sliding_window import SlidingWindow

KINDS: dict[str, type[Kind]] = {
    "full_attention": FullAttention,
    "sliding_window": SlidingWindow,
    "chunked_local_attention": ChunkedLocalAttention,
}

__all__ = ["KINDS", "HitSearch", "Kind", "kind_of"]


def kind_of(config: GroupConfig) -> Kind:
    """The kind that ``config`` names, with its sizes.

    Raises:
        InvalidRequest: No kind has this name, or its sizes are wrong.
    """
    kind = KINDS.get(config.kind)
    if kind is None:
        raise InvalidRequest.of("groups.kind", f"{config.kind!r} is none of {', '.join(KINDS)}")
    return kind.from_config(config)
