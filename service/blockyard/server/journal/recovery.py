"""From a journal back to pools: the snapshot, then every command after it, through `Pool.apply` once more."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog

from blockyard.core.commands import Command
from blockyard.core.errors import BlockyardError
from blockyard.core.pool import Pool
from blockyard.planning.planner import Plan
from blockyard.server.journal.command_codec import Timed, decode_batch
from blockyard.server.journal.errors import RESTORE, DamagedJournal, NewerJournal
from blockyard.server.journal.group_commit import Line
from blockyard.server.journal.interface import Journal, PoolKey, StoredPool
from blockyard.server.journal.pool_state import decode_definition, decode_state

log = structlog.get_logger("blockyard.journal")


@dataclass(slots=True)
class Progress:
    """How far a recovery has come. Written by its thread, read by any.

    Attributes:
        num_commands: To be replayed in all; 0 while that is not known.
        num_replayed_commands: Of these, those that are done.
        is_cancelled: Set it to end the recovery early.
    """

    num_commands: int = 0
    num_replayed_commands: int = 0
    is_cancelled: threading.Event = field(default_factory=threading.Event)

    def figures(self) -> dict[str, int]:
        """For whoever asks meanwhile."""
        return {
            "num_commands": self.num_commands,
            "num_replayed_commands": self.num_replayed_commands,
        }


class RecoveryCancelled(Exception):
    """It was told to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredPool:
    """A pool as it was when its last command was appended."""

    name: str
    pool: Pool
    plan: Plan | None
    line: Line


def recover(journal: Journal, progress: Progress) -> list[RecoveredPool]:
    """All pools of ``journal``.

    Raises:
        DamagedJournal, NewerJournal: Something of it cannot be read as it was written.
        RecoveryCancelled: `Progress.is_cancelled` was set.
    """
    stored = journal.pools()
    bases = []
    for each in stored:
        pool, plan, line = _base(journal, each)
        bases.append((each, pool, plan, line))
        progress.num_commands += max(0, journal.last_number(each.key) - line.number)
    recovered = []
    for each, pool, plan, line in bases:
        for now_ms, command in commands_after(journal, each, line):
            _replay(pool, now_ms, command)
            progress.num_replayed_commands += 1
            if progress.is_cancelled.is_set():
                raise RecoveryCancelled
        recovered.append(RecoveredPool(name=each.name, pool=pool, plan=plan, line=line))
    return recovered


def recover_pool(journal: Journal, key: PoolKey) -> RecoveredPool | None:
    """One pool of ``journal``; None if it is dropped. Raises as `recover`."""
    for each in journal.pools():
        if each.key == key:
            pool, plan, line = _base(journal, each)
            for now_ms, command in commands_after(journal, each, line):
                _replay(pool, now_ms, command)
            return RecoveredPool(name=each.name, pool=pool, plan=plan, line=line)
    return None


def commands_after(journal: Journal, stored: StoredPool, line: Line) -> Iterator[Timed]:
    """The commands behind ``line``, which moves on with them.

    Raises:
        DamagedJournal: One is missing, or is not as it was written.
        NewerJournal: A later version wrote one.
    """
    for record in journal.read(stored.key, after=line.number):
        try:
            batch = list(decode_batch(record.payload))
        except ValueError as error:
            raise NewerJournal(
                f"record {record.number} of pool {stored.name!r} was written by another version: {error}. "
                "Start the version that wrote it"
            ) from error
        if line.number + len(batch) != record.number:
            raise DamagedJournal(
                f"commands {line.number + 1} to {record.number - len(batch)} of pool {stored.name!r} are "
                f"missing in the journal. {RESTORE}"
            )
        line.num_bytes += len(record.payload)
        for timed in batch:
            line.number += 1
            yield timed


def _base(journal: Journal, stored: StoredPool) -> tuple[Pool, Plan | None, Line]:
    """What the records go on from: the latest snapshot, or the pool as it was created."""
    config, plan = decode_definition(stored.name, stored.definition)
    snapshot = journal.snapshot(stored.key)
    if snapshot is None:
        return Pool(config), plan, Line(stored.key)
    pool = decode_state(stored.name, snapshot.state)
    return pool, plan, Line(stored.key, snapshot.number, snapshot_number=snapshot.number)


def _replay(pool: Pool, now_ms: int, command: Command) -> None:
    """Once more, with the same outcome: also where that was a refusal, or a mistake of ours."""
    try:
        pool.apply(command, now_ms)
    except BlockyardError:
        pass
    except Exception:
        log.exception("a command fails again in its replay, as it did before", command=type(command).__name__)
