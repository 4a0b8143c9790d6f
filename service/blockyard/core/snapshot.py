"""A pool's whole state as plain data: numbers, strings, bytes, lists and dictionaries.

A pool that is restored from a snapshot answers every further command as the first one would have, and its
own snapshot is equal to the one it came from.
"""

from typing import TYPE_CHECKING, Any, TypeVar

from blockyard.core.block_store import BlockStore
from blockyard.core.config import config_from_state, config_to_state
from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import NO_TENANT
from blockyard.core.lease import Lease
from blockyard.core.sequence import Sequence
from blockyard.core.statistics import Counters, HitWindow
from blockyard.core.workers import Workers

if TYPE_CHECKING:
    from blockyard.core.pool import Pool

P = TypeVar("P", bound="Pool")

SNAPSHOT_FORMAT = 5
_EARLIER_FORMATS = (3, 4)
"""Read as well: 3 has no tenants, 4 no pins and no forks."""


def take_snapshot(pool: "Pool") -> dict[str, Any]:
    """The state of ``pool``, sharing nothing with it that can change."""
    return {
        "format": SNAPSHOT_FORMAT,
        "config": config_to_state(pool.config),
        "epoch": pool.epoch,
        "now_ms": pool.now_ms,
        "next_handle": pool.sequences.next_handle,
        "workers": pool.workers.to_state(),
        "stores": [store.to_state() for store in pool.stores],
        "leases": [lease.to_state() for lease in pool.leases.values()],
        "sequences": [
            sequence.to_state() for lease in pool.leases.values() for sequence in lease.sequences.values()
        ],
        "pins": pool.pins.to_state(),
        "tenants": pool.tenants.to_state(),
        "counters": pool.counters.to_state(),
        "hits": pool.hits.to_state(),
        "events": None if pool.events is None else pool.events.to_state(),
    }


def restore_snapshot(pool_class: type[P], state: dict[str, Any]) -> P:
    """The pool that ``state`` was taken of.

    Raises:
        InvalidRequest: The snapshot is of another format.
    """
    if state["format"] not in (*_EARLIER_FORMATS, SNAPSHOT_FORMAT):
        raise InvalidRequest.of(
            "format", f"this version reads format {SNAPSHOT_FORMAT}, not {state['format']}"
        )
    tenants = state.get("tenants")
    if tenants is None:
        tenants = [{"name": NO_TENANT, "quota": None, "replies": state["replies"]}]
    config = config_from_state(state["config"])
    pool = pool_class(config)
    pool.epoch = state["epoch"]
    pool.now_ms = state["now_ms"]
    pool.tenants.load(tenants)
    pool.counters = Counters(**state["counters"])
    pool.hits = HitWindow.from_state(state["hits"])
    pool.workers = Workers.from_state(state["workers"], config.worker_timeout_ms, config.num_ranks)
    pool.adopt_stores(
        [BlockStore.from_state(store, pool.counters, config.eviction) for store in state["stores"]]
    )
    if pool.events is not None:
        pool.events.load(state["events"])
    pool.sequences.next_handle = state["next_handle"]
    for lease_state in state["leases"]:
        pool.leases.add(Lease.from_state(lease_state, pool.tenants, config.max_replies))
    if "pins" in state:
        pool.pins.load(state["pins"], pool.tenants)
    hasher = config.hasher() if any(sequence["chain"] for sequence in state["sequences"]) else None
    for sequence_state in state["sequences"]:
        lease = pool.leases[sequence_state["lease_id"]]
        pool.sequences.register(lease, Sequence.from_state(sequence_state, lease.tenant.name, hasher))
    pool.charge_if_needed()
    return pool
