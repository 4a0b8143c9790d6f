"""Vectors of block ids and counts in snapshots: four bytes an element, in this machine's byte order."""

from array import array

from librt.vecs import vec
from mypy_extensions import i64


def packed(values: "vec[i64]") -> bytes:
    """``values``, each from -2^31 to 2^31 - 1."""
    return array("i", values).tobytes()


def unpacked(data: bytes) -> "vec[i64]":
    """The vector that `packed` made ``data`` of."""
    return vec[i64](array("i", data))
