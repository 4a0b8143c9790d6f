"""What PromQL expressions name: metrics, and the labels that are asked of each."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_STRING = r'"(?:[^"\\]|\\.)*"'
_IGNORED = re.compile(
    r"\[[^\]]*\]"  # a range
    r"|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"  # labels of an operator
    r"|\boffset\s+\w+"
)
_SELECTOR = re.compile(rf"([a-zA-Z_:][\w:]*)\s*(\(|\{{(?:[^\"}}]|{_STRING})*\}})?")
_MATCHER = re.compile(rf"(\w+)\s*(?:=~|!~|!=|=)\s*{_STRING}")
_NUMBER = re.compile(r"\b\d[\w.]*")
_OPERATORS = {"and", "or", "unless", "bool"}


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric, and the labels that it is chosen by."""

    metric: str
    labels: frozenset[str]


def selectors(expression: str) -> Iterator[Selector]:
    """Those of ``expression``: its names that are neither functions nor operators."""
    for name, rest in _SELECTOR.findall(_NUMBER.sub("", _IGNORED.sub("", expression))):
        if rest != "(" and name not in _OPERATORS:
            yield Selector(name, frozenset(_MATCHER.findall(rest)))
