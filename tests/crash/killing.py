"""Killing a server where it hurts: at a random moment, inside an append, or while a snapshot is written.

What it is about to do is seen from its files, looked at in a tight loop; whether the kill fell inside is seen
from what it left there.

    log of the journal     | head 32 bytes | frame | frame | fra        a frame: head 24 bytes, page 4096
    snapshots/             7-1200.snapshot  7-1500.<process>.part       gone once the snapshot is in place
"""

import contextlib
import os
import random
import signal
import struct
import time
from enum import StrEnum

from crash.server import CrashingServer

LONGEST_WAIT_S = 5.0
"""For something to happen; then the kill is one like any other."""

_LOG_HEAD_BYTES = 32
_FRAME_BYTES = 24 + 4096
_FRAME_HEAD = struct.Struct(">II")
"""The page's number; and the pages of the database after the frame, 0 where its transaction goes on."""


class Moment(StrEnum):
    ANY = "at any moment"
    APPEND = "inside an append"
    SNAPSHOT = "inside a snapshot, with the process that writes it"
    BESIDE_SNAPSHOT = "inside a snapshot, whose process lives on"
    START = "at any moment, and again as it starts"


def kill(server: CrashingServer, moment: Moment, draw: random.Random) -> Moment:
    """Kill ``server`` at ``moment``, if it can be caught there; returns where it was."""
    time.sleep(draw.uniform(0.0, 0.5))  # whatever else: how far it has come is drawn
    match moment:
        case Moment.ANY | Moment.START:
            server.kill()
            return moment
        case Moment.APPEND:
            return Moment.APPEND if _kill_in_append(server) else Moment.ANY
    is_inside = _kill_in_snapshot(server, with_writer=moment is Moment.SNAPSHOT)
    return moment if is_inside else Moment.ANY


def _kill_in_append(server: CrashingServer) -> bool:
    """Whether the log ends inside a transaction, and that is this life's: the log has grown before."""
    log = os.open(server.wal, os.O_RDONLY)
    try:
        begin = os.fstat(log).st_size
        deadline_s = time.monotonic() + LONGEST_WAIT_S
        while time.monotonic() < deadline_s:
            size = os.fstat(log).st_size
            begin = min(begin, size)  # it was folded into the database
            if size > begin and _goes_on(log, size):
                os.kill(server.process_id, signal.SIGKILL)  # now: the rest of the append takes microseconds
                break
        server.kill()
        size = os.fstat(log).st_size
        is_torn = (size - _LOG_HEAD_BYTES) % _FRAME_BYTES != 0
        return size > begin and (is_torn or _goes_on(log, size))
    finally:
        os.close(log)


def _goes_on(log: int, size: int) -> bool:
    """Whether the last whole frame of a log of ``size`` bytes is not the last of its transaction."""
    num_frames = (size - _LOG_HEAD_BYTES) // _FRAME_BYTES
    if num_frames < 1:
        return False
    head = os.pread(log, _FRAME_HEAD.size, _LOG_HEAD_BYTES + (num_frames - 1) * _FRAME_BYTES)
    return len(head) == _FRAME_HEAD.size and _FRAME_HEAD.unpack(head)[1] == 0


def _kill_in_snapshot(server: CrashingServer, *, with_writer: bool) -> bool:
    """Whether the snapshot was still being written when its writer, or else the server, was dead."""
    known = unfinished_snapshots(server)
    deadline_s = time.monotonic() + LONGEST_WAIT_S
    found: set[str] = set()
    while not found and time.monotonic() < deadline_s:
        found = unfinished_snapshots(server) - known
    if with_writer:
        for name in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(name.split(".")[-2]), signal.SIGKILL)
        server.kill()
        return bool(found & unfinished_snapshots(server))
    server.kill()
    return bool(found)


def unfinished_snapshots(server: CrashingServer) -> set[str]:
    """The names of files that are being written, or were when their writer was killed."""
    folder = server.path / "snapshots"
    return {name for name in os.listdir(folder) if name.endswith(".part")}  # noqa: PTH208 - half the time
