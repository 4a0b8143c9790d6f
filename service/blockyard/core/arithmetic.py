"""Integer rounding, named by its direction."""


def div_ceil(value: int, divisor: int) -> int:
    """``value / divisor`` rounded up; ``divisor`` is positive."""
    return -(-value // divisor)


def align_down(value: int, alignment: int) -> int:
    """The greatest multiple of ``alignment`` that is at most ``value``."""
    return value // alignment * alignment


def align_up(value: int, alignment: int) -> int:
    """The least multiple of ``alignment`` that is at least ``value``."""
    return div_ceil(value, alignment) * alignment
