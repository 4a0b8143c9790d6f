"""What calls tell of a sequence's tokens: hashes or tokens themselves, and what these have to agree with."""

from collections import abc
from typing import NamedTuple

from blockyard.core.config import PoolConfig
from blockyard.core.errors import InvalidRequest
from blockyard.core.extra_keys import Extras
from blockyard.core.hash_chain import HashChain, Hasher
from blockyard.core.hashing import check_token_ids
from blockyard.core.ids import NO_TENANT, NO_TENANT_ALONE, BlockHash, TenantId
from blockyard.core.sequence import Sequence
from blockyard.core.tenant_hash import tenant_hashes


class Told(NamedTuple):
    """What a call says of a sequence's tokens; see `Admission`. ``tenant``: whose a new sequence is."""

    block_hashes: abc.Sequence[BlockHash] = ()
    token_ids: abc.Sequence[int] = ()
    event_token_ids: abc.Sequence[int] = ()
    extras: Extras | None = None
    tenant: TenantId = NO_TENANT
    tenant_only: bool = False


class Content(NamedTuple):
    """What follows from it.

    Attributes:
        block_hashes: Those that are new, as the pool knows them.
        chain: Where hashing goes on.
        scope: The tenant that alone finds the sequence's blocks; `NO_TENANT` where all do.
        token_ids: Those that are new.
    """

    block_hashes: abc.Sequence[BlockHash]
    chain: HashChain | None
    scope: TenantId = NO_TENANT
    token_ids: abc.Sequence[int] = ()


class ContentReader:
    """Reads what is told to a pool of ``config``. Changes no sequence."""

    __slots__ = ("_config", "_hasher")

    def __init__(self, config: PoolConfig) -> None:
        self._config = config
        self._hasher: Hasher | None = None

    def read(self, sequence: Sequence | None, num_tokens: int, told: Told) -> Content:
        """Hash what a call tells of ``sequence`` (None: a new one), which has ``num_tokens``.

        Raises:
            InvalidRequest: The two ways of telling content are mixed, the tokens cannot be hashed, more
                content is told than there are tokens, as when a call is repeated, or less than events need.
        """
        content = self.hashed(sequence, num_tokens, told)
        events = self._config.events
        if events is None:
            if told.event_token_ids:
                raise InvalidRequest.of("event_token_ids", "the pool has no events: leave them out")
            return content
        if content.chain is not None:
            if told.event_token_ids:
                raise InvalidRequest.of("event_token_ids", "token_ids say it already: leave them out")
            return content._replace(token_ids=told.token_ids)
        return content._replace(token_ids=self._check_event_tokens(sequence, num_tokens, content, told))

    def hashed(self, sequence: Sequence | None, num_tokens: int, told: Told) -> Content:
        """The hashes that are new, and where hashing goes on. Raises as `read`."""
        block_hashes, token_ids, extras = told.block_hashes, told.token_ids, told.extras
        known = sequence.block_hashes if sequence is not None else []
        chain = sequence.chain if sequence is not None else None
        if (block_hashes or token_ids) and sequence is not None and not known:
            self._check_untold(sequence)
        if token_ids or extras is not None:
            if (0 if chain is None else chain.num_tokens) + len(token_ids) > num_tokens:
                raise InvalidRequest.of("token_ids", f"there are more of them than the {num_tokens} tokens")
            block_hashes, chain = self._hash(known, chain, block_hashes, token_ids, extras)
        elif block_hashes and chain is not None:
            raise InvalidRequest.of("block_hashes", "the sequence began with token_ids: go on with these")
        elif (len(known) + len(block_hashes)) * self._config.hash_block_size > num_tokens and block_hashes:
            raise InvalidRequest.of(
                "block_hashes",
                f"with the {len(known)} sent before they stand for more than {num_tokens} tokens: "
                "send those of full blocks, each once",
            )
        scope = self._scope(sequence, told)
        return Content(tenant_hashes(block_hashes, scope), chain, scope)

    def check_fork(self, sequence: Sequence, content: Content) -> None:
        """Refuse to fork ``sequence`` where some hashes of its tokens are told and others not yet.

        So parent and forks agree on what they share: what is not told by now never is.

        Raises:
            InvalidRequest: They are.
        """
        num_told = len(sequence.block_hashes) + len(content.block_hashes)
        num_needed = sequence.num_granted_tokens // self._config.hash_block_size
        if self._config.enable_prefix_caching and 0 < num_told < num_needed:
            raise InvalidRequest.of(
                "block_hashes",
                f"its {sequence.num_granted_tokens} tokens fill {num_needed} blocks, and of {num_told} the "
                "hashes are told: send the others along",
            )

    def _check_untold(self, sequence: Sequence) -> None:
        """Refuse hashes of tokens that were forked without. Raises InvalidRequest."""
        if self._config.enable_prefix_caching and sequence.num_forked_tokens >= self._config.hash_block_size:
            raise InvalidRequest.of(
                "block_hashes",
                f"sequence {sequence.sequence_id!r} was forked, and the hashes of what it shares were "
                "not told before: its blocks are found by nobody",
            )

    def _scope(self, sequence: Sequence | None, told: Told) -> TenantId:
        """The tenant that alone is to find what is told of ``sequence``."""
        tenant = told.tenant if sequence is None else sequence.tenant
        if not self._config.share_across_tenants:
            return tenant
        if told.tenant_only or (told.extras is not None and told.extras.cache_salt is not None):
            return tenant or NO_TENANT_ALONE
        return NO_TENANT if sequence is None else sequence.scope

    def _check_event_tokens(
        self, sequence: Sequence | None, num_tokens: int, content: Content, told: Told
    ) -> abc.Sequence[int]:
        """The tokens that are told for events; those of all hashes, or of none. Raises InvalidRequest."""
        token_ids = check_token_ids(told.event_token_ids, "event_token_ids")
        num_known = 0 if sequence is None or sequence.token_ids is None else len(sequence.token_ids)
        num_told = num_known + len(token_ids)
        num_hashes = len(content.block_hashes) + (0 if sequence is None else len(sequence.block_hashes))
        num_needed = num_hashes * self._config.hash_block_size
        needs_all = self._config.events is not None and self._config.events.needs_token_ids
        if token_ids and num_told > num_tokens:
            raise InvalidRequest.of(
                "event_token_ids",
                f"with those sent before there are {num_told}, more than {num_tokens} tokens",
            )
        if num_told < num_needed and (token_ids or needs_all):
            raise InvalidRequest.of(
                "event_token_ids",
                f"the hashes stand for {num_needed} tokens, and {num_told} are told: send those of all "
                "hashes, from the first on",
            )
        return token_ids

    def _hash(
        self,
        known: abc.Sequence[BlockHash],
        chain: HashChain | None,
        block_hashes: abc.Sequence[BlockHash],
        token_ids: abc.Sequence[int],
        extras: Extras | None,
    ) -> tuple[list[BlockHash], HashChain]:
        if block_hashes:
            raise InvalidRequest.of(
                "block_hashes", "give either block_hashes, with all extra keys hashed in, or token_ids"
            )
        if chain is None:
            if known:
                raise InvalidRequest.of("token_ids", "the sequence began with block_hashes: go on with these")
            if self._hasher is None:
                self._hasher = self._config.hasher()
            chain = self._hasher.start(extras)
        elif extras is not None and extras != chain.extras:
            raise InvalidRequest.of(
                "token_ids", "extra keys are fixed by the call that sent the first tokens"
            )
        chain, hashes = chain.append(token_ids)
        return hashes, chain
