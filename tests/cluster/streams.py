"""A pool as a stream tells of it, for tests: its messages written by hand."""

from blockyard.core.commands import Admission, Allocate, CreateLease, PoolCommand
from blockyard.core.config import GroupConfig, PoolConfig
from blockyard.core.ids import LeaseId, SequenceId
from blockyard.core.pool import Pool
from blockyard.server.cluster.entries import Entry, EntryKind, Holder, Session
from blockyard.server.cluster.followed_pool import FollowedPool
from blockyard.server.cluster.reader import Message
from blockyard.server.cluster.registry import RegisteredPool
from blockyard.server.journal.command_codec import encode_command, join_batch
from blockyard.server.journal.interface import PoolKey
from blockyard.server.journal.pool_state import encode_definition

CONFIG = PoolConfig.of(num_blocks=2_000, groups=[GroupConfig(kind="full_attention", block_size=4)])
REGISTERED = RegisteredPool(
    name="pool", key=PoolKey(7), definition=encode_definition(CONFIG, None), node="a", ownership=1
)
A, B = Holder("a", Session("a1")), Holder("b", Session("b1"))
LEASE = LeaseId("lease")


def commands(begin: int, end: int) -> list[PoolCommand]:
    """Commands ``begin`` to ``end`` of a life: a lease, then a sequence each."""
    life: list[PoolCommand] = [CreateLease(lease_id=LEASE, holder="test", ttl_ms=600_000)]
    for n in range(end):
        admission = Admission(sequence_id=SequenceId(f"s{n}"), num_tokens=1 + n % 9)
        life.append(Allocate(lease_id=LEASE, admission=admission))
    return life[begin:end]


def batch(ownership: int, begin: int, end: int) -> Entry:
    """Commands ``begin`` to ``end`` as one entry of the owner of this number."""
    entries = [encode_command(command, 1_000) for command in commands(begin, end)]
    return Entry(kind=EntryKind.BATCH, ownership=ownership, number=end, payload=join_batch(entries))


def pool_after(num_commands: int) -> Pool:
    """A pool that was given the first so many, without a stream."""
    pool = Pool(CONFIG)
    for command in commands(0, num_commands):
        pool.apply(command, 1_000)
    return pool


def followed(*entries: Entry, after: FollowedPool | None = None) -> FollowedPool:
    """A pool that has read ``entries``, from its first message on or behind ``after``."""
    pool = after or FollowedPool.begin(REGISTERED, None)
    for entry in entries:
        pool.read(Message(pool.sequence + 1, "subject", entry.encode(), {}))
    return pool
