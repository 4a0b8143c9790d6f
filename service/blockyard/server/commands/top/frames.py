"""Look after look: what was seen, and what it is drawn as, over a server that goes away and comes back."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeAlias, TypeVar

from rich.console import Group, RenderableType
from rich.text import Text

from blockyard.client.errors import is_passing
from blockyard.core.errors import BlockyardError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look(Generic[T]):
    """What was seen, and when on a steady clock."""

    at_s: float
    seen: T


Draw: TypeAlias = Callable[[Look[T], Look[T] | None], RenderableType]
"""What a look is drawn as, beside the look before it; None at the first."""


def frames(
    see: Callable[[], T], draw: Draw[T], *, title: str, interval_s: float, looks: int | None
) -> Iterator[RenderableType]:
    """One a look. A server that does not answer at the first one ends it; later it may be back soon.

    Args:
        see: Asks the server.
        draw: Draws what it said.
        title: Above it, with the time.
        interval_s: Between two looks.
        looks: How many; None for no end.

    Raises:
        BlockyardError: The server refuses; at the first look also that it does not answer.
    """
    before, now = None, Look(time.monotonic(), see())
    line = _line(title)
    for number in itertools.count(1):
        yield Group(Text(line), draw(now, before))
        if number == looks:
            return
        time.sleep(interval_s)
        try:
            before, now = now, Look(time.monotonic(), see())
            line = _line(title)
        except BlockyardError as error:
            if not is_passing(error):
                raise
            line = f"{line.partition(', no answer since')[0]}, no answer since"


def _line(title: str) -> str:
    return f"{title}: {datetime.now().astimezone():%H:%M:%S}"
