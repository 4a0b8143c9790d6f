"""What `GET /metrics` tells of tenants: what each is promised, what it holds, and who waits."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from blockyard.core.ids import NO_TENANT
from blockyard.core.pool import Pool
from blockyard.server.pools import Pools
from blockyard.server.tenant_routes import TenantReply


def read_tenants(pools: Pools, name: str, pool: Pool) -> list[TenantReply]:
    """The tenants of ``pool``, which ``pools`` have under ``name``: those of none are one of them."""
    return [TenantReply.of(pools, name, pool, tenant.name) for tenant in pool.tenants]


def tenant_metrics(pools: Iterable[tuple[str, list[TenantReply]]]) -> Iterator[Metric]:
    """The families over all ``pools``, each by its name with its tenants."""
    held = _gauge(
        "tenant_held_blocks", "Blocks that the tenant's leases and hard pins hold, each counted once."
    )
    guaranteed = _gauge("tenant_guaranteed_blocks", "Blocks that the tenant can always hold.")
    most = _gauge("tenant_max_blocks", "Blocks that the tenant never holds more than; absent for no bound.")
    leases = _gauge("tenant_leases", "Live leases of the tenant.")
    sequences = _gauge("tenant_sequences", "Live sequences of the tenant.")
    waiting = _gauge("waiting_calls", "Calls that wait for blocks; those of no tenant have an empty one.")
    for pool, tenants in pools:
        for tenant in tenants:
            labels = [pool, tenant.tenant]
            waiting.add_metric(labels, tenant.num_waiting)
            if tenant.tenant == NO_TENANT:
                continue
            held.add_metric(labels, tenant.num_held_blocks)
            guaranteed.add_metric(labels, tenant.guaranteed_blocks)
            if tenant.max_blocks is not None:
                most.add_metric(labels, tenant.max_blocks)
            leases.add_metric(labels, tenant.num_leases)
            sequences.add_metric(labels, tenant.num_sequences)
    yield from (held, guaranteed, most, leases, sequences, waiting)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"blockyard_pool_{name}", text, labels=["pool", "tenant"])
