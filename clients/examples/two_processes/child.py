"""A process that the launcher starts: it ends with the launcher, and of an error it leaves one line."""

import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path


def run_child(folder: Path, role: Callable[..., None], *arguments: object) -> None:
    """Call ``role``, in a process of its own. Exits with 1 where it fails: see `last_words`."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        role(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, the launcher tells it
        _words_of(folder, role).write_text(traceback.format_exception_only(error)[0])
        sys.exit(1)


def last_words(folder: Path, role: Callable[..., None]) -> str:
    """The first line of the error that a process of this role ended with last."""
    words = _words_of(folder, role)
    return words.read_text().splitlines()[0] if words.exists() else "it was killed"


def _words_of(folder: Path, role: Callable[..., None]) -> Path:
    return folder / f"{role.__name__}.error"


def _end_with_parent() -> None:
    """However the parent ends, SIGKILL included."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a child"
    parent.join()
    os._exit(1)
