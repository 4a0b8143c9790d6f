"""A pool whose events reach nobody for sure: schedulers at work, batches that get lost, restarts."""

import random
from collections.abc import Iterable
from itertools import chain

from blockyard.client.kv_events import ExternalHash, KvBatch, KvSnapshot
from blockyard.client.kv_mirror import KvMirror
from blockyard.core.commands import (
    Admission,
    Allocate,
    Commit,
    CreateLease,
    DeleteLease,
    Free,
    PoolCommand,
    RegisterWorker,
    ResetPrefixCache,
)
from blockyard.core.config import EventsConfig, GroupConfig, HashForm, PoolConfig, Publish
from blockyard.core.errors import InsufficientBlocks
from blockyard.core.hash_chain import external_int64
from blockyard.core.ids import LeaseId, SequenceId, WorkerId
from blockyard.core.kv_batch import Batch
from blockyard.core.pool import Pool
from blockyard.server.events.pool_stream import PoolStream

LEASE = LeaseId("lease")
BLOCK_SIZE = 4
WINDOW = GroupConfig(kind="sliding_window", block_size=BLOCK_SIZE, sliding_window=6)
FULL = GroupConfig(kind="full_attention", block_size=BLOCK_SIZE)


class FollowedPool:
    """Drawn by ``draw``, and so is all that happens in it."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._config = PoolConfig.of(
            num_blocks=draw.choice([12, 24, 60]),
            groups=draw.choice([[FULL], [FULL, WINDOW], [FULL, FULL]]),
            publish=draw.choice(list(Publish)),
            events=EventsConfig(hash_form=draw.choice(list(HashForm))),
            needs_all_workers=False,
        )
        self._max_batches = draw.choice([2, 8, 1_000])
        self._prompts = [[draw.randrange(1_000) for _ in range(40)] for _ in range(5)]
        self._now_ms = 0
        self._num_sequences = 0
        self._num_workers = 0
        self._live: list[SequenceId] = []
        self._pool = Pool(self._config)
        self._begin(self._pool)
        self.mirror = KvMirror(self._snapshot, self._missed)

    def act(self) -> list[KvBatch]:
        """Something happens; the batches that are sent of it."""
        deed = self._draw.choices(
            [self._admit, self._free, self._reset, self._replace_worker], weights=[12, 10, 1, 1]
        )[0]
        deed()
        batches = self._stream.take()
        if batches:
            self._stream.publish(batches)
        return self._received(batches)

    def restart(self, *, forgets: bool) -> None:
        """The server goes on from what it wrote down; or it ``forgets`` and begins anew."""
        if forgets:
            self._live.clear()
            self._begin(Pool(self._config))
            return
        self._pool = Pool.restore(self._pool.snapshot())
        self._stream = PoolStream(self._pool, "topic", self._max_batches)

    def found(self) -> dict[int | None, set[ExternalHash]]:
        """The server's own index, by group, in the form that is told."""
        assert self._config.events is not None
        is_whole = self._config.events.hash_form is HashForm.BYTES
        found: dict[int | None, set[ExternalHash]] = {}
        for group in range(len(self._config.groups)):
            for block_hash in self._pool.store.index.hashes(group):
                external = block_hash if is_whole else external_int64(block_hash)
                found.setdefault(group, set()).add(external)
        return found

    def mirrored(self) -> dict[int | None, set[ExternalHash]]:
        """What the mirror has, likewise."""
        return {group: set(stored) for group, stored in self.mirror.stored.items() if stored}

    def _begin(self, pool: Pool) -> None:
        self._pool = pool
        self._stream = PoolStream(pool, "topic", self._max_batches)
        self._apply(CreateLease(lease_id=LEASE, holder="test", ttl_ms=10**9))

    def _snapshot(self) -> KvSnapshot:
        snapshot, codec = self._stream.snapshot(), self._stream.codec
        events = list(chain.from_iterable(codec.snapshot_parts(snapshot.stored, json=False)))
        return KvSnapshot.from_document(
            {"topic": "", **codec.head(snapshot.number, snapshot.now_ms), "events": events}
        )

    def _missed(self, number: int) -> Iterable[KvBatch]:
        return self._received(self._stream.since(number))

    def _received(self, batches: Iterable[Batch]) -> list[KvBatch]:
        payload = self._stream.codec.msgpack
        return [
            KvBatch.from_frames([b"", batch.number.to_bytes(8, "big"), payload(batch)]) for batch in batches
        ]

    def _apply(self, command: PoolCommand) -> None:
        self._now_ms += 1
        self._pool.apply(command, self._now_ms)

    def _admit(self) -> None:
        name = SequenceId(f"s{self._num_sequences}")
        self._num_sequences += 1
        num_tokens = self._draw.randint(1, 40)
        tokens = self._draw.choice(self._prompts)[: num_tokens - 1]
        admission = Admission(
            sequence_id=name, num_tokens=num_tokens, token_ids=[*tokens, self._draw.randrange(3)]
        )
        try:
            self._apply(Allocate(lease_id=LEASE, admission=admission))
        except InsufficientBlocks:
            self._free()
            return
        self._live.append(name)
        self._apply(Commit(lease_id=LEASE, sequence_id=name, num_computed_tokens=num_tokens))

    def _free(self) -> None:
        count = self._draw.randint(0, len(self._live))
        self._draw.shuffle(self._live)
        freed, self._live = self._live[:count], self._live[count:]
        self._apply(Free(lease_id=LEASE, sequence_ids=freed))

    def _reset(self) -> None:
        self._apply(Free(lease_id=LEASE, sequence_ids=self._live))
        self._live = []
        self._apply(ResetPrefixCache())

    def _replace_worker(self) -> None:
        """A worker's memory is new: an epoch begins, and the lease begins anew as well."""
        self._num_workers += 1
        self._apply(
            RegisterWorker(
                worker_id=WorkerId("worker"), rank=0, device="cpu", incarnation=str(self._num_workers)
            )
        )
        self._apply(DeleteLease(lease_id=LEASE))
        self._live = []
        self._apply(CreateLease(lease_id=LEASE, holder="test", ttl_ms=10**9))
