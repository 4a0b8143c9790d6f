"""A pool as its stream tells of it, up to one message: the same on every node that has read so far."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog

from blockyard.core.pool import Pool
from blockyard.planning.planner import Plan
from blockyard.server.cluster.entries import Entry, EntryKind, Holder
from blockyard.server.cluster.reader import Message
from blockyard.server.cluster.registry import RegisteredPool
from blockyard.server.cluster.stored_snapshot import StoredSnapshot
from blockyard.server.cluster.tenure import Tenure
from blockyard.server.journal.command_codec import decode_batch
from blockyard.server.journal.errors import DamagedJournal, NewerJournal
from blockyard.server.journal.line import Line
from blockyard.server.journal.pool_state import decode_definition, decode_state, encode_state
from blockyard.server.journal.recovery import RecoveredPool, apply_again

log = structlog.get_logger("blockyard.cluster")


@dataclass(slots=True, kw_only=True)
class FollowedPool:
    """A pool behind the message of ``sequence``.

    Attributes:
        name: Its name.
        pool: Its state.
        plan: What it was made from; None for sizes.
        line: How many commands it was given.
        sequence: Of the last message that was read.
        ownership: Number of the latest owner; 0 where there never was one.
        holder: That owner; None where there is none, or it has handed the pool over.
        heir: The node that it was handed over to.
        is_deleted: Whether it is no more.
    """

    name: str
    pool: Pool
    plan: Plan | None
    line: Line
    sequence: int = 0
    ownership: int = 0
    holder: Holder | None = None
    heir: str | None = None
    is_deleted: bool = False
    _parts: list[bytes] = field(default_factory=list)

    @property
    def tenure(self) -> Tenure:
        """Who owns it."""
        return Tenure(holder=self.holder, heir=self.heir, is_deleted=self.is_deleted)

    @classmethod
    def begin(cls, registered: RegisteredPool, snapshot: StoredSnapshot | None) -> "FollowedPool":
        """What the stream goes on from: a snapshot, or the pool as it was created.

        Raises:
            DamagedJournal: The snapshot that the registry names is missing, or is not as it was written.
            NewerJournal: This version cannot read it.
        """
        name, key = registered.name, registered.key
        config, plan = decode_definition(name, registered.definition)
        if snapshot is None and registered.snapshot:
            raise DamagedJournal(
                f"pool {name!r}: its snapshot behind message {registered.snapshot} is missing"
            )
        if snapshot is None:
            return cls(name=name, pool=Pool(config), plan=plan, line=Line(key))
        return cls(
            name=name,
            pool=decode_state(name, snapshot.state),
            plan=plan,
            line=Line(key, snapshot.number, snapshot_number=snapshot.number),
            sequence=snapshot.sequence,
            ownership=snapshot.ownership,
            holder=snapshot.holder,
        )

    def read(self, message: Message) -> None:
        """Go on with the next message. Raises as `steps`."""
        for _ in self.steps(message):
            pass

    def steps(self, message: Message) -> Iterator[None]:
        """Go on with the next message, a command at each step: a batch may have as many as a second's work.

        Not repeatable: the pool is of no use where this raises, or is not gone through.

        Raises:
            DamagedJournal: It is not the next one, or is not what its writer can have written.
            NewerJournal: A later version wrote it.
        """
        if message.sequence != self.sequence + 1:
            raise DamagedJournal(
                f"pool {self.name!r}: message {self.sequence + 1} is missing, {message.sequence} came"
            )
        try:
            entry = Entry.decode(message.data)
        except ValueError as error:
            raise NewerJournal(f"pool {self.name!r}, message {message.sequence}: {error}") from error
        if entry.kind is EntryKind.PART:
            self._parts.append(entry.payload)
        else:
            parts, self._parts = self._parts, []
            yield from self._heed(entry, parts)
        self.sequence = message.sequence

    def _heed(self, entry: Entry, parts: list[bytes]) -> Iterator[None]:
        match entry.kind:
            case EntryKind.BATCH:
                yield from self._apply(entry, b"".join([*parts, entry.payload]))
            case EntryKind.TAKE_OVER:
                self.ownership, self.holder, self.heir = entry.ownership, entry.holder, None
            case EntryKind.HAND_OVER:
                self.holder, self.heir = None, entry.heir
            case EntryKind.DELETED:
                self.is_deleted = True

    def _apply(self, entry: Entry, payload: bytes) -> Iterator[None]:
        line = self.line
        try:
            batch = list(decode_batch(payload))
        except ValueError as error:
            raise NewerJournal(
                f"pool {self.name!r}: commands up to {entry.number} were written by another version: {error}"
            ) from error
        if line.number + len(batch) != entry.number or entry.ownership != self.ownership:
            raise DamagedJournal(
                f"pool {self.name!r}: commands up to {entry.number} of owner {entry.ownership} do not follow "
                f"command {line.number} of owner {self.ownership}"
            )
        for now_ms, command in batch:
            apply_again(self.pool, now_ms, command)
            yield
        line.number = entry.number
        line.num_bytes += len(payload)

    def snapshot(self) -> StoredSnapshot:
        """As it is now: behind the last message that does not belong to a batch whose end has not come."""
        return StoredSnapshot(
            sequence=self.sequence - len(self._parts),
            number=self.line.number,
            ownership=self.ownership,
            holder=self.holder,
            state=encode_state(self.pool),
        )

    def recovered(self) -> RecoveredPool:
        """For whoever owns it from now on."""
        return RecoveredPool(name=self.name, pool=self.pool, plan=self.plan, line=self.line)
