"""The pins of a pool as a watcher sees them in one look."""

import heapq
from dataclasses import dataclass

from blockyard.core.ids import PinId, TenantId
from blockyard.core.pool import Pool
from blockyard.server.watch_messages import WatchedPin

MAX_PINS = 64
"""That are told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPin:
    """A pin at one moment."""

    pin_id: PinId
    tenant: TenantId
    hard: bool
    num_tokens: int
    num_held_blocks: int
    expires_at_ms: int

    def message(self, now_ms: int) -> WatchedPin:
        """It as it is told at ``now_ms``."""
        return WatchedPin(
            pin_id=self.pin_id,
            tenant=self.tenant,
            hard=self.hard,
            num_tokens=self.num_tokens,
            num_held_blocks=self.num_held_blocks,
            expires_in_ms=max(0, self.expires_at_ms - now_ms),
        )


def see_pins(pool: Pool) -> list[SeenPin]:
    """The pins of ``pool`` that hold the most blocks, then the longest, `MAX_PINS` at most."""
    most = heapq.nlargest(MAX_PINS, pool.pins.values(), key=lambda pin: (pin.num_held_blocks, pin.num_tokens))
    return [
        SeenPin(
            pin_id=pin.pin_id,
            tenant=pin.tenant.name,
            hard=pin.hard,
            num_tokens=pin.num_tokens,
            num_held_blocks=pin.num_held_blocks,
            expires_at_ms=pin.expires_at_ms,
        )
        for pin in most
    ]
