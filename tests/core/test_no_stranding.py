"""Down a chain of blocks, adaptive eviction goes from its end: nothing stays that no hit can reach."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockyard.core.commands import Admission, Allocate, AllocateBlocks, Commit, CreateLease, Fork, Free
from blockyard.core.config import Eviction, GroupConfig, PoolConfig, Publish
from blockyard.core.errors import InsufficientBlocks
from blockyard.core.grade import NUM_WEIGHTS
from blockyard.core.ids import NO_TENANT, BlockHash, LeaseId, SequenceId
from blockyard.core.pool import Pool

BLOCK = 2
MAX_BLOCKS = 9
SHARED_BLOCKS = (MAX_BLOCKS, 6, 4, 2, 0)
"""Per text, how many of its blocks are the first text's."""
LEASE = LeaseId("lease")


@dataclass(frozen=True, slots=True)
class Drawn:
    """Something that is done with a text, or with one of the sequences that there are."""

    action: str
    pick: int
    num_tokens: int
    weight: int


actions = st.lists(
    st.builds(
        Drawn,
        action=st.sampled_from(
            ["admit", "admit", "admit", "skip", "extend", "commit", "fork", "free", "free"]
        ),
        pick=st.integers(0, 19),
        num_tokens=st.integers(1, BLOCK * MAX_BLOCKS),
        weight=st.integers(0, NUM_WEIGHTS - 1),
    ),
    min_size=10,
    max_size=60,
)


def block_hash(text: int, block: int) -> BlockHash:
    """It names all that comes before as well."""
    return f"{text if block >= SHARED_BLOCKS[text] else 0}, {block}".encode()


PARENTS = {
    block_hash(text, block): block_hash(text, block - 1)
    for text in range(len(SHARED_BLOCKS))
    for block in range(1, MAX_BLOCKS)
}


class Caller:
    """Sequences of a small pool, each of one of the texts."""

    def __init__(self, publish: Publish, num_blocks: int) -> None:
        group = GroupConfig(kind="full_attention", block_size=BLOCK)
        config = PoolConfig.of(
            num_blocks=num_blocks, groups=(group,), publish=publish, eviction=Eviction.ADAPTIVE
        )
        self.pool = Pool(config)
        self.pool.apply(CreateLease(lease_id=LEASE, holder="test", ttl_ms=1_000), 0)
        self.texts: dict[SequenceId, int] = {}
        self._num_sequences = 0

    def do(self, drawn: Drawn) -> None:
        """At the weight that is drawn. What there are no blocks for is not done."""
        self.pool.store.queue._trial.weight = drawn.weight  # type: ignore[attr-defined]
        try:
            self._do(drawn)
        except InsufficientBlocks:
            self._free(drawn.pick)

    def _do(self, drawn: Drawn) -> None:
        if drawn.action in ("admit", "skip") or not self.texts:
            self._num_sequences += 1
            sequence_id, text = SequenceId(f"s{self._num_sequences}"), drawn.pick % len(SHARED_BLOCKS)
            self.allocate(sequence_id, text, drawn.num_tokens, skip=drawn.action == "skip")
            self.texts[sequence_id] = text
            return
        sequence_id = self._pick(drawn.pick)
        known = self.pool.sequence(sequence_id)
        if drawn.action == "extend" and known.num_tokens < BLOCK * MAX_BLOCKS:
            num_tokens = min(known.num_tokens + drawn.num_tokens, BLOCK * MAX_BLOCKS)
            self.allocate(sequence_id, self.texts[sequence_id], num_tokens)
        elif drawn.action == "commit":
            num_computed = known.num_computed_tokens
            self.pool.apply(
                Commit(lease_id=LEASE, sequence_id=sequence_id, num_computed_tokens=num_computed), 0
            )
        elif drawn.action == "fork":
            self._num_sequences += 1
            fork = SequenceId(f"s{self._num_sequences}")
            self.pool.apply(Fork(lease_id=LEASE, sequence_id=sequence_id, new_sequence_ids=[fork]), 0)
            self.texts[fork] = self.texts[sequence_id]
        else:
            self._free(drawn.pick)

    def allocate(self, sequence_id: SequenceId, text: int, num_tokens: int, *, skip: bool = False) -> None:
        sequence = self.pool.sequences.get(NO_TENANT, sequence_id)
        num_told = 0 if sequence is None else len(sequence.block_hashes)
        admission = Admission(
            sequence_id=sequence_id,
            num_tokens=num_tokens,
            block_hashes=[block_hash(text, block) for block in range(num_told, num_tokens // BLOCK)],
            skip_prefix_cache=skip,
        )
        self.pool.apply(Allocate(lease_id=LEASE, admission=admission), 0)

    def _pick(self, pick: int) -> SequenceId:
        return list(self.texts)[pick % len(self.texts)]

    def _free(self, pick: int) -> None:
        if self.texts:
            sequence_id = self._pick(pick)
            self.free(sequence_id)
            del self.texts[sequence_id]

    def free(self, sequence_id: SequenceId) -> None:
        self.pool.apply(Free(lease_id=LEASE, sequence_ids=[sequence_id]), 0)

    def stranded(self) -> list[BlockHash]:
        """What is cached behind something that is not."""
        cached = {own for own in self.pool.store.hashes if own is not None}
        return sorted(own for own in cached if own in PARENTS and PARENTS[own] not in cached)


@pytest.mark.parametrize("publish", list(Publish))
def test_whatever_is_cached_can_be_reached(publish: Publish) -> None:
    num_evicted = 0

    @settings(max_examples=50, deadline=None)
    @given(actions, st.sampled_from([8, 12, 20]))
    def run(drawn: Sequence[Drawn], num_blocks: int) -> None:
        nonlocal num_evicted
        caller = Caller(publish, num_blocks)
        for each in drawn:
            caller.do(each)
            assert caller.stranded() == [], each
        num_evicted += caller.pool.counters.num_evicted_blocks

    run()
    assert num_evicted > 100


def test_of_blocks_with_the_same_content_none_is_evicted_before_what_was_found_behind_another() -> None:
    caller = Caller(Publish.ON_ALLOCATE, 16)
    first, second, third = (SequenceId(name) for name in ("first", "second", "third"))
    caller.allocate(first, 0, 2 * BLOCK + 1)
    caller.allocate(second, 0, 3 * BLOCK + 1, skip=True)  # its first two blocks are there twice from now on
    for _ in range(3):
        caller.allocate(third, 0, 3 * BLOCK + 1)  # finds those of the first, and the third of the second
        caller.free(third)
    caller.free(first)
    caller.free(second)
    while len(caller.pool.store.queue):
        caller.pool.store.queue._trial.weight = NUM_WEIGHTS - 1  # type: ignore[attr-defined]
        caller.pool.apply(AllocateBlocks(lease_id=LEASE, num_blocks=1), 0)
        assert caller.stranded() == []
    assert caller.pool.counters.num_evicted_blocks == 5
