"""Batches of every sort, from pools that were given commands by hand; the same bytes each time."""

from collections.abc import Iterator
from typing import Any

from blockyard.core.commands import (
    Admission,
    Allocate,
    Commit,
    CreateLease,
    Free,
    PoolCommand,
    ResetPrefixCache,
)
from blockyard.core.config import EventsConfig, GroupConfig, HashForm, PoolConfig
from blockyard.core.extra_keys import Extras, Lora, MultiModalFeature
from blockyard.core.ids import LeaseId, SequenceId
from blockyard.core.pool import Pool
from blockyard.server.events.codec import EventCodec

STREAM_ID = "0123456789abcdef"
LEASE = LeaseId("lease")
FULL = GroupConfig(kind="full_attention", block_size=4)
WINDOW = GroupConfig(kind="sliding_window", block_size=4, sliding_window=6)
HOST = GroupConfig(kind="mla_attention", block_size=4, is_host_resident=True)


class WorkedPool:
    """A pool of 12 blocks with one lease, in whose time each command takes a quarter of a second."""

    def __init__(self, *groups: GroupConfig, events: EventsConfig, **options: Any) -> None:
        self.pool = Pool(PoolConfig.of(num_blocks=12, groups=groups, events=events, **options))
        self._now_ms = 1_764_000_000_000
        self.do(CreateLease(lease_id=LEASE, holder="test", ttl_ms=60_000))

    def do(self, command: PoolCommand) -> None:
        self.pool.apply(command, self._now_ms)
        self._now_ms += 250

    def run(self, name: str, num_tokens: int, **content: Any) -> None:
        """A sequence from its beginning to its end."""
        admission = Admission(sequence_id=SequenceId(name), num_tokens=num_tokens, **content)
        self.do(Allocate(lease_id=LEASE, admission=admission))
        self.do(Commit(lease_id=LEASE, sequence_id=SequenceId(name), num_computed_tokens=num_tokens))
        self.do(Free(lease_id=LEASE, sequence_ids=[SequenceId(name)]))


def extras(number: int) -> Extras:
    return Extras(
        lora=Lora(f"adapter-{number}", "/adapters"),
        mm_features=(MultiModalFeature(offset=2, length=5, identifier="image"),),
        cache_salt="a salt",
    )


def worked_pools() -> Iterator[tuple[str, WorkedPool]]:
    """Pools, by what they show, whose events were not taken yet."""
    plain = WorkedPool(FULL, events=EventsConfig())
    for number in range(4):
        plain.run(f"s{number}", 14, token_ids=list(range(100 * number, 100 * number + 14)))
    plain.do(ResetPrefixCache())
    yield "stored, removed, cleared", plain

    keyed = WorkedPool(FULL, events=EventsConfig(rank=3))
    for number in range(3):
        keyed.run(f"s{number}", 17, token_ids=list(range(17)), extras=extras(number))
    yield "extra keys and a rank", keyed

    hashed = WorkedPool(FULL, WINDOW, events=EventsConfig(hash_form=HashForm.BYTES))
    for number in range(3):
        hashes = [bytes([number, position]) * 16 for position in range(3)]
        hashed.run(f"s{number}", 13, block_hashes=hashes)
    yield "whole hashes without tokens, in a window too", hashed

    host = WorkedPool(HOST, FULL, events=EventsConfig(), num_host_blocks=8)
    host.run("s", 9, block_hashes=[b"one", b"two"], event_token_ids=[2**40, *range(7)])
    yield "blocks in host memory, tokens beside hashes", host


def worked_payloads() -> Iterator[tuple[str, bytes]]:
    """Each batch of `worked_pools` as it is sent."""
    for name, worked in worked_pools():
        assert worked.pool.events is not None
        codec = EventCodec(worked.pool.config, STREAM_ID)
        for batch in worked.pool.events.take():
            yield f"{name}, {batch.number}", codec.msgpack(batch)
