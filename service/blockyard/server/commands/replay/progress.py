"""A progress bar on standard error while a replay runs, where somebody watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(num_requests: int) -> Iterator[Callable[[int], None]]:
    """What to call with the number of requests done. Without a terminal it does nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as progress:
        bar = progress.add_task("replaying", total=num_requests)
        yield lambda num_done: progress.update(bar, completed=num_done)
