"""Live sequences without shortcuts: admitted, extended, committed, freed."""

from collections.abc import Sequence

from blockyard.core.commands import Admission, Fork
from blockyard.core.config import PoolConfig
from blockyard.core.errors import InvalidRequest, SequenceExistsElsewhere, SequenceNotFound
from blockyard.core.ids import (
    NO_TENANT,
    NULL_BLOCK,
    BlockHash,
    BlockId,
    LeaseId,
    SequenceHandle,
    SequenceId,
    TenantId,
)
from blockyard.core.replies import Admitted
from core.naive_blocks import NaiveBlocks
from core.naive_chunks import chunk_end
from core.naive_forks import begun, check_fork, fork, require_blocks, shares_open
from core.naive_kinds import (
    fill,
    is_found,
    num_skipped_blocks,
    positions_seen,
)
from core.naive_prefixes import NaivePrefixes
from core.naive_publishing import edge_of, publish
from core.naive_sequence import NaiveContent, NaiveSequence
from core.naive_tables import Copies, NaiveTables, Tables


class NaiveSequences:
    """None at first.

    Attributes:
        live: Those not freed yet, in the order of admission.
        prefixes: What they cache.
        tables: How their block tables grow and lose blocks.
        lookups: Tokens asked for and found, per admission that looked for a cached prefix.
    """

    def __init__(self, config: PoolConfig, stores: list[NaiveBlocks]) -> None:
        self.config = config
        self.prefixes = NaivePrefixes(config, stores)
        self.tables = NaiveTables(config, self.prefixes)
        self.live: dict[tuple[TenantId, SequenceId], NaiveSequence] = {}
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

    # Checks, which change nothing

    def scope_of(self, tenant: TenantId) -> TenantId:
        """Who alone finds what ``tenant`` caches."""
        return NO_TENANT if self.config.share_across_tenants else tenant

    def check_admission(self, admission: Admission, tenant: TenantId) -> NaiveContent:
        """Refuse a new sequence that no pool could take; returns its content."""
        self._check(admission)
        return NaiveContent(scope=self.scope_of(tenant)).joined_by(
            admission.block_hashes, admission.token_ids, self.config.hasher(), admission.num_tokens
        )

    def check_extension(
        self, sequence: NaiveSequence, admission: Admission, num_computed: int | None, num_known_tokens: int
    ) -> NaiveContent:
        """Refuse figures that contradict what is known; returns the content, told of so many tokens."""
        self._check(admission)
        if num_computed is not None and not self._may_take_back(sequence, num_computed):
            raise InvalidRequest.of("num_computed_tokens", "is out of range")
        if admission.num_tokens < (sequence.num_computed if num_computed is None else num_computed):
            raise InvalidRequest.of("num_tokens", "is less than is computed")
        self._check_untold(sequence, admission.block_hashes, admission.token_ids)
        return sequence.content.joined_by(
            admission.block_hashes, admission.token_ids, self.config.hasher(), num_known_tokens
        )

    def check_commit(
        self,
        sequence: NaiveSequence,
        num_tokens: int,
        hashes: Sequence[BlockHash] = (),
        token_ids: Sequence[int] = (),
    ) -> NaiveContent:
        """Refuse to commit what was not granted; returns the content."""
        if not 0 <= num_tokens <= sequence.num_computed:
            raise InvalidRequest.of("num_computed_tokens", "is more than was granted")
        self._check_untold(sequence, hashes, token_ids)
        return sequence.content.joined_by(hashes, token_ids, self.config.hasher(), sequence.num_tokens)

    def check_fork(self, sequence: NaiveSequence, command: Fork, tenant: TenantId) -> NaiveContent:
        """Refuse ids that are not new, and what no pool could do; returns the content."""
        own = [known.sequence_id for known in self.held_by(sequence.lease_id)]
        content = self.check_commit(sequence, 0, command.block_hashes, command.token_ids)
        check_fork(self.config, sequence, content, command.new_sequence_ids)
        for sequence_id in command.new_sequence_ids:
            if sequence_id in own:
                raise InvalidRequest.of("new_sequence_ids", "is a sequence's already")
            if (tenant, sequence_id) in self.live:
                raise SequenceExistsElsewhere(f"{sequence_id!r} is another lease's")
        return content

    def _check_untold(
        self, sequence: NaiveSequence, hashes: Sequence[BlockHash], token_ids: Sequence[int]
    ) -> None:
        """What no hash of was told when it was forked never gets one."""
        if not self.config.enable_prefix_caching or sequence.content.hashes or not (hashes or token_ids):
            return
        if sequence.num_forked >= self.config.hash_block_size:
            raise InvalidRequest.of("block_hashes", "the sequence was forked without")

    def _check(self, admission: Admission) -> None:
        """Refuse figures that are out of range, whatever the pool holds."""
        limit = self.config.max_model_len
        if (
            admission.num_tokens < 1
            or (limit is not None and admission.num_tokens > limit)
            or (admission.max_new_tokens is not None and admission.max_new_tokens < 1)
            or (admission.num_prompt_tokens is not None and admission.num_prompt_tokens < 1)
            or admission.num_encoder_tokens < 0
            or admission.num_lookahead_tokens < 0
        ):
            raise InvalidRequest.of("admission", "a figure is out of range")

    def _may_take_back(self, sequence: NaiveSequence, num_computed: int) -> bool:
        """All but so many tokens: those then written anew are granted, not committed, and not published, and
        no block that the first of them looks at was dropped; a state of speculated tokens will do.
        """
        if num_computed == sequence.num_computed:
            return True
        if not sequence.num_committed <= num_computed <= sequence.num_computed:
            return False
        if num_computed < max(sequence.num_edge_tokens, sequence.num_forked):
            return False
        num_taken_back = sequence.num_computed - num_computed
        for group, table, num_published in zip(
            self.config.groups, sequence.tables, sequence.num_published, strict=True
        ):
            seen = positions_seen(group, table, num_computed, sequence.num_prompt)
            if num_published * group.block_size > num_computed:
                return False
            has_state = group.kind == "mamba" and num_taken_back <= group.num_speculative_blocks
            if NULL_BLOCK in [table[position] for position in seen] and not has_state:
                return False
        return True

    # Changes

    def admit(
        self,
        lease_id: LeaseId,
        tenant: TenantId,
        admission: Admission,
        content: NaiveContent,
        copies: Copies,
    ) -> Admitted:
        """A new sequence: look up; count; refuse or take the hit and give the rest; publish.

        The watermark, which must stay free, counts as needed.
        """
        if (tenant, admission.sequence_id) in self.live:
            raise SequenceExistsElsewhere(f"{admission.sequence_id!r} is another lease's")
        groups, watermark = self.config.groups, self.config.watermark_blocks
        num_sought = 0 if admission.skip_prefix_cache else admission.num_tokens
        num_cached, hit = self.prefixes.find(num_sought, content.hashes, self.withheld_from(lease_id))
        num_prompt = admission.num_prompt_tokens or admission.num_tokens
        num_new = self._num_new(admission, num_cached, num_prompt)
        num_tokens = num_cached + num_new
        tables = []
        for group, cached in zip(groups, hit, strict=True):
            num_skipped = num_skipped_blocks(group, num_cached)
            tables.append([NULL_BLOCK] * num_skipped + cached[num_skipped:])
        # Beside new blocks, those of the hit leave the free queue, and one is taken where it ends inside.
        ends_inside = [is_found(group) and num_cached % group.block_size > 0 for group in groups]
        extra = [
            len([block for block in table if block in self.prefixes.store_of(number).free])
            + ends_inside[number]
            for number, table in enumerate(tables)
        ]
        num_encoder_tokens = admission.num_encoder_tokens
        if admission.full_sequence_must_fit:
            whole = self.tables.required(admission.num_tokens, 0, num_encoder_tokens, at_once=True)
            self.tables.refuse(tables, whole, extra, watermark, is_first=True)
        required = self.tables.required(num_tokens, admission.num_lookahead_tokens, num_encoder_tokens)
        self.tables.refuse(tables, required, extra, watermark, is_first=True)

        if self.config.enable_prefix_caching and not admission.skip_prefix_cache:
            self.lookups.append((admission.num_tokens, num_cached))
        for number, table in enumerate(tables):
            self.prefixes.store_of(number).touch(table)
            self.prefixes.store_of(number).note_hit(table)
        for number, (group, table) in enumerate(zip(groups, tables, strict=True)):
            if ends_inside[number]:
                for source, destination in copies:
                    if destination == table[-1]:  # not there yet: its content is copied from where it is
                        self.prefixes.store_of(number).touch([source])
                        self.prefixes.store_of(number).release([destination])
                        table[-1] = source
                table[-1] = self.tables.copy_of(number, table[-1], copies)
            fill(group, table, required[number], self.prefixes.store_of(number).take, is_first=True)
        self._num_handles += 1
        sequence = NaiveSequence(
            sequence_id=admission.sequence_id,
            handle=SequenceHandle(self._num_handles),
            lease_id=lease_id,
            tenant=tenant,
            tables=tables,
            num_published=[num_cached // group.block_size if is_found(group) else 0 for group in groups],
            num_tokens=admission.num_tokens,
            num_prompt=num_prompt,
            num_encoder_tokens=num_encoder_tokens,
            num_computed=num_tokens,
            num_committed=num_cached,
            content=content,
        )
        self.live[tenant, admission.sequence_id] = sequence
        publish(sequence, self.config, self.prefixes)
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
        content: NaiveContent,
        copies: Copies,
        replaced: list[list[int]],
    ) -> tuple[int, Tables]:
        """A known sequence: drop blocks behind the window; count; refuse or give; publish.

        Where it writes into a block that a fork has open as well, it gets a copy in its place.

        Returns how many tokens were given slots, and the blocks appended per group.
        """
        is_recount = num_computed is not None
        if num_computed is None:
            num_computed = sequence.num_computed
        num_new = self._num_new(admission, num_computed, sequence.num_prompt)
        tables, num_encoder_tokens = sequence.tables, sequence.num_encoder_tokens
        overwrites = [self.tables.overwrites_edge(number, sequence) for number in range(len(tables))]
        limit = self.config.max_model_len or num_computed + num_new + admission.num_lookahead_tokens
        writes = num_new > 0 or (admission.num_lookahead_tokens > 0 and limit > num_computed)
        live = list(self.live.values())
        shares = [
            writes and shares_open(self.config, number, sequence, live) for number in range(len(tables))
        ]
        extra = [overwrites[number] + shares[number] for number in range(len(tables))]
        if admission.full_sequence_must_fit:
            whole = self.tables.required(admission.num_tokens, 0, num_encoder_tokens, at_once=True)
            self.tables.refuse(tables, whole, extra)
        self.tables.drop(sequence, num_computed)
        required = self.tables.required(
            num_computed + num_new, admission.num_lookahead_tokens, num_encoder_tokens
        )
        self.tables.refuse(tables, required, extra)

        appended = []
        for number, (group, table) in enumerate(zip(self.config.groups, tables, strict=True)):
            if overwrites[number]:
                self.tables.move_edge(number, sequence, copies)
            if shares[number]:
                position = sequence.num_forked // group.block_size
                table[position] = self.tables.copy_of(number, table[position], copies)
                replaced.append([sequence.handle, number, position, table[position]])
            take = self.prefixes.store_of(number).take
            appended.append(fill(group, table, required[number], take, is_first=False))
        kept = 0 if is_recount else sequence.num_tokens
        sequence.num_tokens = max(kept, admission.num_tokens)
        sequence.num_computed = num_computed + num_new
        sequence.content = content
        publish(sequence, self.config, self.prefixes)
        return num_new, appended

    def commit(self, sequence: NaiveSequence, num_tokens: int, content: NaiveContent) -> int:
        """These tokens' KV is written; a number below what is committed already changes nothing.

        Returns how many blocks were published.
        """
        sequence.content = content
        sequence.num_committed = max(sequence.num_committed, num_tokens)
        return publish(sequence, self.config, self.prefixes)

    def fork(
        self,
        sequence: NaiveSequence,
        new_ids: Sequence[SequenceId],
        content: NaiveContent,
        copies: Copies,
    ) -> list[NaiveSequence]:
        """Refuse or begin sequences that go on from where this one stands."""
        require_blocks(self.config, sequence, len(new_ids), self.tables)
        sequence.content = content
        publish(sequence, self.config, self.prefixes)
        for sequence_id in new_ids:
            self._num_handles += 1
            new = begun(sequence, sequence_id, self._num_handles)
            fork(self.config, sequence, new, self.tables, copies)
            self.live[sequence.tenant, sequence_id] = new
        return [self.live[sequence.tenant, sequence_id] for sequence_id in new_ids]

    def free(self, sequence: NaiveSequence) -> int:
        """Group by group, in group order, each group's table reversed: its tail is evicted first."""
        del self.live[sequence.tenant, sequence.sequence_id]
        return sum(
            self.prefixes.store_of(number).release(table[::-1])
            for number, table in enumerate(sequence.tables)
        )

    def withheld_from(self, lease_id: LeaseId) -> set[BlockId]:
        """States of the device that other leases' sequences will overwrite, or that their workers copy."""
        running = {
            table[edge_of(sequence, self.config) // self.config.groups[number].block_size]
            for sequence in self.live.values()
            for number, table in enumerate(sequence.tables)
            if sequence.lease_id != lease_id and self.tables.overwrites_edge(number, sequence)
        }
        return running | {
            block for block, owner in self.prefixes.stores[0].to_copy.items() if owner != lease_id
        }

    def _num_new(self, admission: Admission, begin: int, num_prompt: int) -> int:
        """Tokens that are given slots behind the first ``begin`` ones."""
        end = min(admission.num_tokens, begin + (admission.max_new_tokens or admission.num_tokens))
        if admission.end_at_state:
            end = chunk_end(self.config, begin, end, num_prompt, admission.num_tokens)
        return end - begin
