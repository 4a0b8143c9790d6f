"""Which processor a process may run on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
CAN_PIN = len(CORES) > 1


@contextmanager
def pinned_to(number: int) -> Iterator[None]:
    """What is started inside runs on the ``number``-th processor alone, for good; we do until the end."""
    if not CAN_PIN:
        yield
        return
    os.sched_setaffinity(0, {CORES[number]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, CORES)
