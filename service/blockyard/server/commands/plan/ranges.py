"""Numbers, ranks and names of layers, abbreviated: ``model.layers.{0-60}.self_attn.attn``.

``5-59/6`` is every sixth number from 5 to 59, as in a crontab.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

MAX_PATTERNS = 6
"""Names that differ in more than a number: so many are shown."""

_NUMBER = re.compile(r"(?<![A-Za-z0-9])(?:0|[1-9][0-9]{0,8})(?![A-Za-z0-9])")
"""A part of a name that is a number, between dots or the like."""


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
