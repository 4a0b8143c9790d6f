"""Pins without shortcuts."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blockyard.core.arithmetic import align_down
from blockyard.core.commands import CreatePin, DeletePin, RenewPin
from blockyard.core.errors import InvalidRequest, PinNotFound, PrefixNotCached
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId, LeaseId, PinId, TenantId
from blockyard.core.replies import Pinned, Unpinned
from core.naive_prefixes import NaivePrefixes
from core.naive_sequence import NaiveContent

if TYPE_CHECKING:
    from core.naive_pool import NaivePool


@dataclass(kw_only=True)
class NaivePin:
    """``block_hashes``: of a soft one. ``num_held``, ``block_ids``: of a hard one, tokens and blocks."""

    pin_id: PinId
    tenant: TenantId
    hard: bool
    ttl_ms: int
    expires_at_ms: int
    num_tokens: int
    block_hashes: list[BlockHash]
    num_held: int
    block_ids: list[list[BlockId]]

    def held_in(self, pool: "NaivePool", store: int) -> list[BlockId]:
        """Of the device's (0) or the host's blocks (1), those that it holds."""
        groups = zip(pool.config.groups, self.block_ids, strict=False)
        return [block for group, blocks in groups if group.is_host_resident == store for block in blocks]


class NaivePins:
    """None at first. The pool that they are of is told anew each time, as it may have gone back."""

    def __init__(self) -> None:
        self.live: dict[PinId, NaivePin] = {}

    def create(self, pool: "NaivePool", command: CreatePin) -> Pinned:
        """A soft one goes by hashes; a hard one needs the whole prefix, and holds what a hit of it needs."""
        config = pool.config
        scope = pool.sequences.scope_of(command.tenant)
        hashes = (
            NaiveContent(scope=scope)
            .joined_by(command.block_hashes, command.token_ids, config.hasher(), 2**30)
            .hashes
        )
        if command.ttl_ms < 1 or command.pin_id in self.live or not hashes:
            raise InvalidRequest.of("pin", "is taken, without time or without a full block")
        pin = NaivePin(
            pin_id=command.pin_id,
            tenant=command.tenant,
            hard=command.hard,
            ttl_ms=command.ttl_ms,
            expires_at_ms=pool.now_ms + command.ttl_ms,
            num_tokens=len(hashes) * config.hash_block_size,
            block_hashes=[] if command.hard else hashes,
            num_held=0,
            block_ids=[],
        )
        if command.hard:
            pin.num_held, pin.block_ids = self._whole(pool, hashes)
            for number, store in enumerate(pool.stores):
                blocks = pin.held_in(pool, number)
                num_untouched = len([block for block in blocks if block in store.free])
                if num_untouched:
                    store.refuse_above_free(num_untouched + config.watermark_blocks * (number == 0))
            for number, store in enumerate(pool.stores):
                store.touch(pin.held_in(pool, number))
        for store in pool.stores:
            store.pin(pin.block_hashes, len(config.groups))
        self.live[pin.pin_id] = pin
        return self._told(pool, pin)

    @staticmethod
    def _whole(pool: "NaivePool", hashes: list[BlockHash]) -> tuple[int, list[list[BlockId]]]:
        """Up to where blocks of all groups end; of drafts, which look further, what stands there as well."""
        config = pool.config
        prefixes = NaivePrefixes(config, pool.stores)
        prefixes.alignment = config.scheduler_block_size
        end = align_down(len(hashes) * config.hash_block_size, config.scheduler_block_size)
        whole = end
        if any(group.is_draft for group in config.groups):
            whole -= config.scheduler_block_size
        if whole <= 0:
            raise InvalidRequest.of("block_hashes", "no hit is as short")
        withheld = pool.sequences.withheld_from(LeaseId("nobody's"))
        known = hashes[: end // config.hash_block_size]
        length, tables = prefixes.find(end + 1, known, withheld)
        if length < whole:
            raise PrefixNotCached.of(whole, length)
        for number, group in enumerate(config.groups):
            if group.is_draft:
                for boundary in range(length + group.block_size, end + 1, group.block_size):
                    found = prefixes.store_of(number).find(
                        known[boundary // config.hash_block_size - 1], number
                    )
                    tables[number].append(found or NULL_BLOCK)
        return length, [[block for block in table if block != NULL_BLOCK] for table in tables]

    def renew(self, pool: "NaivePool", command: RenewPin) -> Pinned:
        """Its time begins anew, and may be another from now on."""
        if command.ttl_ms is not None and command.ttl_ms < 1:
            raise InvalidRequest.of("ttl_ms", "is no time")
        pin = self._find(pool, command)
        pin.ttl_ms = command.ttl_ms or pin.ttl_ms
        pin.expires_at_ms = pool.now_ms + pin.ttl_ms
        return self._told(pool, pin)

    def delete(self, pool: "NaivePool", command: DeletePin) -> Unpinned:
        return Unpinned(epoch=pool.epoch, num_freed_blocks=self._end(pool, self._find(pool, command)))

    def expire(self, pool: "NaivePool") -> tuple[list[PinId], int]:
        """The ids of those that have run out, and how many blocks became free."""
        expired = [pin for pin in self.live.values() if pin.expires_at_ms <= pool.now_ms]
        expired.sort(key=lambda pin: (pin.expires_at_ms, pin.pin_id))
        return [pin.pin_id for pin in expired], sum(self._end(pool, pin) for pin in expired)

    def resume(self, since_ms: int, now_ms: int) -> None:
        for pin in self.live.values():
            if pin.expires_at_ms > since_ms:
                pin.expires_at_ms = max(pin.expires_at_ms, now_ms + pin.ttl_ms)

    def end_hard(self, pool: "NaivePool") -> None:
        for pin in [pin for pin in self.live.values() if pin.hard]:
            self._end(pool, pin)

    def _find(self, pool: "NaivePool", command: RenewPin | DeletePin) -> NaivePin:
        pin = self.live.get(command.pin_id)
        if pin is None or pin.tenant != command.tenant or pin.expires_at_ms <= pool.now_ms:
            raise PinNotFound.of(command.pin_id)
        return pin

    def _end(self, pool: "NaivePool", pin: NaivePin) -> int:
        """Group by group, tail first."""
        del self.live[pin.pin_id]
        for store in pool.stores:
            store.unpin(pin.block_hashes, len(pool.config.groups))
        return sum(
            pool.stores[group.is_host_resident].release(blocks[::-1])
            for group, blocks in zip(pool.config.groups, pin.block_ids, strict=False)
        )

    def _told(self, pool: "NaivePool", pin: NaivePin) -> Pinned:
        num_cached, num_blocks = pin.num_held, sum(map(len, pin.block_ids))
        if not pin.hard:
            num_cached, _ = pool.sequences.prefixes.find(pin.num_tokens + 1, pin.block_hashes)
            num_blocks = sum(
                len({key.block for key in store.keys if key.block_hash in pin.block_hashes})
                for store in pool.stores
            )
        return Pinned(
            epoch=pool.epoch,
            pin_id=pin.pin_id,
            hard=pin.hard,
            ttl_ms=pin.ttl_ms,
            expires_at_ms=pin.expires_at_ms,
            num_tokens=pin.num_tokens,
            num_cached_tokens=num_cached,
            num_blocks=num_blocks,
        )
