"""Giving blocks to sequences and taking them back, over all groups of a pool.

Every method either does all that it says or raises and changes nothing, but for one thing: blocks that an
extension finds behind the window are dropped even if the extension is then refused.

Where a sequence would write into a block that others may find, it gets a copy, which its workers have to
make: the pair goes into ``copies``, and both blocks are held once more for whoever keeps that list.
"""

from collections.abc import Sequence as SequenceOf
from typing import Final

from blockyard.core.arithmetic import align_down
from blockyard.core.block_store import BlockStore
from blockyard.core.config import PoolConfig, Publish
from blockyard.core.forks import Copies, Forks, copied_from, copy_of
from blockyard.core.headroom import Headroom
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId, GroupIndex, LeaseId
from blockyard.core.kinds import Demand, Kind, Progress, ends_inside_blocks, kinds_of
from blockyard.core.kv_events import KvEvents
from blockyard.core.prefix_lookup import Hit, PrefixLookup
from blockyard.core.retention import Retention
from blockyard.core.sequence import BlockTable, Sequence


class Margin:
    """What a new sequence needs beside the free blocks that it takes; see `BlockStore.require`.

    Attributes:
        num_foreign: Blocks of its hit that other tenants hold, and its own does not.
        num_reserved: Free blocks that it leaves to those who wait.
        num_watermark: Likewise, to sequences that grow.
    """

    __slots__ = ("num_foreign", "num_reserved", "num_watermark")

    def __init__(self, num_foreign: int, num_reserved: int, num_watermark: int) -> None:
        self.num_foreign = num_foreign
        self.num_reserved = num_reserved
        self.num_watermark = num_watermark


NO_MARGIN: Final = Margin(0, 0, 0)


