"""All live sequences of a pool: admitting, extending, committing and freeing them.

The sequences of one pool are told apart by their schedulers' ids and by short handles. What a call says is
checked before anything is changed.
"""

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from typing import Any, NamedTuple

from blockyard.core.block_store import BlockStore
from blockyard.core.block_tables import BlockTables
from blockyard.core.commands import Admission
from blockyard.core.config import PoolConfig
from blockyard.core.errors import InsufficientBlocks, InvalidRequest
from blockyard.core.extra_keys import Extras
from blockyard.core.hash_chain import HashChain
from blockyard.core.ids import BlockHash, BlockId, LeaseId, SequenceHandle, SequenceId
from blockyard.core.prefix_lookup import Hit
from blockyard.core.replies import Admitted
from blockyard.core.sequence import Sequence
from blockyard.core.statistics import Counters, HitWindow


class Content(NamedTuple):
    """What a call tells of a sequence's tokens: hashes that are new, and where hashing goes on."""

    block_hashes: SequenceOf[BlockHash]
    chain: HashChain | None


class Sequences:
    """None at first.

    Args:
        config: The pool's configuration.
        store: Its blocks.
        counters: Counted up by this object's methods.
        hits: Likewise.
    """

    def __init__(self, config: PoolConfig, store: BlockStore, counters: Counters, hits: HitWindow) -> None:
        self._config = config
        self._tables = BlockTables(config, store)
        self._counters = counters
        self._hits = hits
        self._by_id: dict[SequenceId, Sequence] = {}
        self._by_handle: dict[SequenceHandle, Sequence] = {}
        self.next_handle = 1

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._by_id.values())

    def get(self, sequence_id: SequenceId) -> Sequence | None:
        """The live sequence of this id."""
        return self._by_id.get(sequence_id)

    def by_handle(self, handle: SequenceHandle) -> Sequence | None:
        """The live sequence of this handle."""
        return self._by_handle.get(handle)

    def find(
        self,
        num_tokens: int,
        block_hashes: SequenceOf[BlockHash],
        token_ids: SequenceOf[int],
        extras: Extras | None,
    ) -> Hit:
        """The longest cached prefix of ``num_tokens`` tokens. Changes nothing.

        Raises:
            InvalidRequest: Hashes and token ids are both given, or the tokens cannot be hashed.
        """
        if num_tokens < 1:
            raise InvalidRequest.of("num_tokens", "must be at least 1")
        return self._tables.find(num_tokens, self.content(None, block_hashes, token_ids, extras).block_hashes)

    def content(
        self,
        sequence: Sequence | None,
        block_hashes: SequenceOf[BlockHash],
        token_ids: SequenceOf[int],
        extras: Extras | None = None,
    ) -> Content:
        """Hash what has to be hashed of a call about ``sequence`` (None: a new one). Changes nothing.

        Raises:
            InvalidRequest: The two ways of telling content are mixed, or the tokens cannot be hashed.
        """
        chain = sequence.chain if sequence is not None else None
        if not token_ids and extras is None:
            if block_hashes and chain is not None:
                raise InvalidRequest.of("block_hashes", "the sequence began with token_ids: go on with these")
            return Content(block_hashes, chain)
        if block_hashes:
            raise InvalidRequest.of(
                "block_hashes", "give either block_hashes, with all extra keys hashed in, or token_ids"
            )
        if chain is None:
            if sequence is not None and sequence.block_hashes:
                raise InvalidRequest.of("token_ids", "the sequence began with block_hashes: go on with these")
            chain = self._config.hasher().start(extras)
        elif extras is not None and extras != chain.extras:
            raise InvalidRequest.of("extras", "extra keys are fixed by the call that sent the first tokens")
        chain, hashes = chain.append(token_ids)
        return Content(hashes, chain)

    def check_admission(self, admission: Admission, known: Sequence | None) -> Content:
        """Refuse what no pool could grant, and hash what has to be hashed. Changes nothing.

        Args:
            admission: What is asked for.
            known: The sequence, if it is live already.

        Raises:
            InvalidRequest: A figure is out of range, or the content is not valid.
        """
        self._check_num_tokens(admission.num_tokens)
        if admission.max_new_tokens is not None and admission.max_new_tokens < 1:
            raise InvalidRequest.of("max_new_tokens", "must be at least 1, or left out")
        if admission.num_lookahead_tokens < 0:
            raise InvalidRequest.of("num_lookahead_tokens", "must be at least 0")
        return self.content(known, admission.block_hashes, admission.token_ids, admission.extras)

    def admit(self, lease_id: LeaseId, admission: Admission, content: Content) -> tuple[Sequence, Admitted]:
        """Begin a sequence of a new id with what `check_admission` returned for it.

        Raises:
            InsufficientBlocks: Nothing was given; the sequence does not exist.
        """
        num_tokens = admission.num_tokens
        if admission.skip_prefix_cache:
            hit = self._tables.no_hit()
        else:
            hit = self._tables.find(num_tokens, content.block_hashes)
        sequence = Sequence(
            sequence_id=admission.sequence_id,
            handle=SequenceHandle(self.next_handle),
            lease_id=lease_id,
            tables=[],
            num_published_blocks=[],
            num_tokens=num_tokens,
            num_computed_tokens=0,
            num_committed_tokens=0,
            block_hashes=list(content.block_hashes),
            chain=content.chain,
        )
        num_new = num_tokens - hit.num_tokens
        if admission.max_new_tokens is not None:
            num_new = min(num_new, admission.max_new_tokens)
        try:
            self._tables.admit(
                sequence,
                hit,
                num_new_tokens=num_new,
                num_lookahead_tokens=admission.num_lookahead_tokens,
                must_fit_tokens=num_tokens if admission.full_sequence_must_fit else 0,
            )
        except InsufficientBlocks:
            self._counters.num_refused_allocations += 1
            raise
        self.next_handle += 1
        self.register(sequence)
        self._counters.num_admitted_sequences += 1
        self._counters.num_granted_tokens += num_new
        if self._config.enable_prefix_caching and not admission.skip_prefix_cache:
            self._hits.add(num_tokens, hit.num_tokens)
            self._counters.num_queried_tokens += num_tokens
            self._counters.num_hit_tokens += hit.num_tokens
        self._publish(sequence)
        return sequence, Admitted(
            sequence=sequence.handle,
            num_cached_tokens=hit.num_tokens,
            num_new_tokens=num_new,
            block_ids=[list(table) for table in sequence.tables],
        )

    def check_extension(
        self,
        sequence: Sequence,
        num_tokens: int,
        num_computed_tokens: int | None,
        num_committed_tokens: int,
    ) -> None:
        """Refuse counts that contradict what the pool knows. Changes nothing.

        Args:
            sequence: The sequence to extend.
            num_tokens: Tokens that it shall have.
            num_computed_tokens: The caller's count of those computed; None for the pool's.
            num_committed_tokens: Tokens that will be committed by then.

        Raises:
            InvalidRequest: A count is out of range.
        """
        self._check_num_tokens(num_tokens)
        if num_computed_tokens is None:
            num_computed_tokens = sequence.num_computed_tokens
        elif not num_committed_tokens <= num_computed_tokens <= sequence.num_computed_tokens:
            raise InvalidRequest.of(
                "num_computed_tokens",
                f"sequence {sequence.sequence_id!r} has {num_committed_tokens} tokens committed and "
                f"{sequence.num_computed_tokens} granted: {num_computed_tokens} is not between them",
            )
        if num_tokens < num_computed_tokens:
            raise InvalidRequest.of(
                "num_tokens",
                f"{sequence.sequence_id!r} has {num_computed_tokens} tokens already, more than {num_tokens}; "
                "if speculated tokens were rejected, say so with num_computed_tokens",
            )

    def extend(
        self,
        sequence: Sequence,
        *,
        num_tokens: int,
        num_computed_tokens: int | None,
        num_lookahead_tokens: int,
        content: Content,
        max_new_tokens: int | None = None,
        full_sequence_must_fit: bool = False,
    ) -> tuple[int, list[list[BlockId]]]:
        """Give a sequence slots for more tokens, after `check_extension`.

        Returns:
            The number of tokens that were given slots, and per group the blocks appended.

        Raises:
            InsufficientBlocks: Nothing was given, though blocks behind the window were dropped.
        """
        if num_computed_tokens is None:
            num_computed_tokens = sequence.num_computed_tokens
        num_new = num_tokens - num_computed_tokens
        if max_new_tokens is not None:
            num_new = min(num_new, max_new_tokens)
        try:
            appended = self._tables.extend(
                sequence,
                num_computed_tokens=num_computed_tokens,
                num_new_tokens=num_new,
                num_lookahead_tokens=num_lookahead_tokens,
                must_fit_tokens=num_tokens if full_sequence_must_fit else 0,
            )
        except InsufficientBlocks:
            self._counters.num_refused_allocations += 1
            raise
        sequence.num_tokens = num_tokens
        self._counters.num_granted_tokens += num_new
        self._learn(sequence, content)
        self._publish(sequence)
        return num_new, appended

    @staticmethod
    def check_commit(sequence: Sequence, num_computed_tokens: int) -> None:
        """Refuse to commit tokens that were never granted. Changes nothing.

        Raises:
            InvalidRequest: ``num_computed_tokens`` is out of range.
        """
        if not 0 <= num_computed_tokens <= sequence.num_computed_tokens:
            raise InvalidRequest.of(
                "num_computed_tokens",
                f"sequence {sequence.sequence_id!r} was granted {sequence.num_computed_tokens} tokens: "
                f"{num_computed_tokens} cannot be computed",
            )

    def commit(self, sequence: Sequence, num_computed_tokens: int, content: Content) -> int:
        """Note that tokens are written, after `check_commit`; fewer than before change nothing.

        Returns:
            How many blocks were published.
        """
        sequence.num_committed_tokens = max(sequence.num_committed_tokens, num_computed_tokens)
        self._learn(sequence, content)
        return self._publish(sequence)

    def free(self, sequence: Sequence) -> int:
        """End a sequence. Returns how many blocks became free."""
        del self._by_id[sequence.sequence_id]
        del self._by_handle[sequence.handle]
        self._counters.num_freed_sequences += 1
        return self._tables.free(sequence)

    def register(self, sequence: Sequence) -> None:
        """Make a sequence known by its id and handle."""
        self._by_id[sequence.sequence_id] = sequence
        self._by_handle[sequence.handle] = sequence

    def _check_num_tokens(self, num_tokens: int) -> None:
        if num_tokens < 1:
            raise InvalidRequest.of("num_tokens", "must be at least 1")
        limit = self._config.max_model_len
        if limit is not None and num_tokens > limit:
            raise InvalidRequest.of("num_tokens", f"{num_tokens} is above the pool's max_model_len, {limit}")

    def _learn(self, sequence: Sequence, content: Content) -> None:
        if content.block_hashes:
            sequence.block_hashes += content.block_hashes
        sequence.chain = content.chain

    def _publish(self, sequence: Sequence) -> int:
        num_published = self._tables.publish(sequence)
        self._counters.num_published_blocks += num_published
        return num_published


def describe(sequence: Sequence) -> dict[str, Any]:
    """The fields of `SequenceState` but for the epoch."""
    return {
        "sequence": sequence.handle,
        "lease_id": sequence.lease_id,
        "num_tokens": sequence.num_tokens,
        "num_computed_tokens": sequence.num_computed_tokens,
        "num_committed_tokens": sequence.num_committed_tokens,
        "block_ids": [list(table) for table in sequence.tables],
    }
