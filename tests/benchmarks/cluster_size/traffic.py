"""What nodes and NATS servers send each other in a second, counted from what is really written.

node --1--> leader --r-1--> replicas                 a heartbeat, or a batch
            leader --n----> nodes                    heartbeats are followed by every node
            leader --1----> standby                  batches by one
"""

from dataclasses import dataclass

from blockyard.core.commands import Admission, Step, StepCommit, StepExtend
from blockyard.core.ids import LeaseId, SequenceHandle, SequenceId
from blockyard.server.cluster.entries import Entry, EntryKind, Session
from blockyard.server.cluster.heartbeat import BEATS_A_LEASE
from blockyard.server.cluster.node_word import NodeWord
from blockyard.server.cluster.reader import HEARTBEAT_S
from blockyard.server.journal.command_codec import encode_command, join_batch

FRAME_BYTES = 120
"""Around a message: the protocol's line, the subject, the expected sequence; about."""
ACK_BYTES = 120
"""Of the acknowledgement, likewise."""
GROUP_BEATS_A_SECOND = 1
"""Of the leader of a group of replicas in NATS to each of the others, where nothing else is said."""
ADMITTED_BLOCKS = 125
"""Of a prompt of 2,000 tokens, in blocks of 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one pool's engine does: steps of ``num_sequences``, and in each so many prompts are admitted."""

    steps_a_second: float
    num_sequences: int
    admitted_a_step: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    num_nodes: int
    num_pools: int
    num_replicas: int
    lease_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """In a second."""

    messages: float
    num_bytes: float

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(messages=self.messages + other.messages, num_bytes=self.num_bytes + other.num_bytes)

    def times(self, count: float) -> "Rate":
        return Rate(messages=self.messages * count, num_bytes=self.num_bytes * count)


def step_bytes(work: Workload) -> int:
    """A step as it is written: every sequence is committed and extended, and a 16th of them fill a block."""
    handles = [SequenceHandle(number) for number in range(10_000, 10_000 + work.num_sequences)]
    lengths = [2_000 + number for number in range(work.num_sequences)]
    hashes = {handle: [bytes(32)] for handle in handles[::16]}
    step = Step(
        lease_id=LeaseId("0123456789abcdef"),
        step_id=1_000_000,
        commit=StepCommit(sequences=handles, num_computed_tokens=lengths),
        extend=StepExtend(sequences=handles, num_tokens=lengths, block_hashes=hashes),
    )
    whole = len(_batch(encode_command(step, 1_800_000_000_000)))
    admission = Admission(
        sequence_id=SequenceId("0123456789abcdef"),
        num_tokens=16 * ADMITTED_BLOCKS,
        block_hashes=[bytes(32)] * ADMITTED_BLOCKS,
    )
    admitting = Step(lease_id=step.lease_id, step_id=step.step_id, admit=[admission])
    return int(whole + work.admitted_a_step * len(encode_command(admitting, 1_800_000_000_000)))


def heartbeat_bytes() -> int:
    """What a node says of itself."""
    word = NodeWord(
        url="http://node-100.blockyard.internal:8484",
        session=Session("0123456789abcdef"),
        num_owned=10,
        num_followed=10,
    )
    return len(word.encode())


def heartbeats(cluster: Cluster) -> dict[str, Rate]:
    """Those of all nodes: written, and followed."""
    beats = cluster.num_nodes * BEATS_A_LEASE * 1_000 / cluster.lease_ms
    size = heartbeat_bytes() + FRAME_BYTES
    return {
        "written": Rate(messages=2 * beats, num_bytes=beats * (size + ACK_BYTES)),
        "replicated": Rate(messages=beats, num_bytes=beats * size).times(cluster.num_replicas - 1),
        "followed": Rate(messages=beats, num_bytes=beats * size).times(cluster.num_nodes),
    }


def batches(cluster: Cluster, work: Workload) -> dict[str, Rate]:
    """Those of all pools: written, and followed by one standby each."""
    steps = cluster.num_pools * work.steps_a_second
    size = step_bytes(work) + FRAME_BYTES
    return {
        "written": Rate(messages=2 * steps, num_bytes=steps * (size + ACK_BYTES)),
        "replicated": Rate(messages=steps, num_bytes=steps * size).times(cluster.num_replicas - 1),
        "followed": Rate(messages=steps, num_bytes=steps * size),
    }


def idle(cluster: Cluster) -> dict[str, Rate]:
    """What is said where there is nothing to say: by groups of replicas, and to whoever follows a stream."""
    num_streams = cluster.num_pools + 3  # and the buckets
    num_followers = cluster.num_pools + 2 * cluster.num_nodes
    groups = num_streams * (cluster.num_replicas - 1) * GROUP_BEATS_A_SECOND
    return {
        "replicated": Rate(messages=2 * groups, num_bytes=2 * groups * FRAME_BYTES),
        "followed": Rate(
            messages=num_followers / HEARTBEAT_S, num_bytes=num_followers * FRAME_BYTES / HEARTBEAT_S
        ),
    }


def _batch(entry: bytes) -> bytes:
    return Entry(kind=EntryKind.BATCH, ownership=1, number=1, payload=join_batch([entry])).encode()
