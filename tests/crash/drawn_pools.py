"""The pools that the clients share. Nothing is in two sequences in one of them, prefixes are in the other."""

from dataclasses import dataclass
from typing import Any

BLOCK_SIZE = 16
TENANTS = ("red", "blue")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnPool:
    """``is_windowed``: for each group, whether blocks are dropped behind a window.

    ``num_prefixes``: beginnings that sequences share; 0 where every block has content of its own.
    """

    name: str
    num_blocks: int
    is_windowed: tuple[bool, ...]
    num_prefixes: int

    @property
    def quotas(self) -> dict[str, dict[str, Any]]:
        """Of `TENANTS`, where there are tenants: the first has a guarantee, the second a maximum."""
        quarter = self.num_blocks // 4
        return {
            TENANTS[0]: {"guaranteed_blocks": quarter, "max_blocks": None, "weight": 3},
            TENANTS[1]: {"guaranteed_blocks": 0, "max_blocks": 2 * quarter, "weight": 1},
        }

    @property
    def body(self) -> dict[str, Any]:
        """What it is created from."""
        full = {"kind": "full_attention", "block_size": BLOCK_SIZE}
        window = {"kind": "sliding_window", "block_size": BLOCK_SIZE, "sliding_window": 3 * BLOCK_SIZE}
        groups = [window if is_windowed else full for is_windowed in self.is_windowed]
        return {"num_blocks": self.num_blocks, "groups": groups}


PLAIN = DrawnPool(name="plain", num_blocks=1_700, is_windowed=(False,), num_prefixes=0)
WINDOWED = DrawnPool(name="windowed", num_blocks=160, is_windowed=(False, True), num_prefixes=6)
POOLS = (PLAIN, WINDOWED)
