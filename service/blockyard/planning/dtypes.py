"""Sizes of the element types that a KV cache is stored in, known without torch."""

from typing import Final

DTYPE_BYTES: Final = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Bytes an element, by torch's name for the type. Packed types are stored as ``uint8``."""
