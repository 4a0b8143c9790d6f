"""Numbers, sizes, ranks and names of layers as people read them.

Names that differ in a number are told once, ``model.layers.{0-60}.self_attn.attn``; ``5-59/6`` is every sixth
number from 5 to 59, as in a crontab. What ranks have in common is told once, too.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from pydantic import ByteSize

from blockyard.core.arithmetic import div_ceil

Item = TypeVar("Item")

MAX_PATTERNS = 6
"""Names that differ in more than a number: so many are shown."""

_NUMBER = re.compile(r"(?<![A-Za-z0-9])(?:0|[1-9][0-9]{0,8})(?![A-Za-z0-9])")
"""A part of a name that is a number, between dots or the like."""

_LONG_NUMBER = re.compile(r"(?<![\w.])[1-9]\d{3,}(?!\w|\.\w)")
"""A number in a sentence that is no part of a name."""

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def counted(count: int, noun: str) -> str:
    """``1 block``, ``2 blocks``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def spanned(numbers: Iterable[float]) -> str:
    """``16``, or ``16 to 1,024``: from the least to the greatest, to a tenth where they are not whole."""
    shown = [f"{round(number, 1):,.10g}" for number in sorted(set(numbers))]
    return shown[0] if len(shown) == 1 else f"{shown[0]} to {shown[-1]}"


def group_digits(sentence: str) -> str:
    """``sentence`` with its long numbers in groups of three digits."""
    return _LONG_NUMBER.sub(lambda found: f"{int(found[0]):,}", sentence)


def show_size(num_bytes: int) -> str:
    """``num_bytes`` to a tenth of the largest fitting binary unit: ``63.5 GiB``."""
    return ByteSize(num_bytes).human_readable(separator=" ")


def size_at_least(num_bytes: int) -> tuple[str, int]:
    """A short size of ``num_bytes`` or little more, as an option takes it, and its bytes."""
    unit, unit_bytes = max(
        ((name, size) for name, size in _UNITS.items() if size <= max(num_bytes, 2**10)),
        key=lambda pair: pair[1],
    )
    tenths = div_ceil(num_bytes * 10, unit_bytes)
    while tenths * unit_bytes // 10 < num_bytes:  # memory is rounded down to whole bytes
        tenths += 1
    return f"{tenths // 10}{f'.{tenths % 10}' if tenths % 10 else ''}{unit}", tenths * unit_bytes // 10


def number_ranges(numbers: Iterable[int]) -> str:
    """``0-7``, ``0,2,5`` or ``5-59/6``: runs of equal distance, joined by commas."""
    return ",".join(_run(run) for run in _runs(sorted(set(numbers))))


def rank_name(ranks: Sequence[int]) -> str:
    """``rank 0``, or ``ranks 0-7``."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {number_ranges(ranks)}"


def layer_names(names: Iterable[str]) -> str:
    """Names that differ in their first number alone are told once, with the numbers in braces."""
    patterns: dict[tuple[str, str], list[int]] = {}
    for name in names:
        found = _NUMBER.search(name)
        if found is None:
            patterns.setdefault((name, ""), [])
        else:
            patterns.setdefault((name[: found.start()], name[found.end() :]), []).append(int(found[0]))
    shown = [_name(before, numbers, after) for (before, after), numbers in patterns.items()]
    more = len(shown) - MAX_PATTERNS
    return ", ".join(shown[:MAX_PATTERNS]) + (f" and {more} more" if more > 0 else "")


def fold(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[tuple[list[int], Item]]:
    """The first of ``items`` of each ``key``, with the places of all that have it."""
    found: dict[Hashable, tuple[list[int], Item]] = {}
    for place, item in enumerate(items):
        places, _ = found.setdefault(key(item), ([], item))
        places.append(place)
    return list(found.values())


def _name(before: str, numbers: Sequence[int], after: str) -> str:
    if len(numbers) <= 1:
        return before + "".join(map(str, numbers)) + after
    return f"{before}{{{number_ranges(numbers)}}}{after}"


def _runs(numbers: Sequence[int]) -> Iterator[range]:
    """``numbers``, which ascend, in runs of equal distance; two that are not neighbours are no run."""
    start = 0
    while start < len(numbers):
        step = numbers[start + 1] - numbers[start] if start + 1 < len(numbers) else 1
        end = start + 1
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        if step > 1 and end - start < 3:
            step, end = 1, start + 1
        yield range(numbers[start], numbers[end - 1] + 1, step)
        start = end


def _run(run: range) -> str:
    if len(run) == 1:
        return str(run[0])
    return f"{run[0]}-{run[-1]}" + (f"/{run.step}" if run.step > 1 else "")
