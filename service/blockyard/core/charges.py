"""Which tenant holds which block, and who may have how many more.

A block counts for each tenant that holds it, once, however many of its tables name it. Mostly that is one:
only in a pool that shares prefixes across tenants there may be several.

    usable blocks  |--- held ---|------------ free ------------|
                                |- due to others -|- available -|

What is due to a tenant, its guarantee less what it holds, is free for it alone. So that it stays so when
others give back blocks that were held in common, these count for each of their holders against what is free
as soon as any tenant has a guarantee.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from librt.vecs import vec
from mypy_extensions import i64

from blockyard.core.errors import InsufficientBlocks, QuotaExceeded
from blockyard.core.ids import NULL_BLOCK, BlockId
from blockyard.core.quota import Quota
from blockyard.core.tenants import Tenant

NOBODY = 0
SEVERAL = -1

Held: TypeAlias = dict[BlockId, dict[int, int]]
"""For each block that is held, by tenant's number, how often it is."""


class Charges:
    """Of a store of ``num_blocks`` blocks.

    Args:
        num_blocks: Blocks, the null block included.
        tenants: Those there are so far, at least one; one that comes later has no quota and holds nothing.
        held: For each block that is held, by tenant's number, how often it is.

    Attributes:
        acting: Whose command is being done: what is held or given back is by it.
    """

    __slots__ = ("_num_charged", "_num_due", "_num_guaranteed", "_num_usable", "_owners", "_shares", "acting")

    def __init__(self, num_blocks: int, tenants: Iterable[Tenant], held: Held) -> None:
        self._num_usable = num_blocks - 1
        self._owners = vec[i64]([NOBODY] * num_blocks)
        """Per block, the number of the tenant that holds it, `NOBODY` or `SEVERAL`."""
        self._shares: dict[BlockId, dict[int, int]] = {}
        """Of blocks that several hold: by tenant's number, how often."""
        for block, by in held.items():
            self._owners[block] = _owner(by)
            if len(by) > 1:
                self._shares[block] = dict(by)
        counts = _count_held(held)
        self._num_charged = self._num_due = self._num_guaranteed = 0
        for tenant in tenants:
            tenant.num_held_blocks = counts[tenant.number]
            self._num_charged += tenant.num_held_blocks
            self._num_guaranteed += tenant.quota.guaranteed_blocks
            self._num_due += tenant.num_due_blocks
            self.acting = tenant

    def set_quota(self, tenant: Tenant, quota: Quota) -> None:
        """Give ``tenant`` another quota. What it holds already stays its own."""
        self._num_guaranteed += quota.guaranteed_blocks - tenant.quota.guaranteed_blocks
        before = tenant.num_due_blocks
        tenant.quota = quota
        self._num_due += tenant.num_due_blocks - before

    def take(self, blocks: list[BlockId]) -> None:
        """``blocks``, which nobody held, are given to whoever acts."""
        owners, number = self._owners, self.acting.number
        block: i64
        for block in blocks:
            owners[block] = number
        self._charge(len(blocks))

    def touch(self, blocks: list[BlockId], counts: "vec[i64]") -> None:
        """``blocks`` are about to be held once more by whoever acts; ``counts``: how often they are now."""
        owners, number = self._owners, self.acting.number
        num_gained = 0
        block: i64
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            owner = int(owners[block])
            if owner == number:
                continue
            if owner == NOBODY:
                owners[block] = number
                num_gained += 1
                continue
            if owner != SEVERAL:
                owners[block] = SEVERAL
                self._shares[int(block)] = {owner: int(counts[block])}
            shares = self._shares[int(block)]
            held = shares.get(number, 0)
            num_gained += not held
            shares[number] = held + 1
        self._charge(num_gained)

    def release(self, blocks: list[BlockId], counts: "vec[i64]") -> None:
        """``blocks`` are held once less, by whoever acts; ``counts`` is how often they still are.

        A block may be named twice: a prompt that repeats a hash has it twice in its table.
        """
        owners, number = self._owners, self.acting.number
        num_lost = 0
        block: i64
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            owner = int(owners[block])
            if owner == SEVERAL:
                num_lost += self._leave(int(block), number)
            elif owner == number:
                if counts[block] == 0:
                    owners[block] = NOBODY
                    num_lost += 1
            else:
                is_again = owner == NOBODY and counts[block] == 0
                assert is_again, f"block {block} is not the tenant's that gives it back"
        self._charge(-num_lost)

    def num_foreign(self, blocks: list[BlockId]) -> int:
        """Those of ``blocks`` that others hold, and whoever acts does not."""
        owners, number = self._owners, self.acting.number
        num_foreign = 0
        block: i64
        for block in blocks:
            owner = int(owners[block])
            if owner == SEVERAL:
                num_foreign += number not in self._shares[int(block)]
            elif owner not in (NOBODY, number):
                num_foreign += 1
        return num_foreign

    def require(
        self,
        num_blocks: int,
        num_free: int,
        *,
        num_foreign: int = 0,
        num_kept: int = 0,
        num_watermark: int = 0,
    ) -> None:
        """Refuse unless whoever acts may hold ``num_blocks`` more that are free now; none is never refused.

        Args:
            num_blocks: Of the free ones.
            num_free: How many these are.
            num_foreign: Blocks that it comes to hold beside these, and that others hold already.
            num_kept: Free blocks that it has to leave beyond what is due to others, unless all that it asks
                for is guaranteed.
            num_watermark: Likewise; the error counts them among the required ones.

        Raises:
            QuotaExceeded: It would hold more than its maximum.
            InsufficientBlocks: Too few are free for it.
        """
        tenant = self.acting
        num_gained = num_blocks + num_foreign
        at_most = tenant.quota.max_blocks
        if at_most is not None and num_gained and tenant.num_held_blocks + num_gained > at_most:
            raise QuotaExceeded.of(num_gained, tenant.num_held_blocks, at_most)
        if self._num_guaranteed:
            num_blocks = num_gained
        if num_blocks > self.num_available(num_free, num_kept + num_watermark):
            num_available = self.num_available(num_free, num_kept)
            raise InsufficientBlocks.of(num_blocks + num_watermark, num_available, self.num_usable)

    @property
    def num_usable(self) -> int:
        """Blocks that whoever acts may ever come to hold: all that are not guaranteed to others."""
        return self._num_usable - self._num_guaranteed + self.acting.quota.guaranteed_blocks

    def num_available(self, num_free: int, num_kept: int) -> int:
        """Blocks that whoever acts may come to hold, of ``num_free`` free ones.

        What is guaranteed to it is so in any case; beyond that it leaves what is due to others and
        ``num_kept``.
        """
        if self._num_guaranteed:
            num_free = min(num_free, self._num_usable - self._num_charged)
        num_due = self.acting.num_due_blocks
        num_due_to_others = self._num_due - num_due
        return max(min(num_due, num_free), num_free - num_due_to_others - num_kept, 0)

    def problems(self, held: Held, tenants: Iterable[Tenant]) -> list[str]:
        """What contradicts ``held``, as it was found to be."""
        found = []
        wrong = [
            block
            for block, owner in enumerate(self._owners)
            if owner != (_owner(held[block]) if block in held else NOBODY)
        ]
        if wrong:
            found.append(f"{len(wrong)} blocks are charged to others than hold them: {wrong[:8]}")
        if self._shares != {block: by for block, by in held.items() if len(by) > 1}:
            found.append("blocks that several tenants hold are not charged as often as they are held")
        counts = _count_held(held)
        num_due = 0
        for tenant in tenants:
            num_held = counts[tenant.number]
            num_due += max(tenant.quota.guaranteed_blocks - num_held, 0)
            if num_held != tenant.num_held_blocks:
                found.append(
                    f"tenant {tenant.name!r} holds {num_held} blocks and is charged {tenant.num_held_blocks}"
                )
        if (counts.total(), num_due) != (self._num_charged, self._num_due):
            found.append(
                f"{counts.total()} blocks are held and {num_due} due, "
                f"{self._num_charged} and {self._num_due} are counted"
            )
        return found

    def _charge(self, num_blocks: int) -> None:
        """Whoever acts holds ``num_blocks`` more."""
        tenant = self.acting
        before = tenant.num_due_blocks
        tenant.num_held_blocks += num_blocks
        self._num_charged += num_blocks
        self._num_due += tenant.num_due_blocks - before

    def _leave(self, block: BlockId, number: int) -> int:
        """One of several tenants holds ``block`` once less; 1 if it was the last time, else 0."""
        shares = self._shares[block]
        shares[number] -= 1
        if shares[number]:
            return 0
        del shares[number]
        if len(shares) == 1:
            del self._shares[block]
            self._owners[block] = next(iter(shares))
        return 1


def _owner(by: dict[int, int]) -> int:
    """Who holds a block that these hold."""
    return SEVERAL if len(by) > 1 else next(iter(by))


def _count_held(held: Held) -> Counter[int]:
    """By tenant's number, how many blocks it holds."""
    return Counter(number for by in held.values() for number in by)
