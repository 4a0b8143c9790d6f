"""The checker catches what is planted: in a journal from which something was taken, and in what is served."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from blockyard.core.commands import AllocateBlocks, Command, Idempotent
from blockyard.server.journal.command_codec import decode_batch, encode_command, join_batch
from blockyard.server.journal.data_dir import DataDir
from blockyard.server.journal.sqlite_journal import SqliteJournal
from crash.calls import Answer, Call, Verb
from crash.checker import Checker, PoolUse, two_owners
from crash.drawn_pools import BLOCK_SIZE, PLAIN
from crash.ledger import HeldSequence, Ledger
from crash.sending import Sender
from crash.server import CrashingServer
from server_process import run

NAME = "client"


@dataclass(slots=True)
class Script:
    """A client that makes the calls that a test wants, and keeps its ledger."""

    sender: Sender
    ledger: Ledger
    num_calls: int = 0
    lease_id: str = ""

    def call(self, verb: Verb, **fields: Any) -> Answer:
        self.num_calls += 1
        body = fields if verb is Verb.LEASE else {"lease_id": self.lease_id, **fields}
        call = Call(
            number=self.num_calls, verb=verb, pool=PLAIN.name, key=f"{NAME}-{self.num_calls}", body=body
        )
        answer = self.sender.send(call)
        self.ledger.note(call)
        self.ledger.note(answer)
        assert answer.is_success, answer
        return answer

    def admit(self, sequence_id: str, num_blocks: int = 3) -> None:
        self.call(Verb.ALLOCATE, sequence_id=sequence_id, num_tokens=num_blocks * BLOCK_SIZE, block_hashes=[])


@contextmanager
def killed_after(folder: Path, play: Callable[[Script], object]) -> Iterator[tuple[CrashingServer, Ledger]]:
    """A server that was killed after the calls of ``play``, which come after two sequences and raw blocks."""
    with CrashingServer(folder / "data") as server:
        server.start()
        server.make_pools()
        script = Script(Sender(server.url), Ledger())
        script.lease_id = script.call(Verb.LEASE, holder=NAME, ttl_ms=60_000).body["lease_id"]
        script.admit("first")
        script.admit("second")
        script.call(Verb.TAKE, num_blocks=2)
        play(script)
        script.sender.close()
        server.kill()
        yield server, script.ledger


def complaints(server: CrashingServer, ledger: Ledger) -> str:
    """What the checker finds once ``server`` is started again."""
    server.start()
    checker = Checker(partial(Sender, server.url), {NAME: ledger})
    try:
        return "\n".join(checker.complaints())
    finally:
        checker.close()


def lose_last_record(server: CrashingServer) -> None:
    """Take it out of the journal, and the mark away that would tell."""
    with closing(sqlite3.connect(server.path / "journal.sqlite")) as database:
        deleted = database.execute("DELETE FROM records WHERE position = (SELECT max(position) FROM records)")
        assert deleted.rowcount == 1
        database.commit()


def forget_mark(server: CrashingServer) -> None:
    (server.path / "journal.mark").unlink()


def rewrite_last_command(server: CrashingServer, change: Callable[[Command], Command]) -> None:
    """Have the journal say that the last command was another."""
    journal = SqliteJournal(DataDir(server.path))
    try:
        key = next(stored.key for stored in journal.pools() if stored.name == PLAIN.name)
        *_, last = journal.read(key, after=0)
    finally:
        journal.close()
    *earlier, (now_ms, command) = decode_batch(last.payload)
    again = [*earlier, (now_ms, change(command))]
    payload = join_batch([encode_command(each, at_ms) for at_ms, each in again])
    lose_last_record(server)
    forget_mark(server)
    journal = SqliteJournal(DataDir(server.path))
    try:
        journal.append([replace(last, payload=payload)])
    finally:
        journal.close()


def test_nothing_is_wrong_after_a_kill_alone(tmp_path: Path) -> None:
    with killed_after(tmp_path, lambda script: script.admit("last")) as (server, ledger):
        assert complaints(server, ledger) == ""


def test_a_server_whose_journal_lost_its_end_does_not_start(tmp_path: Path) -> None:
    with killed_after(tmp_path, lambda script: script.admit("last")) as (server, _):
        lose_last_record(server)
        done = run(*server.arguments)
        assert done.returncode == 1
        assert "its end is lost" in done.stderr


def test_a_lost_allocation_is_found(tmp_path: Path) -> None:
    with killed_after(tmp_path, lambda script: script.admit("last")) as (server, ledger):
        lose_last_record(server)
        forget_mark(server)
        assert "sequence last of pool plain is forgotten" in complaints(server, ledger)


def test_a_lost_extension_is_found(tmp_path: Path) -> None:
    with killed_after(tmp_path, lambda script: script.admit("first", 5)) as (server, ledger):
        lose_last_record(server)
        forget_mark(server)
        assert "has 3 blocks in group 0, and was given 5" in complaints(server, ledger)


def test_a_lost_commit_is_found(tmp_path: Path) -> None:
    def commit(script: Script) -> None:
        script.call(Verb.COMMIT, sequence_id="first", num_computed_tokens=40)

    with killed_after(tmp_path, commit) as (server, ledger):
        lose_last_record(server)
        forget_mark(server)
        assert "has num_committed_tokens 0 in place of 40" in complaints(server, ledger)


def test_a_freed_sequence_that_comes_back_is_found(tmp_path: Path) -> None:
    def free(script: Script) -> None:
        script.call(Verb.FREE, sequence_ids=["first"])

    with killed_after(tmp_path, free) as (server, ledger):
        lose_last_record(server)
        forget_mark(server)
        assert "sequence first of pool plain was freed, and is there" in complaints(server, ledger)


def test_raw_blocks_that_are_forgotten_or_come_back_are_found(tmp_path: Path) -> None:
    def give(script: Script) -> None:
        (book,) = script.ledger.leases.values()
        script.call(Verb.GIVE, block_ids=[next(iter(book.raw_blocks))])

    for number, play in enumerate([give, lambda script: script.call(Verb.TAKE, num_blocks=1)]):
        with killed_after(tmp_path / str(number), play) as (server, ledger):
            lose_last_record(server)
            forget_mark(server)
            assert "was given 2 sequences and" in complaints(server, ledger)


def test_a_lease_that_is_forgotten_or_comes_back_is_found(tmp_path: Path) -> None:
    def lease_more(script: Script) -> None:
        script.call(Verb.LEASE, holder=NAME, ttl_ms=60_000)

    def release(script: Script) -> None:
        script.call(Verb.RELEASE)

    for number, (play, complaint) in enumerate(
        [(lease_more, "of pool plain is forgotten"), (release, "was released, or never asked for")]
    ):
        with killed_after(tmp_path / str(number), play) as (server, ledger):
            lose_last_record(server)
            forget_mark(server)
            assert complaint in complaints(server, ledger)


def test_a_repeat_that_is_answered_otherwise_is_found(tmp_path: Path) -> None:
    def take_one_less(command: Command) -> Command:
        assert isinstance(command, Idempotent)
        assert isinstance(command.command, AllocateBlocks)
        fewer = replace(command.command, num_blocks=command.command.num_blocks - 1)
        return replace(command, command=fewer)

    def take(script: Script) -> None:
        script.call(Verb.TAKE, num_blocks=3)

    with killed_after(tmp_path, take) as (server, ledger):
        rewrite_last_command(server, take_one_less)
        assert "blocks/allocate client-5 of pool plain was answered (200" in complaints(server, ledger)


def test_a_step_whose_id_is_answered_otherwise_is_found(tmp_path: Path) -> None:
    def step(script: Script) -> None:
        script.call(
            Verb.STEP,
            step_id=1,
            commit={"sequences": [], "num_computed_tokens": []},
            free={"sequences": []},
            extend={"sequences": [], "num_tokens": [], "block_hashes": {}},
            admit=[],
        )
        script.admit("last")
        (book,) = script.ledger.leases.values()
        assert book.last_step is not None
        call, answer = book.last_step
        book.recent.clear()
        book.last_step = call, replace(answer, body={**answer.body, "num_free_blocks": 0})

    with killed_after(tmp_path, step) as (server, ledger):
        assert "step client-5 again 1 of pool plain was answered (200" in complaints(server, ledger)


def held(sequence_id: str, *block_hashes: str) -> HeldSequence:
    return HeldSequence(
        sequence_id=sequence_id,
        handle=1,
        num_tokens=16,
        num_committed_tokens=0,
        block_hashes=list(block_hashes),
        block_ids=[],
    )


def test_a_block_of_two_sequences_is_found_unless_they_share_its_content() -> None:
    shared = PoolUse(tables=[(held("a", "x"), "", [[5]]), (held("b", "x"), "", [[5]])])
    assert list(two_owners(shared)) == []
    of_two_tenants = PoolUse(tables=[(held("a", "x"), "red", [[5]]), (held("b", "x"), "blue", [[5]])])
    assert list(two_owners(of_two_tenants)) == ["block 5 has 2 owners: a, b"]
    unlike = PoolUse(tables=[(held("a", "x"), "", [[5]]), (held("b", "y"), "", [[5]])])
    assert list(two_owners(unlike)) == ["block 5 has 2 owners: a, b"]
    not_full = PoolUse(tables=[(held("a"), "", [[5]]), (held("b"), "", [[5]])])
    assert list(two_owners(not_full)) == ["block 5 has 2 owners: a, b"]
    elsewhere = PoolUse(tables=[(held("a", "x", "x"), "", [[5, 5]])])
    assert list(two_owners(elsewhere)) == ["block 5 has 2 owners: a, a"]
    in_two_groups = PoolUse(tables=[(held("a", "x"), "", [[5], [5]])])
    assert list(two_owners(in_two_groups)) == ["block 5 has 2 owners: a, a"]
    raw = PoolUse(tables=[(held("a", "x"), "", [[5]])], raw_blocks=[("l", [5])])
    assert list(two_owners(raw)) == ["block 5 has 2 owners: a, lease l"]
    dropped = PoolUse(tables=[(held("a", "x"), "", [[0]]), (held("b", "y"), "", [[0]])])
    assert list(two_owners(dropped)) == []
