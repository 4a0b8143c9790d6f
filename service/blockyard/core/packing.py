"""Columns of integers as bytes, four an element.

Vectors of block ids and counts stand so in snapshots, in this machine's byte order. Columns of handles and
counts may travel so, little-endian.
"""

import sys
from array import array
from collections.abc import Sequence

from librt.vecs import vec
from mypy_extensions import i64


def pack_vector(values: "vec[i64]") -> bytes:
    """``values``, each from -2^31 to 2^31 - 1."""
    return array("i", values).tobytes()


def unpack_vector(data: bytes) -> "vec[i64]":
    """The vector that `pack_vector` made ``data`` of."""
    return vec[i64](array("i", data))


def pack_column(values: Sequence[int]) -> bytes | None:
    """``values`` for `unpack_column`; None where one of them is no integer from 0 to 2^32 - 1."""
    try:
        column = array("I", values)
    except (OverflowError, TypeError):
        return None
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def unpack_column(data: bytes) -> list[int]:
    """The values of a column that `pack_column` made, of a length that four divides."""
    column = array("I", data)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tolist()


def pack_long_vector(values: "vec[i64]") -> bytes:
    """``values`` whatever they are, eight bytes each."""
    return memoryview(values).tobytes()


def unpack_long_vector(data: bytes) -> "vec[i64]":
    """The vector that `pack_long_vector` made ``data`` of."""
    return vec[i64](array("q", data))
