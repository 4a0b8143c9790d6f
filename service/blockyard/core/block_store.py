"""Every block's reference count and hash, and the two structures that follow from them.

Metadata lies in parallel vectors indexed by block id. Invariants: a block is in the free queue, or in that
of the soft pins, exactly when its count is zero and it is not the null block; a block's hash stands in the
prefix index exactly as long as the block carries it.

Most blocks carry one hash, that of all their tokens. Where hits may end inside blocks, a block may be found
by that of a part of its tokens: before it is full, or beside the hash of all. It loses all of them together.
"""

import sys
from collections import Counter
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from librt.vecs import vec
from mypy_extensions import i64

from blockyard.core.adaptive_queue import AdaptiveQueue
from blockyard.core.config import Eviction
from blockyard.core.errors import InsufficientBlocks, InvalidRequest
from blockyard.core.free_queue import FreeQueue
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId, GroupIndex, LeaseId
from blockyard.core.packing import pack_vector, unpack_vector
from blockyard.core.prefix_index import PrefixIndex
from blockyard.core.residency import Residency
from blockyard.core.statistics import Counters

if TYPE_CHECKING:
    from blockyard.core.charges import Charges
    from blockyard.core.kv_events import KvEvents
    from blockyard.core.soft_pins import SoftPins