class Allocator:
    """What a pool's sequences and its blocks have to do with each other.

    Args:
        config: The pool's configuration.
        stores: The device's blocks and, where groups lie there, the host's; changed by this object's methods.
        events: Told of what is published; None where nobody follows.

    Raises:
        InvalidRequest: A group's kind is unknown or its sizes are wrong.
    """

    def __init__(
        self, config: PoolConfig, stores: SequenceOf[BlockStore], events: KvEvents | None = None
    ) -> None:
        self._config = config
        self._events = events
        self._kinds = kinds_of(config)
        self._stores = tuple(stores[group.is_host_resident] for group in config.groups)
        self._spaces = tuple(
            (store, tuple(group for group, its in enumerate(self._stores) if its is store))
            for store in stores
        )
        self._ends_inside_blocks = ends_inside_blocks(config.groups, config.hash_block_size)
        alignment = config.hash_block_size if self._ends_inside_blocks else config.scheduler_block_size
        self._lookup = PrefixLookup(self._kinds, self._stores, alignment, config.hash_block_size)
        self._retention = Retention.of(config, self._kinds)
        self._publishes_on_allocate = config.publish is Publish.ON_ALLOCATE
        each = tuple(zip(range(len(self._kinds)), self._kinds, self._stores, strict=True))
        self._dropping = [(group, kind, store) for group, kind, store in each if kind.drops_blocks]
        self._edged = [
            (group, kind, store)
            for group, kind, store in each
            if kind.can_split_blocks and kind.block_size > config.hash_block_size
        ]
        self.headroom = Headroom(config, self._kinds, is_edged=bool(self._edged))
        self.forks = Forks(self._kinds, self._stores, stores[0])

    def find(
        self, num_tokens: int, block_hashes: SequenceOf[BlockHash], lease_id: LeaseId | None = None
    ) -> Hit:
        """The longest cached prefix of ``num_tokens`` tokens, never all of them: the last one is computed.

        With ``lease_id``, less what only other leases may go on from.
        """
        if not self._config.enable_prefix_caching:
            return self._lookup.no_hit()
        return self._lookup.longest_hit(block_hashes, num_tokens - 1, lease_id)

    def no_hit(self) -> Hit:
        """What `find` returns where nothing is cached."""
        return self._lookup.no_hit()

    def admit(
        self,
        sequence: Sequence,
        hit: Hit,
        copies: Copies,
        *,
        num_new_tokens: int,
        num_lookahead_tokens: int,
        must_fit_tokens: int,
        num_reserved_blocks: int = 0,
    ) -> None:
        """Fill a new sequence's tables with ``hit`` and with blocks for ``num_new_tokens`` more tokens.

        Args:
            sequence: Without tables; its tables and counts are set.
            hit: What `find` returned, with nothing changed since.
            copies: Gets a pair for each block that the hit ends inside of.
            num_new_tokens: Tokens to compute now, behind the hit.
            num_lookahead_tokens: Slots beyond them.
            must_fit_tokens: Refuse unless so many tokens would fit; 0 for no such demand.
            num_reserved_blocks: Free blocks to leave to those who wait, beside the watermark.

        Raises:
            InsufficientBlocks: Nothing was given.
        """
        # Beside what a table lacks: blocks of the hit that nobody holds, which leave the free queue, and one
        # for a copy where the hit ends inside a block.
        tables: list[BlockTable] = []
        reserved: list[int] = []
        ends_inside: list[bool] = []
        num_foreign = 0
        for kind, store, cached in zip(self._kinds, self._stores, hit.block_ids, strict=True):
            table = kind.table_of_hit(cached, hit.num_tokens)
            is_shared = kind.is_cacheable and hit.num_tokens % kind.block_size != 0
            tables.append(table)
            ends_inside.append(is_shared)
            reserved.append(store.num_untouched(table.block_ids) + is_shared)
            num_foreign += store.num_foreign(table.block_ids)
        margin = Margin(num_foreign, num_reserved_blocks, self._config.watermark_blocks)
        if must_fit_tokens:
            whole = self._demand(sequence, must_fit_tokens, 0)
            self._require_free(tables, whole, reserved, margin, capped=True)
        num_granted = hit.num_tokens + num_new_tokens
        demand = self._demand(sequence, num_granted, num_lookahead_tokens)
        self._require_free(tables, demand, reserved, margin)

        for store, table in zip(self._stores, tables, strict=True):
            store.touch(table.block_ids)
            store.queue.note_hit(table.block_ids)
        sequence.tables = tables
        sequence.num_granted_tokens = num_granted
        sequence.num_committed_tokens = hit.num_tokens
        for kind, store, table, is_shared in zip(self._kinds, self._stores, tables, ends_inside, strict=True):
            if is_shared:  # the table's hold on the shared block is the copy's from now on
                found = copied_from(table.block_ids[-1], store, copies)
                table.block_ids[-1] = copy_of(found, store, copies)
            kind.grow(table, demand, store.take)

    def can_take_back(self, sequence: Sequence, num_tokens: int) -> bool:
        """Whether all but the first ``num_tokens`` tokens of ``sequence`` may be written anew.

        Not if some of them are committed, published or forked, nor if blocks that the first of them looks at
        were dropped.
        """
        num_taken_back = sequence.num_granted_tokens - num_tokens
        if num_taken_back == 0:
            return True
        if num_tokens < sequence.num_forked_tokens:
            return False
        edge = self._edge_of(sequence)
        return all(
            num_tokens >= max(sequence.num_committed_tokens, table.num_published * kind.block_size)
            and (num_tokens >= edge or not table.is_edge_published)
            and kind.can_go_back(table, num_tokens, num_taken_back)
            for kind, table in zip(self._kinds, sequence.tables, strict=True)
        )

    def extend(
        self,
        sequence: Sequence,
        copies: Copies,
        *,
        num_granted_tokens: int,
        num_new_tokens: int,
        num_lookahead_tokens: int,
        must_fit_tokens: int = 0,
    ) -> list[list[BlockId]]:
        """Drop what ``sequence`` needs no more and give it blocks for ``num_new_tokens`` more tokens.

        Args:
            sequence: Its tables and its count of granted tokens are set.
            copies: Gets a pair for each state that others may find, and each block that forks share, that is
                written over now.
            num_granted_tokens: Tokens that it has slots for, less those taken back.
            num_new_tokens: Tokens to compute now, behind these.
            num_lookahead_tokens: Slots beyond them.
            must_fit_tokens: Refuse unless so many tokens would fit; 0 for no such demand.

        Returns:
            Per group, the entries appended to its table.

        Raises:
            InsufficientBlocks: Nothing was given.
        """
        tables = sequence.tables
        num_granted = num_granted_tokens + num_new_tokens
        demand = self._demand(sequence, num_granted, num_lookahead_tokens)
        is_forked = sequence.num_granted_tokens == sequence.num_forked_tokens < demand.num_slots
        reserved = [
            (table.edge_state is not None) + (is_forked and self.forks.shares(group, sequence))
            for group, table in enumerate(tables)
        ]
        if must_fit_tokens:
            whole = self._demand(sequence, must_fit_tokens, 0)
            self._require_free(tables, whole, reserved, capped=True)
        self._drop_skipped(sequence, num_granted_tokens)
        self._require_free(tables, demand, reserved)
        appended = []
        for group, (kind, store, table) in enumerate(zip(self._kinds, self._stores, tables, strict=True)):
            if table.edge_state is not None:
                _keep_edge(table, store, copies, sequence.lease_id)
            if is_forked:
                self.forks.write(group, sequence, copies)
            appended.append(kind.grow(table, demand, store.take))
        sequence.num_granted_tokens = num_granted
        return appended

    def require_forks(self, sequence: Sequence, num_forks: int) -> None:
        """Refuse unless there are blocks for so many forks of ``sequence``. Changes nothing.

        Raises:
            InsufficientBlocks: There are too few.
        """
        num_own = self.forks.num_own(sequence)
        for store, groups in self._spaces:
            store.require(num_forks * sum(num_own[group] for group in groups))

    def publish(self, sequence: Sequence) -> int:
        """Make the sequence's full blocks hits for others, as far as the pool's mode and its hashes allow.

        Returns:
            How many blocks were published.
        """
        config, hashes = self._config, sequence.block_hashes
        if not config.enable_prefix_caching or not hashes:
            return 0
        num_computed = (
            sequence.num_granted_tokens if self._publishes_on_allocate else sequence.num_committed_tokens
        )
        num_tokens = num_aligned = min(num_computed, len(hashes) * config.hash_block_size)
        if len(self._kinds) > 1 and not self._ends_inside_blocks:
            num_aligned = align_down(num_tokens, config.scheduler_block_size)
        num_published = 0
        for group, (kind, table) in enumerate(zip(self._kinds, sequence.tables, strict=True)):
            if not kind.is_cacheable:
                continue
            end = num_aligned // kind.block_size
            if kind.is_draft:
                end = min(end + 1, num_tokens // kind.block_size)
            if end > table.num_published:
                num_published += self._publish_up_to(end, group, sequence)
        if self._edged:
            self._publish_edges(sequence, num_tokens)
        return num_published

    def _publish_up_to(self, end: int, group: GroupIndex, sequence: Sequence) -> int:
        """Publish the full blocks of a group that are not yet, below position ``end``; returns how many."""
        kind, store, table = self._kinds[group], self._stores[group], sequence.tables[group]
        factor = kind.block_size // self._config.hash_block_size
        begin, table.num_published = table.num_published, end
        parent = table.block_ids[begin - 1] if begin else NULL_BLOCK
        is_shared = begin * kind.block_size < sequence.num_forked_tokens  # another may have published it
        if (
            self._retention.interval is None
            and self._events is None
            and not kind.keeps_states
            and not is_shared
        ):
            hashes = sequence.block_hashes[(begin + 1) * factor - 1 : end * factor : factor]
            return store.publish_run(table.block_ids[begin:end], group, hashes, parent)
        positions = [
            position
            for position in self._retention.kept(group, range(begin, end), sequence)
            if self._is_publishable(kind, store, position, table.block_ids[position], sequence)
        ]
        blocks = [table.block_ids[position] for position in positions]
        hashes = [sequence.block_hashes[(position + 1) * factor - 1] for position in positions]
        store.publish_run(blocks, group, hashes, parent)
        if self._events is not None:
            for position in positions:
                self._tell(group, sequence, position, kind.block_size)
        if kind.keeps_states:
            store.unripe.update(blocks)
        return len(positions)

    def _is_publishable(
        self, kind: Kind, store: BlockStore, position: int, block: BlockId, sequence: Sequence
    ) -> bool:
        """Whether the block at ``position`` of a table is there and written, and no fork has published it."""
        return (
            block != NULL_BLOCK
            and (not kind.keeps_states or self._is_written(kind, position, sequence))
            and not (position * kind.block_size < sequence.num_forked_tokens and store.is_published(block))
        )

    def _is_written(self, kind: Kind, position: int, sequence: Sequence) -> bool:
        """Whether the state in a block is that behind its last token.

        It is if a chunk ended there: where blocks are published on commit, that is known.
        """
        return (
            self._publishes_on_allocate or sequence.num_committed_tokens == (position + 1) * kind.block_size
        )

    def free(self, sequence: Sequence) -> int:
        """Take back all blocks of ``sequence``, group by group, tail first; returns how many became free."""
        num_freed = 0
        if sequence.num_granted_tokens == sequence.num_forked_tokens:
            self.forks.leave(sequence)
        for store, table in zip(self._stores, sequence.tables, strict=True):
            if table.edge_state is not None:  # nothing overwrites it any more
                store.running_states.pop(table.block_ids[table.edge_state], None)  # or it is forgotten
            num_freed += store.release(table.block_ids[::-1])
        return num_freed

    def _demand(self, sequence: Sequence, num_tokens: int, num_lookahead_tokens: int) -> Demand:
        """What ``num_tokens`` tokens, and slots beyond, take; no more than the longest sequence."""
        limit = self._config.max_model_len
        num_slots = num_tokens + num_lookahead_tokens
        if limit is not None:
            num_slots = min(num_slots, limit)
        return Demand(min(num_tokens, num_slots), num_slots, sequence.num_encoder_tokens)

    def _require_free(
        self,
        tables: SequenceOf[BlockTable],
        demand: Demand,
        reserved: SequenceOf[int],
        margin: Margin = NO_MARGIN,
        *,
        capped: bool = False,
    ) -> None:
        """Refuse unless ``tables`` can grow to serve ``demand``, and so many more blocks a group are free.

        The ``margin`` is of the device's blocks only. With ``capped``, no group is taken to need more than it
        ever holds at a time.

        Raises:
            InsufficientBlocks: Too few are.
        """
        config = self._config
        for store, groups in self._spaces:
            num_required = 0
            for group in groups:
                kind = self._kinds[group]
                at_most = None
                if capped:
                    at_most = kind.max_blocks_at_once(config.max_in_flight_tokens, config.max_model_len)
                num_required += kind.num_missing(tables[group], demand, at_most) + reserved[group]
            store.require(
                num_required,
                num_foreign=margin.num_foreign,
                num_kept=margin.num_reserved,
                num_watermark=margin.num_watermark,
            )
            margin = NO_MARGIN  # the device's blocks come first

    def _edge_of(self, sequence: Sequence) -> int:
        """The last hash boundary before the last token of the prompt, which is always computed."""
        return align_down(sequence.num_prompt_tokens - 1, self._config.hash_block_size)

    def _publish_edges(self, sequence: Sequence, num_tokens: int) -> None:
        """Make the last hash boundary before the prompt's last token a hit, where it lies inside a block.

        A state is one only while it is the running one, after exactly so many tokens, and no fork has it as
        well. Where hits cannot end inside blocks, only full blocks are found by their parts.
        """
        hash_block_size = self._config.hash_block_size
        edge = self._edge_of(sequence)
        if not 0 < edge <= num_tokens:
            return
        edge_hash = sequence.block_hashes[edge // hash_block_size - 1]
        for group, kind, store in self._edged:
            table = sequence.tables[group]
            position, inside = divmod(edge, kind.block_size)
            if not inside:
                continue
            block = table.block_ids[position]
            if kind.keeps_states:
                is_ripe = (
                    self._ends_inside_blocks
                    and sequence.num_granted_tokens == num_tokens == edge != sequence.num_forked_tokens
                )
            else:
                is_ripe = self._ends_inside_blocks or position < table.num_published
            if is_ripe and block != NULL_BLOCK and edge_hash not in store.hashes_of(block):
                store.publish_part(block, group, edge_hash)
                if self._events is not None:
                    self._tell(group, sequence, position, inside)
                table.is_edge_published = True
                if kind.keeps_states:
                    store.unripe.add(block)
                    store.running_states[block] = sequence.lease_id
                    table.edge_state = position

    def _tell(self, group: GroupIndex, sequence: Sequence, position: int, num_tokens: int) -> None:
        """Tell that the block at ``position`` is a hit for the first ``num_tokens`` of its tokens."""
        assert self._events is not None
        self._events.published(
            group,
            sequence.stored_block(
                begin=position * self._kinds[group].block_size,
                num_tokens=num_tokens,
                hash_block_size=self._config.hash_block_size,
            ),
        )

    def _drop_skipped(self, sequence: Sequence, num_granted_tokens: int) -> None:
        """Drop what the sequence needs no more.

        Where blocks are published on commit, tokens that are not committed may still be written by a
        worker: what these look at stays.
        """
        if not self._dropping:
            return
        num_tokens = num_granted_tokens
        if not self._publishes_on_allocate:
            num_tokens = min(num_tokens, sequence.num_committed_tokens)
        progress = Progress(num_tokens, sequence.num_prompt_tokens)
        for group, kind, store in self._dropping:
            dropped = kind.drop(sequence.tables[group], progress)
            if dropped:
                store.release(dropped)


def _keep_edge(table: BlockTable, store: BlockStore, copies: Copies, lease_id: LeaseId) -> None:
    """Let a state that others may find move to a block of its own, before the running one overwrites it."""
    assert table.edge_state is not None
    running = table.block_ids[table.edge_state]
    table.edge_state = None
    (kept,) = store.take(1)
    store.touch([running])
    copies.append((running, kept))
    store.move_hashes(running, kept)
    del store.running_states[running]
    store.states_to_copy[kept] = lease_id
    store.unripe.add(kept)
