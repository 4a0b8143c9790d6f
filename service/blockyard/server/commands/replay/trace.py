"""Reading a public request trace: one JSON object a line.

    {"timestamp": 0, "input_length": 1300, "output_length": 500, "hash_ids": [0, 1, 2]}

``hash_ids`` has an id for each block of the input, the last of which may be partial. An id stands for its
block and for all before it, so a pool with larger blocks sees every so many-th of the ids, and loses nothing:

    ids of 512 tokens    a  b  c  d  e      4 full blocks, 1 partial
    blocks of 1024       ----b ----d        2 full blocks
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockyard.server.commands.replay.request import HASH_BYTES, Request, block_hash

_MAX_ID = 2 ** (8 * HASH_BYTES) - 1


class TraceError(Exception):
    """A trace that cannot be replayed; the text names the file and the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """A trace and how to look at it.

    Attributes:
        path: The file.
        id_block_size: Tokens that one of its hash ids stands for.
        block_size: Tokens of the pool's blocks: a multiple of ``id_block_size``.
    """

    path: Path
    id_block_size: int
    block_size: int

    def __post_init__(self) -> None:
        """Refuse blocks that the ids say nothing about.

        Raises:
            TraceError: ``block_size`` is no multiple.
        """
        if self.block_size % self.id_block_size:
            raise TraceError(
                f"{self.path}: its hash ids stand for {self.id_block_size} tokens each and say nothing about "
                f"blocks of {self.block_size}: choose a multiple of {self.id_block_size} as --block-size"
            )

    def read(self, limit: int | None) -> Iterator[Request]:
        """The requests in the order of the file, at most ``limit``. Blank lines are passed over.

        Raises:
            TraceError: The file cannot be read, or a line is not as documented.
        """
        hashes: dict[int, bytes] = {}  # a block's hash once, however many requests share it
        num_read = 0
        try:
            with self.path.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if num_read == limit:
                        return
                    if line.isspace():
                        continue
                    num_read += 1
                    yield self._request(number, line, hashes)
        except OSError as error:
            raise TraceError(f"{self.path}: {error.strerror}") from error

    def _request(self, number: int, line: bytes, hashes: dict[int, bytes]) -> Request:
        try:
            num_tokens, ids = _fields(json.loads(line))
            ids = self._full_block_ids(num_tokens, ids)
        except (ValueError, RecursionError) as error:  # json's are of both kinds
            raise TraceError(f"{self.path}, line {number}: {error}") from error
        return Request(num_tokens, [_hash_once(block_id, hashes) for block_id in ids])

    def _full_block_ids(self, num_tokens: int, ids: list[int]) -> list[int]:
        num_full = num_tokens // self.id_block_size
        if not num_full <= len(ids) <= num_full + 1:
            raise ValueError(
                f"{len(ids)} hash_ids for an input_length of {num_tokens}: "
                f"{self.id_block_size} tokens an id make {num_full} full blocks"
            )
        ratio = self.block_size // self.id_block_size
        return ids[ratio - 1 : num_full : ratio]


def _hash_once(block_id: int, hashes: dict[int, bytes]) -> bytes:
    known = hashes.get(block_id)
    if known is None:
        known = hashes[block_id] = block_hash(block_id)
    return known


def _fields(document: Any) -> tuple[int, list[int]]:
    """``input_length`` and ``hash_ids``; the other fields do not matter to an allocator.

    Raises:
        ValueError: One is missing or of another form.
    """
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - every fault of a line is a ValueError
    for name in ("input_length", "hash_ids"):
        if name not in document:
            raise ValueError(f"{name} is missing")
    num_tokens, ids = document["input_length"], document["hash_ids"]
    if type(num_tokens) is not int or num_tokens < 1:
        raise ValueError(f"input_length is {num_tokens!r}, not a number from 1 on")
    if not isinstance(ids, list):
        raise ValueError("hash_ids is not a list")  # noqa: TRY004 - likewise
    for block_id in ids:
        if type(block_id) is not int or not 0 <= block_id <= _MAX_ID:
            raise ValueError(f"{block_id!r} is no hash id, a number from 0 on")
    return num_tokens, ids
