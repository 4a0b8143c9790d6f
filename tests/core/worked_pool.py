"""A small pool for examples worked by hand: blocks of four tokens, one lease, one text of all prompts."""

from typing import Any

from blockyard.core.commands import Admission, Allocate, Commit, CreateLease, Free
from blockyard.core.config import GroupConfig, PoolConfig, Publish
from blockyard.core.ids import NO_TENANT, BlockHash, LeaseId, SequenceId
from blockyard.core.pool import Pool
from blockyard.core.replies import Allocated, Committed

BLOCK = 4
LEASE = LeaseId("lease")


def group(kind: str, block_size: int = BLOCK, **sizes: Any) -> GroupConfig:
    return GroupConfig(kind=kind, block_size=block_size, **sizes)


class WorkedPool:
    """Publishes on allocation unless ``options`` say otherwise; new blocks are 1, 2, 3, ...

    Attributes:
        now_ms: When the next command comes; at 0 if nobody sets it.
    """

    def __init__(self, *groups: GroupConfig, num_blocks: int = 64, **options: Any) -> None:
        options = {"publish": Publish.ON_ALLOCATE, **options}
        self.pool = Pool(PoolConfig.of(num_blocks=num_blocks, groups=groups, **options))
        self.pool.apply(CreateLease(lease_id=LEASE, holder="test", ttl_ms=1_000), 0)
        self.now_ms = 0
        self._num_sent: dict[str, int] = {}

    def hashes(self, begin: int, num_tokens: int) -> list[BlockHash]:
        """Those of the text's hash blocks from the ``begin``-th one on that end within ``num_tokens``."""
        size = self.pool.config.hash_block_size
        return [f"{(number + 1) * size} tokens".encode() for number in range(begin, num_tokens // size)]

    def allocate(
        self,
        name: str,
        num_tokens: int,
        *,
        num_guesses: int = 0,
        num_computed_tokens: int | None = None,
        lease: LeaseId = LEASE,
        **fields: Any,
    ) -> Allocated:
        """``num_guesses``: of the tokens, the last ones, of which no hash speaks."""
        begin = self._num_sent.get(name, 0)
        admission = Admission(
            sequence_id=SequenceId(name),
            num_tokens=num_tokens,
            block_hashes=self.hashes(begin, num_tokens - num_guesses),
            **fields,
        )
        command = Allocate(lease_id=lease, admission=admission, num_computed_tokens=num_computed_tokens)
        reply = self.pool.apply(command, self.now_ms)
        assert isinstance(reply, Allocated)
        self._num_sent[name] = begin + len(admission.block_hashes)
        return reply

    def note_forked(self, name: str, *forks: str) -> None:
        """What was told of one sequence goes for others, now that these are forks of it."""
        sequence = self.pool.sequences.get(NO_TENANT, SequenceId(name))
        assert sequence is not None
        self._num_sent.update(dict.fromkeys((name, *forks), len(sequence.block_hashes)))

    def another_lease(self) -> LeaseId:
        lease_id = LeaseId("another")
        self.pool.apply(CreateLease(lease_id=lease_id, holder="test", ttl_ms=1_000), self.now_ms)
        return lease_id

    def commit(self, name: str, num_tokens: int) -> int:
        """Returns how many blocks were published."""
        command = Commit(lease_id=LEASE, sequence_id=SequenceId(name), num_computed_tokens=num_tokens)
        reply = self.pool.apply(command, self.now_ms)
        assert isinstance(reply, Committed)
        return reply.num_published_blocks

    def free(self, *names: str) -> None:
        sequence_ids = [SequenceId(name) for name in names]
        self.pool.apply(Free(lease_id=LEASE, sequence_ids=sequence_ids), self.now_ms)
        for name in names:
            self._num_sent.pop(name, None)

    def tables(self, name: str) -> list[list[int]]:
        return self.pool.sequence(SequenceId(name)).block_ids

    def table(self, name: str) -> list[int]:
        (table,) = self.tables(name)
        return table

    def find(self, num_tokens: int) -> tuple[int, list[list[int]]]:
        """The cached prefix of a prompt of so many tokens of the text."""
        found = self.pool.lookup(num_tokens=num_tokens, block_hashes=self.hashes(0, num_tokens))
        return found.num_cached_tokens, found.block_ids

    def keys(self, block: int) -> list[str]:
        """What a block of the device is found by."""
        return [block_hash.decode() for block_hash in self.pool.store.hashes_of(block)]
