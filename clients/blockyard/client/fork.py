"""A fork as it is sent, and what its reply makes of it: a scheduler's sequences under new names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from blockyard.client.step_result import ForkResult
from blockyard.client.tracked import Tracked
from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import BlockHash
from blockyard.core.replies import Forked


class ForkArguments(TypedDict):
    """What `Lease.fork` is called with."""

    sequence_id: str
    new_sequence_ids: Sequence[str]
    block_hashes: Sequence[BlockHash]
    event_token_ids: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedFork:
    """``forks`` of ``parent``, by their ids, as it was then; ``num_hashes`` of it the server has by then."""

    parent: Tracked
    forks: Mapping[str, Tracked]
    num_hashes: int

    @property
    def arguments(self) -> ForkArguments:
        """Those of `Lease.fork`."""
        num_sent = self.parent.num_sent_hashes
        return ForkArguments(
            sequence_id=self.parent.sequence_id,
            new_sequence_ids=list(self.forks),
            block_hashes=self.parent.block_hashes[num_sent : self.num_hashes],
            event_token_ids=self.parent.event_token_ids(num_sent, self.num_hashes),
        )

    def take_in(self, reply: Forked) -> ForkResult:
        """Note on each sequence what the reply says."""
        self.parent.num_sent_hashes = self.num_hashes
        for fork, handle, block_ids in zip(
            self.forks.values(), reply.sequences, reply.block_ids, strict=True
        ):
            fork.handle = handle
            fork.num_sent_hashes = self.num_hashes
            fork.grow(block_ids)
        return ForkResult(
            epoch=reply.epoch,
            block_ids={name: fork.block_ids for name, fork in self.forks.items()},
            num_computed_tokens=reply.num_computed_tokens,
            copies=reply.copies,
            num_free_blocks=reply.num_free_blocks,
        )


def prepare_fork(parent: Tracked, new_ids: Sequence[str]) -> PreparedFork:
    """Forks of ``parent``, as it is now, under ids that are new.

    Raises:
        InvalidRequest: No id is given, or one twice, or ``parent`` waits, or guesses are among its tokens.
    """
    if not new_ids or len(set(new_ids)) != len(new_ids):
        raise InvalidRequest.of("new_sequence_ids", "give at least one id, each once")
    if parent.handle is None:
        raise InvalidRequest.of("sequence_id", f"{parent.sequence_id!r} has no slots: it waits")
    if not parent.num_counted_tokens == parent.num_granted_tokens <= parent.num_tokens:
        raise InvalidRequest.of(
            "sequence_id",
            f"{parent.sequence_id!r} has guesses among its tokens: append or reject them, and step first",
        )
    num_hashes = parent.num_sent_hashes
    if parent.chain is not None:  # of the tokens that the forks have in common
        num_full = parent.num_granted_tokens // parent.chain.hasher.block_size
        num_hashes = max(num_hashes, num_full)
    return PreparedFork(
        parent=parent, forks={name: parent.forked(name) for name in new_ids}, num_hashes=num_hashes
    )
