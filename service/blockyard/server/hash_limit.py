"""How many block hashes and tokens one call may have, in all its lists together, and how many prefixes."""

from collections.abc import Iterable, Mapping
from typing import Any

from blockyard.core.errors import LimitExceeded
from blockyard.server.prefix_bodies import PrefixesBody
from blockyard.server.schemas import HashBody, PoolBody
from blockyard.server.settings import MAX_PREFIXES, MAX_TOKENS


class HashLimit:
    """Holds calls to ``max_hashes_per_call`` and ``max_prefixes_per_call``."""

    __slots__ = ("_max_hashes", "_max_prefixes")

    def __init__(self, max_hashes_per_call: int, max_prefixes_per_call: int) -> None:
        self._max_hashes = max_hashes_per_call
        self._max_prefixes = max_prefixes_per_call

    def check(self, body: PoolBody | HashBody) -> None:
        """Refuse ``body`` if it has too many.

        Raises:
            LimitExceeded: It has.
        """
        if body.num_hashes > self._max_hashes:
            raise self._exceeded()

    def check_prefixes(self, body: PoolBody) -> None:
        """Refuse ``body`` if it asks about too many prefixes.

        Raises:
            LimitExceeded: It does.
        """
        if isinstance(body, PrefixesBody) and len(body.prefixes) > self._max_prefixes:
            raise self._too_many_prefixes()

    def allows_any_of(self, num_bytes: int) -> bool:
        """Whether no body of ``num_bytes`` has too many: each hash and token takes a byte at least."""
        return num_bytes <= self._max_hashes

    def check_faults(self, found: Iterable[Mapping[str, Any]]) -> None:
        """Refuse a body that pydantic has ``found`` fault with, if it is for a list that is too long.

        Raises:
            LimitExceeded: It is.
        """
        longest = {fault["ctx"]["max_length"] for fault in found if fault["type"] == "too_long"}
        if MAX_TOKENS in longest:
            raise self._exceeded()
        if MAX_PREFIXES in longest:
            raise self._too_many_prefixes()

    def _too_many_prefixes(self) -> LimitExceeded:
        most = self._max_prefixes
        return LimitExceeded.of(
            "max_prefixes_per_call", most, f"one call asks about {most} prefixes at most: split it"
        )

    def _exceeded(self) -> LimitExceeded:
        most = self._max_hashes
        return LimitExceeded.of(
            "max_hashes_per_call",
            most,
            f"block hashes, token ids and embeddings of one call are over {most} in all: split it",
        )
