"""What watchers are told."""

from enum import Enum

from pydantic import BaseModel, Field

from blockyard.core.block_map import LegendEntry
from blockyard.core.statistics import Statistics
from blockyard.server.latency import CallLatency
from blockyard.server.tenant_routes import TenantReply
from blockyard.server.worker_routes import WorkerReply


class WatchedPool(BaseModel):
    """A pool and its figures."""

    pool: str
    stats: Statistics = Field(description="As of `GET .../stats`.")


class WatchedLease(BaseModel):
    """A lease and what it holds of the device's blocks, each counted once."""

    lease_id: str
    tenant: str = Field(description="Whose it is; empty for nobody's in particular.")
    holder: str
    num_sequences: int
    num_blocks: int
    expires_in_ms: int = Field(description="From the message on, unless it is renewed.")


class WatchedPin(BaseModel):
    """A pin: one that is hard holds blocks, of all groups; a soft one has blocks evicted last."""

    pin_id: str
    tenant: str = Field(description="Whose it is; empty for nobody's in particular.")
    hard: bool
    num_tokens: int
    num_held_blocks: int
    expires_in_ms: int = Field(description="From the message on, unless it is renewed.")


class ChosenPool(WatchedPool):
    """The pool that was asked for by name."""

    leases: list[WatchedLease] = Field(
        description="Those that hold the most blocks, the largest first. In a large pool they are counted "
        "every few seconds; `stats` says how many leases there are."
    )
    pins: list[WatchedPin] = Field(
        description="Those that hold the most blocks, then the longest; `stats` says how many there are."
    )
    num_tenants: int = Field(description="That have a name.")
    tenants: list[TenantReply] = Field(
        description="By name; of very many, those that have calls waiting or hold the most blocks. Those of "
        "no tenant are one of them, with an empty name, if they have leases. Empty where none has a name."
    )
    workers: list[WorkerReply] = Field(
        description="Lost ones first, then by rank; `stats` says how many there are, should these not be all."
    )


class Figures(BaseModel):
    """Everything that a watcher asked for, at one moment."""

    num_pools: int = Field(description="All that the watcher may know of.")
    num_matching: int = Field(description="Those whose name has `filter` in it.")
    pools: list[WatchedPool] = Field(description="Of the matching ones, those asked for.")
    chosen: ChosenPool | None = Field(description="Null where none was asked for, or there is no such pool.")
    latency: list[CallLatency] = Field(
        description="Of the calls that schedulers wait for, to all pools, over the last ten seconds; empty "
        "while no pool is chosen."
    )


class MapBy(Enum):
    """What the blocks of a map are told apart by."""

    STATE = "state"
    LEASE = "lease"


class MapReply(BaseModel):
    """What every device block of a pool is at the moment.

    The pool goes on while it is read: a map of a million blocks is smeared over the tenths of a second that
    it takes at most, and shows each block as it was at some moment of these.
    """

    epoch: int
    num_blocks: int
    by: MapBy
    legend: list[LegendEntry] = Field(
        description="Every code that may occur. By state: `null` (never handed out), `free` (without "
        "content), `free and cached` (with content that can be found), `held`, `held and cached`. By lease: "
        "what nobody holds in the same way; then `several leases`, `other leases`, and the leases with the "
        "most blocks to themselves, by their holders' names. The counts add up to `num_blocks`."
    )
    codes: str = Field(
        description="One byte a block, in the order of block ids, compressed with zlib (RFC 1950), in base64."
    )
