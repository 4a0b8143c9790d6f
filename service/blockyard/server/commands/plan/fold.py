"""Ranks that have something in common, told once."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def fold(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[tuple[list[int], Item]]:
    """The first of ``items`` of each ``key``, with the places of all that have it."""
    found: dict[Hashable, tuple[list[int], Item]] = {}
    for place, item in enumerate(items):
        places, _ = found.setdefault(key(item), ([], item))
        places.append(place)
    return list(found.values())
