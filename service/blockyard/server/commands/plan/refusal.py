"""Why there is no plan: the sentence in red on standard error, with its figures and the options to change."""

import re
from collections.abc import Collection, Iterator
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from blockyard.core.errors import BlockyardError
from blockyard.server.commands.plan.field_option import FieldOption
from blockyard.server.commands.plan.options import FIELD_OPTIONS
from blockyard.server.commands.plan.sizes import show_size

NUM_TOLD = 3
"""Findings that an invalid request's sentence tells; see `blockyard.server.problems.invalid_fields`."""


class NoPlan(click.ClickException):
    """A refusal, shown with its code and figures: exit status 1.

    Args:
        error: Why.
        given: The options that the line had.
    """

    def __init__(self, error: BlockyardError, given: Collection[FieldOption]) -> None:
        super().__init__(f"{error.code}: {error}")
        self.figures = error.figures
        self.options = [each.opts[0] for each in FIELD_OPTIONS if _helps(each, error, given)]

    def show(self, file: Any = None) -> None:
        """On standard error, or ``file``; each sentence on one line, so that it can be found."""
        console = Console(file=file, stderr=file is None, highlight=False)
        console.print(Text(f"Error: {self.message}", style="red"), soft_wrap=True)
        for line in self._figures():
            console.print(Text(f"  {line}"), soft_wrap=True)
        if self.options:
            console.print(Text(f"Options to change: {', '.join(self.options)}"), soft_wrap=True)

    def _figures(self) -> Iterator[str]:
        for name, value in self.figures.items():
            if name == "errors":
                yield from (f"{each['field']}: {each['message']}" for each in value[NUM_TOLD:])
            elif isinstance(value, int):
                size = f" ({show_size(value)})" if name.endswith("_bytes") else ""
                yield f"{name}: {value:,}{size}"
            elif isinstance(value, str):
                yield f"{name}: {value}"


def _helps(option: FieldOption, error: BlockyardError, given: Collection[FieldOption]) -> bool:
    """Whether it sets a field that ``error`` is about; of a rank's memory, only those that the line has."""
    if option.is_per_rank and option not in given and any(each.is_per_rank for each in given):
        return False
    findings = error.figures.get("errors")
    if findings is not None:
        return any(_concerns(each["field"], option) for each in findings)
    words = re.findall(r"[a-z][a-z_.]*[a-z]", str(error))
    if option.is_per_rank:
        return "available_memory_bytes" in words
    return ".".join(option.path) in words


def _concerns(field: str, option: FieldOption) -> bool:
    """Whether ``field``, such as ``workers.3.weights_bytes``, is the option's, or one is inside the other."""
    path = [part for part in field.split(".") if not part.isdecimal()]
    return all(one == other for one, other in zip(path, option.path, strict=False))
