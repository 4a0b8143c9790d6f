"""Which of many prefixes are cached: looked for in slices."""

from collections.abc import Generator

from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import TenantId
from blockyard.core.pool import Pool
from blockyard.core.replies import PrefixesFound
from blockyard.server.prefix_bodies import PrefixesBody

SLICE_HASHES = 4_096
"""Block hashes and tokens of the prefixes that are looked for between two ``yield``."""

PREFIX_HASHES = 16
"""What a prefix costs by itself, in hashes."""


def look_for_prefixes(
    pool: Pool, body: PrefixesBody, tenant: TenantId
) -> Generator[None, None, PrefixesFound]:
    """How much of each prefix ``tenant`` finds in ``pool``, which may change between two slices.

    A new epoch that begins meanwhile makes the answer one of the earlier epoch, and it says so.

    Returns:
        At the end of the generator: the answer.

    Raises:
        StaleEpoch: The body has another epoch than the pool.
        InvalidRequest: A prefix is not valid; its number is told.
    """
    pool.check_epoch(body.epoch)
    epoch, work = pool.epoch, 0
    found = []
    for number, prefix in enumerate(body.prefixes):
        try:
            found.append(pool.num_cached_tokens(prefix.told(tenant), prefix.num_tokens))
        except InvalidRequest as error:
            raise error.inside(f"prefixes.{number}") from None
        work += prefix.num_hashes + PREFIX_HASHES
        if work >= SLICE_HASHES:
            work = 0
            yield
    return PrefixesFound(epoch=epoch, num_cached_tokens=found)
