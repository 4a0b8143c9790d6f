"""The pins of a pool: prefixes that are kept longer than those that nobody cares for.

A soft pin goes by hashes: blocks that carry them are evicted last, whether they were cached before or after.
It takes nothing from anybody as long as other blocks are free. A hard pin holds blocks, within its tenant's
quota: they are not evicted at all. It ends when a worker's memory is lost, as what it holds is then gone.
"""

from collections.abc import Generator, Sequence
from typing import Any

from blockyard.core.block_store import BlockStore
from blockyard.core.commands import CreatePin, DeletePin, RenewPin
from blockyard.core.config import PoolConfig
from blockyard.core.content import Told
from blockyard.core.errors import InvalidRequest, PinNotFound, PrefixNotCached
from blockyard.core.expiring import Expiring, check_ttl
from blockyard.core.ids import BlockHash, BlockId, PinId, TenantId
from blockyard.core.pin import Pin
from blockyard.core.replies import Pinned
from blockyard.core.sequences import Sequences
from blockyard.core.soft_pins import SoftPins
from blockyard.core.tenants import Tenant, Tenants
from blockyard.core.whole_prefix import WholePrefix


class Pins(Expiring[PinId, Pin]):
    """The pins that have not ended.

    Args:
        config: The pool's configuration.
        stores: Its blocks.
        sequences: Knows the hashes of what is told, and what of it is cached.
    """

    def __init__(self, config: PoolConfig, stores: Sequence[BlockStore], sequences: Sequences) -> None:
        super().__init__()
        self._config = config
        self._stores = stores
        self._sequences = sequences
        self._whole = WholePrefix(config, stores)
        self._times_held: dict[BlockId, int] = {}
        """By hard pins: of the device's blocks, how often."""

    @property
    def num_soft_pinned_blocks(self) -> int:
        """The device's cached blocks that soft pins keep."""
        soft_pins = self._stores[0].soft_pins
        return 0 if soft_pins is None else len(soft_pins.blocks)

    @property
    def num_hard_pinned_blocks(self) -> int:
        """The device's blocks that hard pins hold, each counted once."""
        return len(self._times_held)

    def create(self, command: CreatePin, tenant: Tenant, now_ms: int) -> Pin:
        """Pin a prefix for ``tenant``, who acts.

        Raises:
            InvalidRequest: The id is taken, the time or the content is not valid, or there is nothing to pin.
            PrefixNotCached: A hard pin's prefix is not cached as a whole.
            InsufficientBlocks: Too few blocks are free for a hard pin to hold those of its prefix.
        """
        check_ttl(command.ttl_ms)
        if command.pin_id in self._by_id:
            raise InvalidRequest.of("pin_id", "is a pin's already")
        told = Told(
            command.block_hashes,
            command.token_ids,
            extras=command.extras,
            tenant=command.tenant,
            tenant_only=command.tenant_only,
        )
        block_hashes = self._sequences.hashes_of(None, told)
        if not block_hashes:
            raise InvalidRequest.of(
                "block_hashes", f"no block of {self._config.hash_block_size} tokens is full: nothing to pin"
            )
        pin = Pin(
            pin_id=command.pin_id,
            tenant=tenant,
            hard=command.hard,
            ttl_ms=command.ttl_ms,
            expires_at_ms=now_ms + command.ttl_ms,
            num_tokens=len(block_hashes) * self._config.hash_block_size,
        )
        if command.hard:
            self._hold(pin, block_hashes, command.num_reserved_blocks)
        else:
            pin.block_hashes = list(block_hashes)
            self._keep(pin)
        self._add(pin)
        return pin

    def renew(self, command: RenewPin, now_ms: int) -> Pin:
        """Begin a pin's time anew.

        Raises:
            InvalidRequest: The time is not valid.
            PinNotFound: There is none of this id, it is another tenant's, or it has run out.
        """
        if command.ttl_ms is not None:
            check_ttl(command.ttl_ms)
        pin = self._find(command, now_ms)
        pin.ttl_ms = pin.ttl_ms if command.ttl_ms is None else command.ttl_ms
        pin.expires_at_ms = now_ms + pin.ttl_ms
        self._note_expiry(pin)
        return pin

    def delete(self, command: DeletePin, now_ms: int) -> int:
        """End a pin; returns how many blocks became free. Raises PinNotFound as `renew`."""
        return self._end(self._find(command, now_ms))

    def expire(self, now_ms: int) -> tuple[list[PinId], int]:
        """End those that have run out, the first at the front; with them, how many blocks became free."""
        run_out = self.run_out(now_ms)
        num_freed = sum(self._end(pin) for pin in run_out)
        return [pin.pin_id for pin in run_out], num_freed

    def end_hard(self) -> None:
        """End those that hold blocks."""
        for pin in [pin for pin in self._by_id.values() if pin.hard]:
            self._end(pin)

    def told(self, pin: Pin, epoch: int) -> Pinned:
        """``pin`` as its holder is told of it."""
        soft_pins = [store.soft_pins for store in self._stores]
        return Pinned(
            epoch=epoch,
            pin_id=pin.pin_id,
            hard=pin.hard,
            ttl_ms=pin.ttl_ms,
            expires_at_ms=pin.expires_at_ms,
            num_tokens=pin.num_tokens,
            num_cached_tokens=self.num_cached_tokens(pin),
            num_blocks=pin.num_held_blocks
            + sum(each.count_blocks(pin.block_hashes) for each in soft_pins if each is not None),
        )

    def num_cached_tokens(self, pin: Pin) -> int:
        """Tokens of its prefix that are a hit now."""
        return pin.num_held_tokens if pin.hard else self._sequences.find_all(pin.block_hashes).num_tokens

    def look(self, tenant: TenantId | None) -> Generator[None, None, list[tuple[Pin, int]]]:
        """The pins of ``tenant``, or of all, each with `num_cached_tokens`: a slice a pin. Changes nothing.

        Returns:
            At the end of the generator: those that have not ended meanwhile.
        """
        found = []
        for pin in [pin for pin in self._by_id.values() if tenant in (None, pin.tenant.name)]:
            if self._by_id.get(pin.pin_id) is pin:
                found.append((pin, self.num_cached_tokens(pin)))
                yield
        return [each for each in found if self._by_id.get(each[0].pin_id) is each[0]]

    # What it holds

    def held_blocks(self, pin: Pin, store: BlockStore) -> list[BlockId]:
        """The blocks of ``store`` that ``pin`` holds."""
        groups = zip(self._config.groups, pin.block_ids, strict=False)  # a soft one holds none
        return [
            block
            for group, blocks in groups
            if self._stores[group.is_host_resident] is store
            for block in blocks
        ]

    def _hold(self, pin: Pin, block_hashes: Sequence[BlockHash], num_reserved_blocks: int) -> None:
        num_tokens = self._whole.num_tokens(len(block_hashes))
        if num_tokens == 0:
            raise InvalidRequest.of(
                "block_hashes", "no hit of this pool is as short: there is nothing that a hard pin could hold"
            )
        num_cached_tokens, pin.block_ids = self._whole.find(block_hashes)
        if num_cached_tokens < num_tokens:
            raise PrefixNotCached.of(num_tokens, num_cached_tokens)
        pin.num_held_tokens = num_tokens
        for store in self._stores:
            blocks = self.held_blocks(pin, store)
            num_untouched = store.num_untouched(blocks)
            leaves_some = num_untouched > 0 and store is self._stores[0]  # of the device's, if it takes any
            store.require(
                num_untouched,
                num_foreign=store.num_foreign(blocks),
                num_kept=num_reserved_blocks if leaves_some else 0,
                num_watermark=self._config.watermark_blocks if leaves_some else 0,
            )
        for store in self._stores:
            store.touch(self.held_blocks(pin, store))

    def _keep(self, pin: Pin) -> None:
        for store in self._stores:
            if store.soft_pins is None:
                store.soft_pins = SoftPins(store)
            store.soft_pins.pin(pin.block_hashes)

    def _end(self, pin: Pin) -> int:
        """``pin`` keeps nothing any more; returns how many blocks became free."""
        self._remove(pin)
        num_freed = 0
        for blocks, group in zip(pin.block_ids, self._config.groups, strict=False):
            store = self._stores[group.is_host_resident]
            if store.charges is not None:
                store.charges.acting = pin.tenant
            num_freed += store.release(blocks[::-1])
        if not pin.hard:
            for store in self._stores:
                assert store.soft_pins is not None, "a soft pin has blocks to keep"
                store.soft_pins.unpin(pin.block_hashes)
                if store.soft_pins.is_empty:
                    store.soft_pins = None
        return num_freed

    # Books and snapshots

    def problems(self, tenants: Tenants) -> list[str]:
        """Counts that are not those of the pins. What these hold is counted with what leases hold."""
        found = []
        for store in self._stores:
            if store.soft_pins is not None:
                found += store.soft_pins.problems()
        for tenant in tenants:
            own = [pin for pin in self._by_id.values() if pin.tenant is tenant]
            num_hashes = sum(len(pin.block_hashes) for pin in own)
            if (len(own), num_hashes) != (tenant.num_pins, tenant.num_pinned_hashes):
                found.append(
                    f"tenant {tenant.name!r} has {len(own)} pins of {num_hashes} hashes, "
                    f"{tenant.num_pins} of {tenant.num_pinned_hashes} are counted"
                )
        held = {block for pin in self._by_id.values() for block in self.held_blocks(pin, self._stores[0])}
        if held != self._times_held.keys():
            found.append(f"pins hold {len(held)} blocks, {len(self._times_held)} are counted")
        return found

    def to_state(self) -> dict[str, Any]:
        """The pins as plain data, and per store the free blocks that are evicted last, in their order."""
        return {
            "pins": [pin.to_state() for pin in self._by_id.values()],
            "free": [[] if store.soft_pins is None else list(store.soft_pins) for store in self._stores],
        }

    def load(self, state: dict[str, Any], tenants: Tenants) -> None:
        """Have those that ``state`` was taken of, of ``tenants``; the stores are as they were."""
        for each in state["pins"]:
            self._add(Pin.from_state(each, tenants))
        soft = [pin.block_hashes for pin in self._by_id.values() if not pin.hard]
        if soft:
            for store, free in zip(self._stores, state["free"], strict=True):
                store.soft_pins = SoftPins(store)
                store.soft_pins.load(soft, free)

    def _find(self, command: RenewPin | DeletePin, now_ms: int) -> Pin:
        pin = self._by_id.get(command.pin_id)
        if pin is None or pin.tenant.name != command.tenant or pin.expires_at_ms <= now_ms:
            raise PinNotFound.of(command.pin_id)
        return pin

    def _add(self, pin: Pin) -> None:
        self._by_id[pin.pin_id] = pin
        pin.tenant.num_pins += 1
        pin.tenant.num_pinned_hashes += len(pin.block_hashes)
        for block in self.held_blocks(pin, self._stores[0]):
            self._times_held[block] = self._times_held.get(block, 0) + 1
        self._note_expiry(pin)

    def _remove(self, pin: Pin) -> None:
        del self._by_id[pin.pin_id]
        pin.tenant.num_pins -= 1
        pin.tenant.num_pinned_hashes -= len(pin.block_hashes)
        for block in self.held_blocks(pin, self._stores[0]):
            self._times_held[block] -= 1
            if self._times_held[block] == 0:
                del self._times_held[block]
