"""A request to replay: how long it is, and what stands for its content."""

from dataclasses import dataclass

HASH_BYTES = 16
"""Length of a block hash of a replay. Traces name blocks by number, and any fixed width will do."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        num_tokens: Of its input, at least 1.
        block_hashes: One for each full block; equal hashes are equal blocks after equal prefixes.
    """

    num_tokens: int
    block_hashes: list[bytes]


def block_hash(number: int) -> bytes:
    """The hash that stands for block ``number`` of a trace, from 0 to ``2**128 - 1``."""
    return number.to_bytes(HASH_BYTES, "big")