class BlockStore:
    """``num_blocks`` blocks without content, all but the null block free; evictions go into ``counters``.

    Attributes:
        reference_counts: Per block, how many tables and raw holders name it.
        hashes: Per block, the hash of its content once published: of the part that was published first.
        groups: Per block, the group it was published for; meaningless without a hash.
        queue: The free blocks, but for those that are evicted last.
        index: The blocks that carry a hash.
        num_cached_blocks: How many these are.
        unfilled: Blocks whose hash is that of a part of them only.
        further_hashes: Those that a block carries beside its first, in the order of their publishing.
        unripe: Blocks whose state is written in the step that is being done.
        running_states: Published states that the sequence will overwrite, and the lease that alone may go on
            from them until they are kept elsewhere.
        states_to_copy: Blocks that such states move to, and likewise the lease whose workers copy them.
        open_forks: Blocks that are not full and that several tables share, and how many these are: see
            `blockyard.core.forks`.
        events: Told of every hash that a block loses; None where nobody follows.
        residency: Is told what becomes of the blocks; to begin with, one that watches none.
        charges: Which tenant holds which block; None where that does not matter.
        soft_pins: The blocks that are evicted last; None while nothing is pinned so.
        num_groups: Of the pool.
    """

    __slots__ = (
        "_counters",
        "charges",
        "events",
        "further_hashes",
        "groups",
        "hashes",
        "index",
        "num_cached_blocks",
        "num_groups",
        "open_forks",
        "queue",
        "reference_counts",
        "residency",
        "running_states",
        "soft_pins",
        "states_to_copy",
        "unfilled",
        "unripe",
    )

    def __init__(
        self, num_blocks: int, num_groups: int, counters: Counters, eviction: Eviction = Eviction.LRU
    ) -> None:
        self._counters = counters
        self.num_groups = num_groups
        self.reference_counts = vec[i64]([0] * num_blocks)
        self.groups = vec[i64]([0] * num_blocks)
        self.hashes: list[BlockHash | None] = [None] * num_blocks
        is_adaptive = eviction is Eviction.ADAPTIVE
        self.queue = AdaptiveQueue(num_blocks, self.hashes) if is_adaptive else FreeQueue(num_blocks)
        self.index = PrefixIndex(self.hashes, self.groups)
        self.num_cached_blocks = 0
        self.unfilled: set[BlockId] = set()
        self.further_hashes: dict[BlockId, list[BlockHash]] = {}
        self.unripe: set[BlockId] = set()
        self.running_states: dict[BlockId, LeaseId] = {}
        self.states_to_copy: dict[BlockId, LeaseId] = {}
        self.open_forks: dict[BlockId, int] = {}
        self.events: KvEvents | None = None
        self.residency = Residency(0)
        self.charges: Charges | None = None
        self.soft_pins: SoftPins | None = None

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds."""
        return len(self.queue) + (0 if self.soft_pins is None else len(self.soft_pins))

    @property
    def num_usable_blocks(self) -> int:
        """All but the null block."""
        return len(self.hashes) - 1

    @property
    def num_held_blocks(self) -> int:
        """Blocks that somebody holds; the null block is neither free nor held."""
        return self.num_usable_blocks - self.num_free_blocks

    def take(self, num_blocks: int) -> list[BlockId]:
        """Hand out the blocks at the head of the free queue, then pinned ones; what they cached is forgotten.

        The caller makes sure that as many are free.
        """
        num_first = num_blocks if self.soft_pins is None else min(num_blocks, len(self.queue))
        blocks = self.queue.pop(num_first)
        if self.soft_pins is not None and num_first < num_blocks:
            blocks += self.soft_pins.pop(num_blocks - num_first)
        counts, hashes = self.reference_counts, self.hashes
        evicted: list[BlockId] = []
        block: i64
        for block in blocks:
            counts[block] = 1
            if hashes[block] is not None:
                evicted.append(block)
        if evicted:
            self._forget(evicted)
            self._counters.num_evicted_blocks += len(evicted)
            if not self.residency.sample.isdisjoint(evicted):
                self.residency.note_evicted(evicted)
        if self.charges is not None:
            self.charges.take(blocks)
        return blocks

    def require(
        self, num_blocks: int, *, num_foreign: int = 0, num_kept: int = 0, num_watermark: int = 0
    ) -> None:
        """Refuse unless so many blocks can be given to whoever acts; none is never refused.

        Args:
            num_blocks: Of the free ones.
            num_foreign: Blocks that it comes to hold beside these, and that others hold already.
            num_kept: Free blocks that have to be left beyond them, for those who wait.
            num_watermark: Likewise, in any case; the error counts them among the required ones.

        Raises:
            InsufficientBlocks: Nothing has changed.
        """
        num_free, num_asked = self.num_free_blocks, num_blocks + num_watermark
        if self.charges is not None:
            self.charges.require(
                num_blocks,
                num_free,
                num_foreign=num_foreign,
                num_kept=num_kept,
                num_watermark=num_watermark,
            )
        elif num_blocks and num_asked + num_kept > num_free:
            raise InsufficientBlocks.of(num_asked, max(num_free - num_kept, 0), self.num_usable_blocks)

    def num_available(self, num_kept: int) -> int:
        """Blocks that whoever acts may come to hold, beside ``num_kept`` that are left if not guaranteed."""
        num_free = self.num_free_blocks
        if self.charges is not None:
            return self.charges.num_available(num_free, num_kept)
        return max(num_free - num_kept, 0)

    @property
    def num_givable_blocks(self) -> int:
        """Blocks that whoever acts may ever come to hold."""
        return self.num_usable_blocks if self.charges is None else self.charges.num_usable

    def num_foreign(self, blocks: list[BlockId]) -> int:
        """Those of ``blocks`` that other tenants hold, and whoever acts does not."""
        return 0 if self.charges is None else self.charges.num_foreign(blocks)

    def num_untouched(self, blocks: list[BlockId]) -> int:
        """Those of ``blocks`` that nobody holds; nulls are none."""
        counts = self.reference_counts
        num_untouched = 0
        block: i64
        for block in blocks:
            if counts[block] == 0 and block != NULL_BLOCK:
                num_untouched += 1
        return num_untouched

    def touch(self, blocks: list[BlockId]) -> None:
        """Hold ``blocks`` once more; those in the free queue leave it. Nulls are passed over."""
        counts = self.reference_counts
        if self.charges is not None:
            self.charges.touch(blocks, counts)
        idle: list[BlockId] = []
        block: i64
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            if counts[block] == 0:
                idle.append(block)
            counts[block] += 1
        if idle:
            self.queue.remove(idle if self.soft_pins is None else self.soft_pins.leave(idle))
            if not self.residency.sample.isdisjoint(idle):
                self.residency.note_held(idle)

    def freed_twice(self, blocks: list[BlockId]) -> list[BlockId]:
        """Those that would be freed twice if ``blocks`` were: named more than once, or free already."""
        counts = self.reference_counts
        return [
            block
            for block, times in Counter(blocks).items()
            if times > 1 or (NULL_BLOCK < block < len(counts) and counts[block] == 0)
        ]

    def release(self, blocks: list[BlockId]) -> int:
        """Hold ``blocks`` once less, the one to be used again first at their head. Nulls are passed over.

        Blocks that nobody holds any more go into the free queue: those without a hash to its front, as
        nothing is lost by using them again, the others to its end; each in the order given.

        Returns:
            How many blocks became free.
        """
        counts, hashes = self.reference_counts, self.hashes
        self.queue.note_released(blocks)
        empty: list[BlockId] = []
        cached: list[BlockId] = []
        block: i64
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            count = counts[block] - 1
            assert count >= 0, f"block {block} is released more often than held"
            counts[block] = count
            if count == 0:
                if hashes[block] is None:
                    empty.append(block)
                else:
                    cached.append(block)
        if self.charges is not None:
            self.charges.release(blocks, counts)
        self.queue.prepend(empty)
        self.queue.append(cached if self.soft_pins is None else self.soft_pins.keep(cached))
        if cached and not self.residency.sample.isdisjoint(cached):
            self.residency.note_idle(cached)
        return len(empty) + len(cached)

    def publish_run(
        self,
        blocks: list[BlockId],
        group: GroupIndex,
        block_hashes: list[BlockHash],
        parent: BlockId = NULL_BLOCK,
    ) -> int:
        """Make held, full ``blocks`` hits, each for its hash, and no more for parts of it.

        ``parent``: the block that comes before them; null where there is none. Nulls among ``blocks`` are
        passed over. Returns how many others there are.
        """
        assert len(blocks) == len(block_hashes)
        if NULL_BLOCK in blocks:
            kept = [at for at, block in enumerate(blocks) if block != NULL_BLOCK]
            blocks, block_hashes = [blocks[at] for at in kept], [block_hashes[at] for at in kept]
        if self.unfilled:
            self._forget([block for block in blocks if block in self.unfilled])
        self._add(blocks, group, block_hashes, parent)
        return len(blocks)

    def publish_part(self, block: BlockId, group: GroupIndex, block_hash: BlockHash) -> None:
        """Make a held ``block`` a hit for ``block_hash``, that of a part of its tokens, as well."""
        if self.hashes[block] is None:
            self._add([block], group, [block_hash])
            self.unfilled.add(block)
        else:
            self.further_hashes.setdefault(block, []).append(block_hash)
            self.index.add_further(group, block_hash, block)
            if self.soft_pins is not None:
                self.soft_pins.note_published([block], [block_hash])

    def move_hashes(self, source: BlockId, destination: BlockId) -> None:
        """Let ``destination``, which carries none, be found in place of ``source``, whose content it gets."""
        group, is_unfilled = int(self.groups[source]), source in self.unfilled
        block_hashes = self.hashes_of(source)
        self._forget([source])
        self.residency.note_forgotten(source)
        first, *further = block_hashes
        self._add([destination], group, [first])
        if is_unfilled:
            self.unfilled.add(destination)
        for block_hash in further:
            self.publish_part(destination, group, block_hash)

    def is_published(self, block: BlockId) -> bool:
        """Whether ``block`` carries the hash of all its tokens."""
        return self.hashes[block] is not None and block not in self.unfilled

    def hashes_of(self, block: BlockId) -> list[BlockHash]:
        """All hashes that ``block`` carries."""
        first = self.hashes[block]
        return [] if first is None else [first, *self.further_hashes.get(block, ())]

    def withheld_from(self, lease_id: LeaseId | None) -> AbstractSet[BlockId]:
        """Blocks with a hash that are no hit for a sequence of this lease; None: for no particular one's."""
        if lease_id is None or not (self.running_states or self.states_to_copy):
            return self.unripe
        owners = self.running_states | self.states_to_copy
        return self.unripe | {block for block, owner in owners.items() if owner != lease_id}

    def note_copied(self, block: BlockId, *, is_copied: bool) -> None:
        """Let every lease go on from ``block``, where something was to be copied; or none, if it was not."""
        self.states_to_copy.pop(block, None)
        if not is_copied and self.hashes[block] is not None:
            self._forget([block])
            self.residency.note_forgotten(block)

    def forget_all(self) -> None:
        """Forget every hash. Free blocks keep their order, pinned ones last; nobody's change hands."""
        self.index.clear()
        self.unfilled.clear()
        self.further_hashes.clear()
        self.running_states.clear()
        self.states_to_copy.clear()
        self.num_cached_blocks = 0
        self.queue.note_all_forgotten([] if self.soft_pins is None else self.soft_pins.clear())
        if self.events is not None:
            self.events.cleared()
        self.residency.note_all_forgotten()

    def to_state(self) -> dict[str, Any]:
        """The store as plain data; its arrays in this machine's byte order."""
        return {
            "num_groups": self.num_groups,
            "byteorder": sys.byteorder,
            "reference_counts": pack_vector(self.reference_counts),
            "groups": pack_vector(self.groups),
            "hashes": list(self.hashes),
            "unfilled": sorted(self.unfilled),
            "running_states": [list(each) for each in sorted(self.running_states.items())],
            "states_to_copy": [list(each) for each in sorted(self.states_to_copy.items())],
            "open_forks": [list(each) for each in sorted(self.open_forks.items())],
            "further_hashes": [[block, list(these)] for block, these in sorted(self.further_hashes.items())],
            "queue": self.queue.to_state(),
            "shared_hashes": self.index.shared(),
        }

    @classmethod
    def from_state(
        cls, state: dict[str, Any], counters: Counters, eviction: Eviction = Eviction.LRU
    ) -> "BlockStore":
        """The store that ``state`` was taken from, with the same ``eviction``.

        Raises:
            InvalidRequest: ``state`` comes from a machine of another byte order.
        """
        if state["byteorder"] != sys.byteorder:
            raise InvalidRequest.of(
                "byteorder", f"{state['byteorder']} is not this machine's, {sys.byteorder}"
            )
        store = cls(len(state["hashes"]), state["num_groups"], counters, eviction)
        store.reference_counts = unpack_vector(state["reference_counts"])
        store.groups = unpack_vector(state["groups"])
        store.index = PrefixIndex(store.hashes, store.groups)
        store.unfilled = set(state["unfilled"])
        store.running_states = dict(state["running_states"])
        store.states_to_copy = dict(state["states_to_copy"])
        store.open_forks = dict(state.get("open_forks", ()))
        store.further_hashes = {block: list(these) for block, these in state["further_hashes"]}
        store._restore_hashes(state["hashes"], state["shared_hashes"])
        store.queue.load(state["queue"])
        return store

    def _restore_hashes(self, own: list[BlockHash | None], shared_hashes: list[Any]) -> None:
        """Index the hashes of an empty store, its further ones included.

        Args:
            own: Per block, the hash that it carries.
            shared_hashes: What `PrefixIndex.shared` gave, as plain data: blocks come in the order in which
                they are found.
        """
        shared = {(entry[0], entry[1]) for entry in shared_hashes}
        for entry in shared_hashes:
            group, block_hash, blocks = entry
            for block in blocks:
                if own[block] == block_hash:
                    self.index.add_run(group, [block], [block_hash])
                else:
                    self.index.add_further(group, block_hash, block)
        runs: dict[GroupIndex, tuple[list[BlockId], list[BlockHash]]] = {}
        for block, own_hash in enumerate(own):
            group = int(self.groups[block])
            if own_hash is not None and (not shared or (group, own_hash) not in shared):
                blocks, block_hashes = runs.setdefault(group, ([], []))
                blocks.append(block)
                block_hashes.append(own_hash)
        for group, (blocks, block_hashes) in runs.items():
            self.index.add_run(group, blocks, block_hashes)
        for block, these in self.further_hashes.items():
            group = int(self.groups[block])
            for block_hash in these:
                if (group, block_hash) not in shared:
                    self.index.add_further(group, block_hash, block)
        self.num_cached_blocks = len(own) - own.count(None)

    def _add(
        self,
        blocks: list[BlockId],
        group: GroupIndex,
        block_hashes: list[BlockHash],
        parent: BlockId = NULL_BLOCK,
    ) -> None:
        self.queue.note_published(blocks, block_hashes, parent)
        self.index.add_run(group, blocks, block_hashes)
        self.num_cached_blocks += len(blocks)
        if self.soft_pins is not None:
            self.soft_pins.note_published(blocks, block_hashes)
        if not self.residency.sample.isdisjoint(blocks):
            self.residency.note_published(blocks)

    def _forget(self, blocks: list[BlockId]) -> None:
        """Take all hashes from ``blocks``, which carry some."""
        if self.events is not None:
            for block in blocks:
                for block_hash in self.hashes_of(block):
                    self.events.forgotten(int(self.groups[block]), block_hash)
        if self.unfilled or self.further_hashes:
            for block in blocks:
                self.unfilled.discard(block)
                for block_hash in self.further_hashes.pop(block, ()):
                    self.index.remove_further(int(self.groups[block]), block_hash, block)
        self.index.remove_run(blocks)
        if self.soft_pins is not None:
            self.soft_pins.note_forgotten(blocks)
        self.num_cached_blocks -= len(blocks)
