"""A snapshot as a file: written beside its place, made durable, then put there in one step.

    magic 8 bytes | format 4 | number 8 | length 8 | checksum 16 | state

Numbers are little-endian; the checksum is XXH3-128 of all else.
"""

import os
import struct
from pathlib import Path

import xxhash

from blockyard.server.journal.errors import RESTORE, AppendFailed, DamagedJournal, NewerJournal
from blockyard.server.journal.interface import Snapshot

SNAPSHOT_FILE_FORMAT = 1

_MAGIC = b"blkysnap"
_HEAD = struct.Struct("<8sIQQ")
_CHECKSUM_BYTES = 16


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Put ``snapshot`` at ``path``: whole and durable, or not at all.

    Raises:
        AppendFailed: It could not be written.
    """
    head = _HEAD.pack(_MAGIC, SNAPSHOT_FILE_FORMAT, snapshot.number, len(snapshot.state))
    beside = path.with_suffix(f".{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(head)
            file.write(_checksum(head, snapshot.state))
            file.write(snapshot.state)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise AppendFailed(f"the snapshot {path} could not be written: {error.strerror}") from error


def read_snapshot(path: Path) -> Snapshot:
    """The snapshot at ``path``.

    Raises:
        FileNotFoundError: There is none.
        DamagedJournal: It is not what was written.
        NewerJournal: Its format is of a later version.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedJournal(f"the snapshot {path} cannot be read: {error.strerror}") from error
    begin = _HEAD.size + _CHECKSUM_BYTES
    head, checksum, state = content[: _HEAD.size], content[_HEAD.size : begin], content[begin:]
    if len(content) < begin or not head.startswith(_MAGIC):
        raise _damaged(path, "is none")
    _, found_format, number, length = _HEAD.unpack(head)
    if checksum != _checksum(head, state) or length != len(state):
        raise _damaged(path, "is not as it was written: its checksum does not fit")
    if found_format > SNAPSHOT_FILE_FORMAT:
        raise NewerJournal(
            f"the snapshot {path} is of format {found_format}, and this version reads up to "
            f"{SNAPSHOT_FILE_FORMAT}: start the version that wrote it"
        )
    return Snapshot(number=number, state=state)


def _damaged(path: Path, what: str) -> DamagedJournal:
    return DamagedJournal(f"the snapshot {path} {what}. {RESTORE}")


def _checksum(head: bytes, state: bytes) -> bytes:
    digest = xxhash.xxh3_128(head)
    digest.update(state)
    return digest.digest()
