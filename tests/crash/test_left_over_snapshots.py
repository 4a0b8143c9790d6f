"""The process that takes a snapshot outlives its server, and goes on while another server is at work."""

import contextlib
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from crash.client_process import LoggingClient
from crash.harness import check
from crash.killing import unfinished_snapshots
from crash.sending import Sender
from crash.server import CrashingServer
from server_process import TIMEOUT_S


def num_forgotten(server: CrashingServer, key: str) -> int:
    """Up to where the records of the pool of ``key`` are gone: a snapshot has them."""
    with closing(sqlite3.connect(f"file:{server.path}/journal.sqlite?mode=ro", uri=True)) as database:
        found = database.execute("SELECT forgotten FROM pools WHERE key = ?", (key,)).fetchone()
    return int(found[0])


def stop_a_writer(server: CrashingServer, client: LoggingClient) -> str:
    """The name of the file that a snapshot process was writing when it was stopped."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        client.call()
        for name in unfinished_snapshots(server):
            with contextlib.suppress(ProcessLookupError):
                os.kill(writer_of(name), signal.SIGSTOP)
                time.sleep(0.01)  # it takes a moment to stop
                if name in unfinished_snapshots(server):
                    return name
                os.kill(writer_of(name), signal.SIGCONT)  # it had just finished
    raise AssertionError("no snapshot was taken")


def writer_of(name: str) -> int:
    return int(name.split(".")[-2])


def await_end(process_id: int) -> None:
    """Of a process that is not our child."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        time.sleep(0.01)
    raise AssertionError(f"process {process_id} does not end")


def test_one_that_is_late_does_not_replace_a_newer_snapshot(tmp_path: Path) -> None:
    with CrashingServer(tmp_path / "data", "--snapshot-commands", "300") as server:
        server.start()
        server.make_pools()
        client = LoggingClient(Sender(server.url), tmp_path / "client.log", 1)
        name = stop_a_writer(server, client)
        writer = writer_of(name)
        try:
            server.kill()
            server.start()
            key, _, number = name.split(".")[0].partition("-")
            deadline_s = time.monotonic() + TIMEOUT_S
            while num_forgotten(server, key) <= int(number):  # until there is a newer one
                assert time.monotonic() < deadline_s
                client.call()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(writer, signal.SIGCONT)
            client.close()
        await_end(writer)
        server.kill()
        server.start()
        check(server, {"client": client.ledger})


def test_a_start_removes_what_a_killed_writer_had_begun(tmp_path: Path) -> None:
    with CrashingServer(tmp_path / "data", "--snapshot-commands", "300") as server:
        server.start()
        server.make_pools()
        client = LoggingClient(Sender(server.url), tmp_path / "client.log", 1)
        name = stop_a_writer(server, client)
        os.kill(writer_of(name), signal.SIGKILL)
        client.close()
        server.kill()
        server.start()
        assert name not in unfinished_snapshots(server)
