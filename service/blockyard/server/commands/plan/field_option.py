"""Options that set a field of a plan's request."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from blockyard.server.plan_schemas import HisparseBody, ParallelBody, PlanBody, SpeculativeBody, WorkerBody

if TYPE_CHECKING:
    from click.types import OptionHelpExtra

WORKERS = "workers"

PARTS: Mapping[str, type[BaseModel]] = {
    WORKERS: WorkerBody,
    "parallel": ParallelBody,
    "speculative": SpeculativeBody,
    "hisparse": HisparseBody,
}
"""Objects in a request whose fields are options."""


class SectionOption(click.Option):
    """An option under a heading of ``--help``."""

    def __init__(self, *declarations: str, section: str, **attributes: Any) -> None:
        super().__init__(declarations, **attributes)
        self.section = section


class FieldOption(SectionOption):
    """An option that sets a field of the request.

    Attributes:
        path: The field: its name, or the name of an object in `PARTS` and of a field in it. One of
            ``workers`` is set in each, and has a value a rank.
    """

    def __init__(self, path: str, *declarations: str, **attributes: Any) -> None:
        self.path = tuple(path.split("."))
        self.shown_default: str | None = attributes.pop("show_default", _default(self.path))
        super().__init__(*declarations, default=None, **attributes)

    def get_help_extra(self, ctx: click.Context) -> "OptionHelpExtra":
        """What a request has without the option; ranges are told once they are left."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        if self.shown_default is not None:
            extra["default"] = self.shown_default
        return extra

    @property
    def is_per_rank(self) -> bool:
        """Whether it has a value a rank."""
        return self.path[0] == WORKERS


def _default(path: Sequence[str]) -> str | None:
    """The field's default in a request, for people; None where its absence means something."""
    *part, name = path
    field = (PARTS[part[0]] if part else PlanBody).model_fields[name]
    default = field.default
    if default is None or default is PydanticUndefined:
        return None
    return (
        {True: "yes", False: "no"}.get(default, str(default)) if isinstance(default, bool) else str(default)
    )
