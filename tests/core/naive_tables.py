"""A sequence's block tables without shortcuts: what they need, what of them is dropped, what is copied."""

from typing import TypeAlias

from blockyard.core.config import PoolConfig, Publish
from blockyard.core.ids import NULL_BLOCK, BlockId
from core.naive_kinds import (
    is_states,
    num_new_blocks,
    num_required,
    num_required_at_once,
    positions_to_drop,
)
from core.naive_prefixes import NaivePrefixes
from core.naive_publishing import edge_of
from core.naive_sequence import NaiveSequence

Copies: TypeAlias = list[tuple[BlockId, BlockId]]
"""Blocks that workers were told to copy, from and to."""

Tables: TypeAlias = list[list[BlockId]]


class NaiveTables:
    """How tables go with the blocks of ``prefixes``."""

    def __init__(self, config: PoolConfig, prefixes: NaivePrefixes) -> None:
        self.config = config
        self.prefixes = prefixes
        self.stores = prefixes.stores

    def required(
        self, num_tokens: int, num_lookahead_tokens: int, num_encoder_tokens: int, *, at_once: bool = False
    ) -> list[int]:
        """Per group, a table's length; ``at_once``: no more than a windowed group can use at a time."""
        config, num_slots = self.config, num_tokens + num_lookahead_tokens
        if config.max_model_len is not None:
            num_slots = min(num_slots, config.max_model_len)
        required = [num_required(group, num_tokens, num_slots, num_encoder_tokens) for group in config.groups]
        if not at_once:
            return required
        return [
            num_required_at_once(group, length, config.max_in_flight_tokens, config.max_model_len)
            for group, length in zip(config.groups, required, strict=True)
        ]

    def refuse(
        self,
        tables: Tables,
        required: list[int],
        extra: list[int],
        watermark: int = 0,
        *,
        is_first: bool = False,
    ) -> None:
        """Unless as many blocks are free: the device's first, and the watermark of them; then the host's."""
        for store in self.stores:
            num_needed = 0
            for number, (group, table) in enumerate(zip(self.config.groups, tables, strict=True)):
                if self.prefixes.store_of(number) is store:
                    num_needed += num_new_blocks(group, table, required[number], is_first=is_first)
                    num_needed += extra[number]
            if num_needed and store is self.stores[0]:
                num_needed += watermark
            store.refuse_above_free(num_needed)

    def drop(self, sequence: NaiveSequence, num_computed: int) -> None:
        """In one free call a group. Where blocks are published on commit, a worker may still write what is
        not committed.
        """
        if self.config.publish is Publish.ON_COMMIT:
            num_computed = min(num_computed, sequence.num_committed)
        for number, (group, table) in enumerate(zip(self.config.groups, sequence.tables, strict=True)):
            positions = positions_to_drop(group, table, num_computed, sequence.num_prompt)
            self.prefixes.store_of(number).release([table[position] for position in positions])
            for position in positions:
                table[position] = NULL_BLOCK

    def copy_of(self, number: int, source: BlockId, copies: Copies) -> BlockId:
        """A block in place of a shared one. Both ends of the copy are held once more: of the shared block,
        that is the hold of the hit.
        """
        store = self.prefixes.store_of(number)
        (destination,) = store.take(1)
        store.touch([destination])
        copies.append((source, destination))
        return destination

    def overwrites_edge(self, number: int, sequence: NaiveSequence) -> bool:
        """Whether the running state is one that others may find, after the prompt's last hash boundary."""
        group, edge = self.config.groups[number], edge_of(sequence, self.config)
        position, num_inside = divmod(edge, group.block_size)
        if not is_states(group) or num_inside == 0 or position >= len(sequence.tables[number]):
            return False
        keys = self.prefixes.store_of(number).keys_of(sequence.tables[number][position])
        return edge in [key.num_tokens for key in keys]

    def move_edge(self, number: int, sequence: NaiveSequence, copies: Copies) -> None:
        """One more block is taken, the keys move to it, and the copy is reported."""
        position = edge_of(sequence, self.config) // self.config.groups[number].block_size
        running = sequence.tables[number][position]
        store = self.prefixes.store_of(number)
        (kept,) = store.take(1)
        store.touch([running])
        copies.append((running, kept))
        store.move_keys(running, kept)
        store.fresh.append(kept)
        store.to_copy[kept] = sequence.lease_id

    def release_copies(self, copies: Copies, *, are_made: bool = True) -> int:
        """Source, destination, copy by copy. A state that was not copied is kept no more."""
        device = self.stores[0]
        for _, destination in copies:
            if device.to_copy.pop(destination, None) is not None and not are_made:
                device.forget(destination)
        num_freed = sum(self.stores[0].release([block]) for copy in copies for block in copy)
        copies.clear()
        return num_freed
