"""Hashes that are one tenant's: what others compute for the same tokens is none of them."""

from collections.abc import Sequence
from hashlib import blake2b

from blockyard.core.ids import NO_TENANT, BlockHash, TenantId

_PERSON = b"blockyard.tenant"

MIN_BYTES = 16
"""Of such a hash, however short that of the caller was: all of fewer bytes could be tried."""


def tenant_hashes(block_hashes: Sequence[BlockHash], tenant: TenantId) -> Sequence[BlockHash]:
    """``block_hashes`` as ``tenant`` alone has them; as they are for `NO_TENANT`.

    Each is BLAKE2b of the hash, as long as it is (1 to 64 bytes) but for `MIN_BYTES`, under the tenant's name
    as the key (1 to 64 bytes): whoever sends another tenant's hashes does not find its blocks.

    Servers do this; schedulers send the hashes as they are. Who follows a pool's events sees them as they are
    here, and has to look for them so. A router that asks who has a prompt of team-a's cached:

        chain, hashes = pool.hasher().start().append(prompt)
        names = [external_int64(block_hash) for block_hash in tenant_hashes(hashes, TenantId("team-a"))]
        num_cached_blocks = len(list(takewhile(mirror.has, names)))

    In a pool that shares across tenants only prompts with a cache salt are named so.
    """
    if tenant == NO_TENANT:
        return block_hashes
    key = tenant.encode()
    return [
        blake2b(each, digest_size=max(len(each), MIN_BYTES), key=key, person=_PERSON).digest()
        for each in block_hashes
    ]
