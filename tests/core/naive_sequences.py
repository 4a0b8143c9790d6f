"""Live sequences without shortcuts: admitted, extended, committed, freed."""

from collections.abc import Sequence

from blockyard.core.commands import Admission
from blockyard.core.config import GroupConfig, PoolConfig, Publish
from blockyard.core.errors import InvalidRequest, SequenceExistsElsewhere, SequenceNotFound
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId, LeaseId, SequenceHandle, SequenceId
from blockyard.core.replies import Admitted
from core.naive_blocks import NaiveBlocks
from core.naive_prefixes import NaivePrefixes, num_skipped_blocks
from core.naive_sequence import NaiveContent, NaiveSequence


class NaiveSequences:
    """None at first.

    Attributes:
        live: Those not freed yet, in the order of admission.
        prefixes: What they cache.
        lookups: Tokens asked for and found, per admission that looked for a cached prefix.
    """

    def __init__(self, config: PoolConfig, blocks: NaiveBlocks) -> None:
        self.config = config
        self.blocks = blocks
        self.prefixes = NaivePrefixes(config, blocks)
        self.live: dict[SequenceId, NaiveSequence] = {}
        self.lookups: list[tuple[int, int]] = []
        self._num_handles = 0

    def held_by(self, lease_id: LeaseId) -> list[NaiveSequence]:
        return [sequence for sequence in self.live.values() if sequence.lease_id == lease_id]

    def held(self, lease_id: LeaseId, name: SequenceId | SequenceHandle) -> NaiveSequence:
        """The lease's sequence of that id or handle."""
        for sequence in self.held_by(lease_id):
            if name in (sequence.sequence_id, sequence.handle):
                return sequence
        raise SequenceNotFound(f"the lease holds no sequence {name!r}")

    def admit(self, lease_id: LeaseId, admission: Admission) -> Admitted:
        """A new sequence: look up; count; refuse or take the hit and give the rest; publish.

        The watermark, which must stay free, counts as needed.
        """
        self._check(admission)
        if admission.sequence_id in self.live:
            raise SequenceExistsElsewhere(f"{admission.sequence_id!r} is another lease's")
        content = NaiveContent().joined_by(
            admission.block_hashes, admission.token_ids, self.config.hasher(), admission.num_tokens
        )
        num_sought = 0 if admission.skip_prefix_cache else admission.num_tokens
        num_cached, hit = self.prefixes.find(num_sought, content.hashes)
        num_new = min(admission.num_tokens - num_cached, admission.max_new_tokens or admission.num_tokens)
        slots = self._clamp(num_cached + num_new + admission.num_lookahead_tokens)

        watermark = self.config.watermark_blocks
        if admission.full_sequence_must_fit:
            full = self._clamp(admission.num_tokens)
            need = self._need_of_new(full, hit, capped=True)
            self.blocks.refuse_above_free(watermark + need)
        need = self._need_of_new(slots, hit, capped=False)
        self.blocks.refuse_above_free(watermark + need)

        if self.config.enable_prefix_caching and not admission.skip_prefix_cache:
            self.lookups.append((admission.num_tokens, num_cached))
        tables = [list(cached) for cached in hit]
        for table in tables:
            self.blocks.touch(table)
        self._fill(tables, slots)
        self._num_handles += 1
        sequence = NaiveSequence(
            sequence_id=admission.sequence_id,
            handle=SequenceHandle(self._num_handles),
            lease_id=lease_id,
            tables=tables,
            num_published=[len(cached) for cached in hit],
            num_tokens=admission.num_tokens,
            num_computed=num_cached + num_new,
            num_committed=num_cached,
            content=content,
        )
        self.live[admission.sequence_id] = sequence
        self.prefixes.publish(sequence)
        return Admitted(
            sequence=sequence.handle,
            num_cached_tokens=num_cached,
            num_new_tokens=num_new,
            block_ids=[list(table) for table in tables],
        )

    def extend(
        self,
        sequence: NaiveSequence,
        admission: Admission,
        num_computed: int | None,
        num_known_tokens: int | None = None,
    ) -> tuple[int, list[list[BlockId]]]:
        """A known sequence: drop blocks behind the window; count; refuse or give; publish.

        ``num_known_tokens``: tokens that content may be told of; None for those of the admission. Returns how
        many tokens were given slots, and the blocks appended per group.
        """
        is_recount = num_computed is not None
        if num_computed is None:
            num_computed = sequence.num_computed
        self._check(admission)
        if is_recount and not self._may_take_back(sequence, num_computed):
            raise InvalidRequest.of("num_computed_tokens", "is out of range")
        if admission.num_tokens < num_computed:
            raise InvalidRequest.of("num_tokens", "is less than is computed")
        content = sequence.content.joined_by(
            admission.block_hashes,
            admission.token_ids,
            self.config.hasher(),
            num_known_tokens or admission.num_tokens,
        )
        missing = admission.num_tokens - num_computed
        num_new = min(missing, admission.max_new_tokens or missing)
        slots = self._clamp(num_computed + num_new + admission.num_lookahead_tokens)

        if admission.full_sequence_must_fit:
            full = self._clamp(admission.num_tokens)
            self.blocks.refuse_above_free(self._need_of_known(full, sequence, capped=True))
        self._drop_skipped(sequence, num_computed)
        self.blocks.refuse_above_free(self._need_of_known(slots, sequence, capped=False))

        appended = self._fill(sequence.tables, slots)
        kept = 0 if is_recount else sequence.num_tokens
        sequence.num_tokens = max(kept, admission.num_tokens)
        sequence.num_computed = num_computed + num_new
        sequence.content = content
        self.prefixes.publish(sequence)
        return num_new, appended

    def commit(
        self,
        sequence: NaiveSequence,
        num_tokens: int,
        hashes: Sequence[BlockHash] = (),
        token_ids: Sequence[int] = (),
    ) -> int:
        """These tokens' KV is written; a number below what is committed already changes nothing.

        Returns how many blocks were published.
        """
        if not 0 <= num_tokens <= sequence.num_computed:
            raise InvalidRequest.of("num_computed_tokens", "is more than was granted")
        sequence.content = sequence.content.joined_by(
            hashes, token_ids, self.config.hasher(), sequence.num_tokens
        )
        sequence.num_committed = max(sequence.num_committed, num_tokens)
        return self.prefixes.publish(sequence)

    def free(self, sequence: NaiveSequence) -> int:
        """Group by group, in group order, each group's table reversed: its tail is evicted first."""
        del self.live[sequence.sequence_id]
        return sum(self.blocks.release(table[::-1]) for table in sequence.tables)

    def _may_take_back(self, sequence: NaiveSequence, num_computed: int) -> bool:
        """All but so many tokens: those then written anew are granted, not committed, and not published, and
        no block that the first of them looks at was dropped.
        """
        if not sequence.num_committed <= num_computed <= sequence.num_computed:
            return False
        for group, table, num_published in zip(
            self.config.groups, sequence.tables, sequence.num_published, strict=True
        ):
            needed = table[num_skipped_blocks(group, num_computed) :]
            if num_published * group.block_size > num_computed or NULL_BLOCK in needed:
                return False
        return True

    def _check(self, admission: Admission) -> None:
        """Refuse figures that are out of range, whatever the pool holds."""
        limit = self.config.max_model_len
        if (
            admission.num_tokens < 1
            or (limit is not None and admission.num_tokens > limit)
            or (admission.max_new_tokens is not None and admission.max_new_tokens < 1)
            or admission.num_lookahead_tokens < 0
        ):
            raise InvalidRequest.of("admission", "a figure is out of range")

    def _need_of_new(self, slots: int, hit: list[list[BlockId]], *, capped: bool) -> int:
        """Blocks that leave the free queue for a new sequence, those of its hit included."""
        need = 0
        for group, cached in zip(self.config.groups, hit, strict=True):
            need += max(self._required(group, slots, capped=capped) - len(cached), 0)
            need += len([block for block in cached if block in self.blocks.free])
        return need

    def _need_of_known(self, slots: int, sequence: NaiveSequence, *, capped: bool) -> int:
        """Blocks that leave the free queue for a known sequence."""
        return sum(
            max(self._required(group, slots, capped=capped) - len(table), 0)
            for group, table in zip(self.config.groups, sequence.tables, strict=True)
        )

    def _required(self, group: GroupConfig, slots: int, *, capped: bool) -> int:
        """Blocks for so many slots; capped, no more than a windowed group can use at a time."""
        required = _div_ceil(slots, group.block_size)
        in_flight = self.config.max_in_flight_tokens
        if capped and group.sliding_window is not None:
            seen = self._clamp(group.sliding_window - 1 + in_flight)
            return min(required, _div_ceil(seen, group.block_size) + 1)
        if capped and group.attention_chunk_size is not None:
            seen = self._clamp(group.attention_chunk_size + in_flight)
            return min(required, _div_ceil(seen, group.block_size))
        return required

    def _clamp(self, num_tokens: int) -> int:
        limit = self.config.max_model_len
        return num_tokens if limit is None else min(num_tokens, limit)

    def _fill(self, tables: list[list[BlockId]], slots: int) -> list[list[BlockId]]:
        """New blocks behind each table, group by group, until it has ``slots``. Returns them."""
        appended = []
        for group, table in zip(self.config.groups, tables, strict=True):
            blocks = self.blocks.take(max(_div_ceil(slots, group.block_size) - len(table), 0))
            table.extend(blocks)
            appended.append(blocks)
        return appended

    def _drop_skipped(self, sequence: NaiveSequence, num_computed: int) -> None:
        """From the last skipped block backwards until a null is met, in one free call, in that order.

        Where blocks are published on commit, a worker may still write what is not committed.
        """
        if self.config.publish is Publish.ON_COMMIT:
            num_computed = min(num_computed, sequence.num_committed)
        for group, table in zip(self.config.groups, sequence.tables, strict=True):
            dropped = []
            for position in reversed(range(num_skipped_blocks(group, num_computed))):
                if table[position] == NULL_BLOCK:
                    break
                dropped.append(table[position])
                table[position] = NULL_BLOCK
            self.blocks.release(dropped)


def _div_ceil(value: int, divisor: int) -> int:
    return (value + divisor - 1) // divisor
