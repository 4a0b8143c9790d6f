"""From a journal back to pools: the snapshot, then every command after it, through `Pool.apply` once more."""

from dataclasses import dataclass

import structlog

from blockyard.core.commands import Command
from blockyard.core.errors import BlockyardError
from blockyard.core.pool import Pool
from blockyard.planning.planner import Plan
from blockyard.server.journal.errors import DamagedJournal
from blockyard.server.journal.interface import Journal, PoolKey, StoredPool
from blockyard.server.journal.line import Line, commands_after
from blockyard.server.journal.pool_state import decode_definition, decode_state

log = structlog.get_logger("blockyard.journal")


@dataclass(slots=True)
class RecoveryProgress:
    """How far a recovery has come. Written by its thread, read and cancelled by any.

    Attributes:
        num_commands: To be replayed in all; 0 while that is not known.
        num_replayed_commands: Of these, those that are done.
        is_cancelled: Whether it is to end early.
    """

    num_commands: int = 0
    num_replayed_commands: int = 0
    is_cancelled: bool = False

    def cancel(self) -> None:
        """End the recovery at its next command."""
        self.is_cancelled = True

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
    """A pool that goes on from what is stored of it; ``line`` is as far as it has come."""

    name: str
    pool: Pool
    plan: Plan | None
    line: Line


def recover(journal: Journal, progress: RecoveryProgress) -> list[RecoveredPool]:
    """All pools of ``journal``, as they were when their last commands were appended.

    Raises:
        DamagedJournal, NewerJournal: Something of it cannot be read as it was written.
        RecoveryCancelled: It was cancelled.
    """
    journal.check()
    begun = [(stored, _base(journal, stored)) for stored in journal.pools()]
    for stored, base in begun:
        progress.num_commands += max(0, journal.last_number(stored.key) - base.line.number)
    for stored, base in begun:
        _replay(journal, stored, base, progress)
    return [base for _, base in begun]


def recover_pool(journal: Journal, key: PoolKey) -> RecoveredPool | None:
    """One pool of ``journal``, likewise; None if it is dropped. Raises as `recover`."""
    for stored in journal.pools():
        if stored.key == key:
            base = _base(journal, stored)
            _replay(journal, stored, base, RecoveryProgress())
            return base
    return None


def _base(journal: Journal, stored: StoredPool) -> RecoveredPool:
    """What the records go on from: the latest snapshot, or the pool as it was created."""
    config, plan = decode_definition(stored.name, stored.definition)
    try:
        snapshot = journal.snapshot(stored.key)
    except DamagedJournal as error:
        raise DamagedJournal(f"pool {stored.name!r}: {error}") from error
    if snapshot is None:
        pool, line = Pool(config), Line(stored.key)
    else:
        pool = decode_state(stored.name, snapshot.state)
        line = Line(stored.key, snapshot.number, snapshot_number=snapshot.number)
    return RecoveredPool(name=stored.name, pool=pool, plan=plan, line=line)


def _replay(journal: Journal, stored: StoredPool, base: RecoveredPool, progress: RecoveryProgress) -> None:
    """Bring ``base`` up to the last command that is stored. Raises as `recover`."""
    for now_ms, command in commands_after(journal, stored, base.line):
        apply_again(base.pool, now_ms, command)
        progress.num_replayed_commands += 1
        if progress.is_cancelled:
            raise RecoveryCancelled


def apply_again(pool: Pool, now_ms: int, command: Command) -> None:
    """Once more, with the same outcome: also where that was a refusal, or a mistake of ours."""
    try:
        pool.apply(command, now_ms)
    except BlockyardError:
        pass
    except Exception:
        log.exception("a command fails again in its replay, as it did before", command=type(command).__name__)
