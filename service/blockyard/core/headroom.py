"""How far a running sequence can go on before a call for it changes more than its counts.

In most steps of a decoding sequence the next token has its slot already, no block is full, and none falls
behind the window: all that changes is how many tokens are granted and committed. How long that holds is
worked out whenever a table changes, so that the calls in between need one comparison each.

    blocks of 16     |.... 2000 granted ....|  last block  |
    headroom                                 2001 .. 2016
"""

from bisect import bisect_right
from collections.abc import Sequence as SequenceOf

from blockyard.core.arithmetic import align_down, align_up
from blockyard.core.config import PoolConfig, Publish
from blockyard.core.kinds import ANY_LENGTH, Kind, Progress, ends_inside_blocks
from blockyard.core.sequence import BlockTable, Sequence


class Headroom:
    """Works it out for the sequences of a pool.

    Args:
        config: The pool's configuration.
        kinds: One a group.
        is_edged: Whether parts of blocks may be hits in some group.
    """

    __slots__ = (
        "_aligns",
        "_config",
        "_dropping",
        "_is_edged",
        "_kinds",
        "_publishes_on_allocate",
    )

    def __init__(
        self,
        config: PoolConfig,
        kinds: SequenceOf[Kind],
        *,
        is_edged: bool,
    ) -> None:
        self._config = config
        self._kinds = kinds
        self._dropping = [(group, kind) for group, kind in enumerate(kinds) if kind.drops_blocks]
        self._is_edged = is_edged
        self._aligns = len(kinds) > 1 and not ends_inside_blocks(config.groups, config.hash_block_size)
        self._publishes_on_allocate = config.publish is Publish.ON_ALLOCATE

    def note(self, sequence: Sequence) -> None:
        """Set ``extend_headroom`` and ``commit_headroom`` of a sequence whose tables or hashes changed."""
        num_slots = ANY_LENGTH
        for kind, table in zip(self._kinds, sequence.tables, strict=True):
            num_slots = min(num_slots, 0 if table.edge_state is not None else kind.num_slots(table))
        num_granted, num_committed = sequence.num_granted_tokens, sequence.num_committed_tokens
        num_computed = num_granted if self._publishes_on_allocate else num_committed
        num_kept = self._most_tokens_kept(sequence, num_computed)
        num_unpublished = self._next_publishing(sequence, num_computed) - 1
        if num_granted == sequence.num_forked_tokens:
            num_slots = 0  # what is written next may be shared
        if self._publishes_on_allocate:
            sequence.extend_headroom = min(num_slots, num_kept, num_unpublished)
            sequence.commit_headroom = ANY_LENGTH
        else:
            sequence.extend_headroom = num_slots if num_kept >= num_committed else 0
            sequence.commit_headroom = min(num_kept, num_unpublished)

    def _most_tokens_kept(self, sequence: Sequence, num_computed: int) -> int:
        """With how many computed tokens no block is dropped; less than there are if one is to be now."""
        most = ANY_LENGTH
        for group, kind in self._dropping:
            most = min(most, _most_kept(kind, sequence.tables[group], num_computed, sequence))
        return most

    def _next_publishing(self, sequence: Sequence, num_computed: int) -> int:
        """With how many computed tokens a further block is published, of those that have hashes."""
        config = self._config
        if not config.enable_prefix_caching:
            return ANY_LENGTH
        num_hashed = len(sequence.block_hashes) * config.hash_block_size
        least = ANY_LENGTH
        for kind, table in zip(self._kinds, sequence.tables, strict=True):
            if not kind.is_cacheable:
                continue
            num_tokens = (table.num_published + 1) * kind.block_size
            if self._aligns and not kind.is_draft:
                num_tokens = align_up(num_tokens, config.scheduler_block_size)
            if num_tokens <= num_hashed:
                least = min(least, num_tokens)
        if self._is_edged:
            edge = align_down(sequence.num_prompt_tokens - 1, config.hash_block_size)
            if num_computed < edge <= num_hashed:
                least = min(least, edge)
        return least


def _most_kept(kind: Kind, table: BlockTable, num_computed: int, sequence: Sequence) -> int:
    """As `Headroom._most_tokens_kept`, of one group; it looks no further than a block ahead."""
    num_prompt = sequence.num_prompt_tokens
    progress = Progress(num_computed, num_prompt)
    if kind.has_droppable(table, progress):
        return num_computed - 1

    def end(num_tokens: int) -> int:
        return kind.droppable(Progress(num_tokens, num_prompt)).stop

    ahead = range(num_computed, num_computed + kind.block_size)
    return num_computed - 1 + bisect_right(ahead, end(num_computed), key=end)
