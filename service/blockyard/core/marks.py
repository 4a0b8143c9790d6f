"""Short stand-ins for block hashes, for tables of integers."""

import sys
from array import array

from blockyard.core.ids import BlockHash

_WIDTH = 8


def marks_of(block_hashes: list[BlockHash]) -> list[int]:
    """The last eight bytes of each, or all where there are fewer, as a signed number."""
    width = len(block_hashes[0]) if block_hashes else _WIDTH
    if width % _WIDTH or not width or any(len(each) != width for each in block_hashes):
        return [int.from_bytes(each[-_WIDTH:], "big", signed=True) for each in block_hashes]
    words = array("q", b"".join(block_hashes))[width // _WIDTH - 1 :: width // _WIDTH]
    if sys.byteorder == "little":
        words.byteswap()
    return words.tolist()
