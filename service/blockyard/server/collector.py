"""Python's garbage collector, kept from looking at what stays.

A full collection goes through every object there is: at 100,000 sequences it would hold up all callers for a
tenth of a second. Nearly all garbage here goes by reference counts, at once; what a call leaves in cycles, if
anything, is young. So only the young are looked through, and those that survive are frozen: no collection
sees them again. What becomes a cycle after it was frozen would stay for good; but connections, streams,
refusals and sequences leave none, which a test holds a server to.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

COLLECT_AFTER = 2_000
"""Objects made and not freed, until cycles are looked for among them: less than a millisecond."""


@contextmanager
def young_collections() -> Iterator[None]:
    """To the end of the block, collect only what was made since the last collection."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *before[1:])
    gc.callbacks.append(_freeze)
    try:
        yield
    finally:
        gc.callbacks.remove(_freeze)
        gc.set_threshold(*before)
        gc.unfreeze()


def keep() -> None:
    """What there is stays: a pool was made, and its million entries need not be looked at even once.

    Does nothing outside `young_collections`.
    """
    if _freeze in gc.callbacks:
        gc.freeze()


@contextmanager
def no_collections() -> Iterator[None]:
    """Without the garbage collector: all that a replay makes is kept, and would be looked through often."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _freeze(phase: str, _: dict[str, Any]) -> None:
    if phase == "stop":
        gc.freeze()
