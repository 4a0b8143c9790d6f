"""A live sequence of the naive pool, and what is known of its tokens."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from blockyard.core.errors import InvalidRequest
from blockyard.core.extra_keys import Extras
from blockyard.core.hash_chain import Hasher
from blockyard.core.ids import (
    NO_TENANT,
    BlockHash,
    BlockId,
    LeaseId,
    SequenceHandle,
    SequenceId,
    TenantId,
)


@dataclass(frozen=True)
class NaiveContent:
    """Hashes that were sent, or token ids and the hashes of them; as ``scope`` has them, if it is named."""

    hashes: list[BlockHash] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    scope: TenantId = NO_TENANT

    def joined_by(
        self, hashes: Sequence[BlockHash], token_ids: Sequence[int], hasher: Hasher, num_tokens: int
    ) -> "NaiveContent":
        """With what a call brings, of the same sort only, and no more than belongs to ``num_tokens``.

        Tokens are hashed from the first one on.
        """
        num_hashed = (len(self.hashes) + len(hashes)) * hasher.block_size
        if (hashes and num_hashed > num_tokens) or (
            token_ids and len(self.token_ids) + len(token_ids) > num_tokens
        ):
            raise InvalidRequest.of("block_hashes", "more content than tokens")
        if not token_ids:
            if hashes and self.token_ids:
                raise InvalidRequest.of("block_hashes", "the sequence began with token_ids")
            return NaiveContent([*self.hashes, *self._scoped(hashes)], self.token_ids, self.scope)
        if hashes or (self.hashes and not self.token_ids):
            raise InvalidRequest.of("token_ids", "give either hashes or tokens")
        all_tokens = [*self.token_ids, *token_ids]
        _, all_hashes = hasher.start(Extras()).append(all_tokens)
        return NaiveContent(self._scoped(all_hashes), all_tokens, self.scope)

    def _scoped(self, hashes: Sequence[BlockHash]) -> list[BlockHash]:
        if not self.scope:
            return list(hashes)
        person = b"blockyard.tenant"
        return [
            hashlib.blake2b(
                each, key=self.scope.encode(), digest_size=max(len(each), 16), person=person
            ).digest()
            for each in hashes
        ]


@dataclass(kw_only=True)
class NaiveSequence:
    """A live sequence.

    Attributes:
        tables: Per group, a block at each position, or null.
        num_published: Per group, positions that count as cached.
        num_edge_tokens: Where the prompt's last hash boundary is a hit inside some block, its tokens.
        num_computed: Tokens that were given slots, less those that were taken back.
        num_forked: Of these, those that it had when it was last forked, or was a fork.
    """

    sequence_id: SequenceId
    handle: SequenceHandle
    lease_id: LeaseId
    tenant: TenantId
    tables: list[list[BlockId]]
    num_published: list[int]
    num_tokens: int
    num_prompt: int
    num_encoder_tokens: int
    num_computed: int
    num_committed: int
    content: NaiveContent
    num_edge_tokens: int = 0
    num_forked: int = 0
