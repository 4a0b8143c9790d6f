"""The pool beside the naive one, with pins that come and go."""

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from blockyard.core.commands import CreatePin, DeletePin, RenewPin
from blockyard.core.errors import InvalidRequest, PinNotFound
from blockyard.core.ids import PinId, TenantId
from blockyard.core.replies import Pinned
from core.drawn_pools import rarely
from core.drawn_requests import picks, prompts, tokens
from core.pool_machine import PoolMachine

MAX_PINS = 4


@dataclass(frozen=True, kw_only=True)
class DrawnPin:
    """What is pinned, and for how long."""

    prompt: int
    num_tokens: int
    hard: bool
    ttl_ms: int
    by_token_ids: bool


pins = st.builds(
    DrawnPin,
    prompt=prompts,
    num_tokens=tokens,
    hard=st.booleans(),
    ttl_ms=st.sampled_from([0, 500, 2_000, 2_000, 9_000]),
    by_token_ids=rarely,
)


class PinMachine(PoolMachine):
    """As `PoolMachine`; those who pin are the tenants of its leases."""

    num_pins: int = 0

    @rule(pick=picks, drawn=pins, once=rarely)
    def pin(self, *, pick: int, drawn: DrawnPin, once: bool) -> None:
        if len(self.pair.naive.pins.live) >= MAX_PINS:
            self.change_pin(pick=pick, action="delete", foreign=False)
            return
        self.num_pins += 1
        command = CreatePin(
            tenant=self.tenants[pick % len(self.tenants)],
            pin_id=PinId(f"p{self.num_pins}"),
            hard=drawn.hard,
            ttl_ms=drawn.ttl_ms,
            **self.schedulers.prompt(drawn.prompt, drawn.num_tokens, by_token_ids=drawn.by_token_ids),
        )
        got = self.pair.do(command, once=once)
        if isinstance(got, Pinned):
            self.coverage[f"pinned: {'hard' if got.hard else 'soft'}"] += 1
            self.coverage["pinned: cached already"] += got.num_blocks > 0 and not got.hard
            assert isinstance(self.pair.do(command), InvalidRequest), "its id is taken"

    pin_again = pin

    @precondition(lambda self: self.pair.naive.pins.live)
    @rule(pick=picks, action=st.sampled_from(["renew", "longer", "delete", "delete"]), foreign=rarely)
    def change_pin(self, *, pick: int, action: str, foreign: bool) -> None:
        """Another tenant's pin is none, and so is one that has run out."""
        live = list(self.pair.naive.pins.live.values())
        pin = live[pick % len(live)]
        tenant = TenantId("stranger") if foreign else pin.tenant
        command: DeletePin | RenewPin = DeletePin(pin_id=pin.pin_id, tenant=tenant)
        if action != "delete":
            ttl_ms = 4_000 if action == "longer" else None
            command = RenewPin(pin_id=pin.pin_id, tenant=tenant, ttl_ms=ttl_ms)
        is_none = foreign or pin.expires_at_ms <= max(self.pair.now_ms, self.pair.naive.now_ms)
        assert isinstance(self.pair.do(command), PinNotFound) is is_none

    def teardown(self) -> None:
        if hasattr(self, "pair"):
            stores = self.pair.naive.stores
            self.coverage["evictions of pinned blocks"] += sum(store.num_pinned_evictions for store in stores)
        super().teardown()
