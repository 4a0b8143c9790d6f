"""The number of a journal's last append, in a small mapped file: what is written there survives the process.

SQLite drops the end of a damaged log without a word; this file tells that there was more.
"""

import mmap
import struct
from pathlib import Path

from blockyard.server.journal.errors import RESTORE, DamagedJournal, JournalError

_TURN = struct.Struct("<Q")


class TurnMark:
    """The mark at ``path``, made with ``turn`` if there is none.

    Args:
        path: Of its file.
        turn: The number of the last append that the journal has.

    Raises:
        DamagedJournal: More were acknowledged, or it is none.
        JournalError: It cannot be written.
    """

    def __init__(self, path: Path, turn: int) -> None:
        check_mark(path, turn)
        try:
            if not path.exists():
                beside = path.with_suffix(".new")
                beside.write_bytes(_TURN.pack(turn))
                beside.replace(path)
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), _TURN.size)
        except OSError as error:
            raise JournalError(f"{path} cannot be written: {error.strerror}") from error

    def note(self, turn: int) -> None:
        """``turn`` is the last append."""
        self._map[:] = _TURN.pack(turn)

    def close(self) -> None:
        """The journal is closed."""
        self._map.close()


def check_mark(path: Path, turn: int) -> None:
    """Refuse a journal that ends with ``turn`` where the mark at ``path``, if there is one, is beyond it.

    Raises:
        DamagedJournal: It is, or it is none.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) != _TURN.size:
        raise DamagedJournal(f"{path} is not as it was written. {_go_on(path)}")
    (marked,) = _TURN.unpack(content)
    if marked > turn:
        raise DamagedJournal(
            f"the journal ends with append {turn}, and {marked} were acknowledged: its end is lost. "
            f"{_go_on(path)}"
        )


def _go_on(path: Path) -> str:
    return f"{RESTORE} To go on from what is left, delete {path}"
