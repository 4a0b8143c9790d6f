"""The calls about prefixes that are to be kept, and about which of many are cached."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from blockyard.client.bodies import content_body
from blockyard.client.call import Call, encode_given, read_nothing, reader
from blockyard.client.paths import pool_path
from blockyard.client.reports import PinList, PinReport
from blockyard.client.tenant_protocol import TenantCalls
from blockyard.client.wire import Form, Response, encode
from blockyard.core import replies
from blockyard.core.errors import InvalidRequest, PinNotFound
from blockyard.core.extra_keys import Extras
from blockyard.core.ids import BlockHash

_read_pinned = reader(replies.Pinned)
_read_pin_list = reader(PinList)
_read_prefixes = reader(replies.PrefixesFound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A prompt's beginning; its full blocks count.

    Attributes:
        block_hashes: Of its full blocks, at the pool's hash block size.
        token_ids: Or its tokens, for the server to hash.
        extras: With ``token_ids``: what the KV depends on beside them.
        tenant_only: Find what no other tenant may: where a cache salt is hashed into ``block_hashes``. One in
            ``extras`` says it by itself.
        num_tokens: Only its first ones count, at least 1; None for all that are told.
    """

    block_hashes: Sequence[BlockHash] = ()
    token_ids: Sequence[int] = ()
    extras: Extras | None = None
    tenant_only: bool = False
    num_tokens: int | None = None

    def body(self) -> dict[str, Any]:
        """It as it travels."""
        content = content_body(self.block_hashes, self.token_ids, self.extras, tenant_only=self.tenant_only)
        return content if self.num_tokens is None else {"num_tokens": self.num_tokens, **content}


@dataclass(frozen=True, slots=True)
class PinCalls(TenantCalls):
    """Calls about the pins of one pool, and about its prefixes. Attributes and errors as `TenantCalls`."""

    def pin(
        self,
        ttl_ms: int,
        *,
        hard: bool = False,
        block_hashes: Sequence[BlockHash] = (),
        token_ids: Sequence[int] = (),
        extras: Extras | None = None,
        tenant_only: bool = False,
    ) -> Call[replies.Pinned]:
        """Keep a prefix: a system prompt, or a document. A pin belongs to the caller's tenant, to no lease.

        Args:
            ttl_ms: How long it stands unless it is renewed, above 0.
            hard: Hold its blocks, within the tenant's quota; all of them have to be cached now. Else blocks
                with these hashes, cached now or later, are evicted only when no other free block is left.
            block_hashes: Of its full blocks, at the pool's hash block size.
            token_ids: Or its tokens, for the server to hash.
            extras: With ``token_ids``: what the KV depends on beside them.
            tenant_only: As `Prefix.tenant_only`.

        Raises:
            PrefixNotCached: A hard pin's prefix is not cached as a whole.
            InsufficientBlocks: Too few blocks are free for a hard pin to hold those that nobody holds.
            QuotaExceeded: The tenant would hold too many by a hard pin.
            LimitExceeded: The tenant has too many pins.
            InvalidRequest: No block is full: there is nothing to pin.
        """
        content = content_body(block_hashes, token_ids, extras, tenant_only=tenant_only)
        body = {"ttl_ms": ttl_ms, **({"hard": True} if hard else {}), **content}
        return Call(
            method="POST",
            path=pool_path(self.name, "pins"),
            read=_read_pinned,
            body=encode(body, Form.JSON),
            is_keyed=True,
        )

    def pins(self) -> Call[Sequence[PinReport]]:
        """The caller's pins, in the order of their making; those of all tenants for whoever may see all."""
        return Call(method="GET", path=pool_path(self.name, "pins"), read=_read_pins)

    def renew_pin(self, pin_id: str, ttl_ms: int | None = None) -> Call[replies.Pinned]:
        """Start a pin's time anew.

        Args:
            pin_id: Which.
            ttl_ms: How long it stands from now on; None for as long as before.

        Raises:
            PinNotFound: It is unknown, has ended, or is another tenant's.
        """
        path = pool_path(self.name, "pins", pin_id, "renew")
        return Call(
            method="POST",
            path=path,
            read=_read_pinned,
            body=encode_given(Form.JSON, ttl_ms=ttl_ms),
            is_keyed=True,
        )

    def unpin(self, pin_id: str) -> Call[None]:
        """End a pin. Raises PinNotFound as `renew_pin`."""
        path = pool_path(self.name, "pins", pin_id)
        return Call(method="DELETE", path=path, read=read_nothing, if_gone=(PinNotFound, None))

    def cached_prefixes(self, prefixes: Sequence[Prefix]) -> Call[replies.PrefixesFound]:
        """How much of each prefix is cached: all of its full blocks count. Changes nothing.

        Args:
            prefixes: As many as the server's ``max_prefixes_per_call`` at most.

        Raises:
            InvalidRequest: One of them is not valid: it is named by its position.
            LimitExceeded: There are too many.
        """
        bodies = []
        for position, prefix in enumerate(prefixes):
            try:
                bodies.append(prefix.body())
            except InvalidRequest as error:
                raise error.inside(f"prefixes.{position}") from None
        return Call(
            method="POST",
            path=pool_path(self.name, "prefixes"),
            read=_read_prefixes,
            body=encode({"prefixes": bodies}, Form.JSON),
        )


def _read_pins(response: Response) -> Sequence[PinReport]:
    return _read_pin_list(response).pins
