"""Memory sizes as people write them."""

import re
from decimal import Decimal

from pydantic import ByteSize

UNITS = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
"""Bytes. The case counts, as a Gb is an eighth of a GB."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)")


def parse_size(text: str) -> int:
    """The bytes that ``text`` says, such as ``80GiB``, ``1.5 TB`` or ``1048576``.

    Raises:
        ValueError: It says none; with what to write instead.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size: write 80GiB, 80GB, 512MiB or a number of bytes")
    number, unit = found.groups()
    if unit not in UNITS:
        raise ValueError(f"{text!r}: {_advice(unit)}")
    num_bytes = Decimal(number) * UNITS[unit]
    if num_bytes != int(num_bytes):
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(num_bytes)


def show_size(num_bytes: int) -> str:
    """``num_bytes`` to a tenth of the largest fitting binary unit: ``63.5 GiB``."""
    return ByteSize(num_bytes).human_readable(separator=" ")


def _advice(unit: str) -> str:
    prefix = unit[0].upper()
    if prefix not in "KMGT" or unit[1:].lower() not in ("", "b", "i", "ib"):
        return f"{unit!r} is no unit: write B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"
    binary, decimal = (prefix + "iB", ("k" if prefix == "K" else prefix) + "B")
    bits = f"{unit!r} would be bits: " if unit[0].isupper() and unit[-1] == "b" else ""
    power = "KMGT".index(prefix) + 1
    return f"{bits}write {binary} for 1024^{power} bytes, or {decimal} for 1000^{power}"
