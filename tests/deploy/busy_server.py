"""What a server shows to Prometheus once all that its metrics tell of has happened to it."""

import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from blockyard.client import Client, InsufficientBlocks, Lease
from blockyard.server.trial.nats_servers import NatsServers
from server_process import ServerProcess, running_server
from waiting import wait_for

NUM_CALLERS = 4


@dataclass(frozen=True)
class Scrape:
    """One answer of ``/metrics``."""

    text: str

    @cached_property
    def samples(self) -> list[tuple[str, dict[str, str], float]]:
        """Name, labels and value of each sample."""
        return [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
        ]

    @property
    def labels(self) -> dict[str, set[str]]:
        """The labels of each metric, by its name."""
        return {name: set(labels) for name, labels, _ in self.samples}

    def total(self, metric: str, **labels: str) -> float:
        """The sum of a metric's samples that have ``labels``."""
        return sum(
            value for name, found, value in self.samples if name == metric and labels.items() <= found.items()
        )


def scrape(server: ServerProcess) -> Scrape:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as reply:
        return Scrape(reply.read().decode())


def scrape_of_a_busy_server() -> Scrape:
    """Callers at once with hits, evictions and refusals; a lost worker, an expired lease, a snapshot."""
    with running_server("--snapshot-commands", "50", "--log-level", "error") as server:
        with Client(server.url) as client:
            pool = client.create_pool(
                "busy",
                num_blocks=40,
                block_size=4,
                worker_timeout_ms=50,
                needs_all_workers=False,
                events=True,
            )
            shared = client.create_pool("shared", num_blocks=40, block_size=4)
            shared.set_quota("acme", guaranteed_blocks=10, max_blocks=20)
            register = {"worker_id": "w", "rank": 0, "device": "cpu", "incarnation": "a"}
            assert server.call("POST", "/v1/pools/busy/workers", register)[0] == 200
            assert server.call("GET", "/nowhere")[0] == 404
            pool.lease("forgetful", ttl_ms=1_000, renew=False)
            with pool.lease("first") as lease:
                use_up(lease)
            with pool.lease("diligent") as lease, ThreadPoolExecutor(NUM_CALLERS) as callers:
                for done in [callers.submit(work, lease, number) for number in range(NUM_CALLERS)]:
                    done.result()
        wait_for(lambda: scrape(server).total("blockyard_pool_expired_leases_total") > 0)
        wait_for(lambda: scrape(server).total("blockyard_journal_snapshots_total", outcome="taken") > 0)
        return scrape(server)


def scrape_of_a_node(folder: Path) -> Scrape:
    """The only node of a cluster, with a pool of its own."""
    with NatsServers(folder, num_servers=1) as servers:
        options = ("--cluster", servers.urls, "--cluster-replicas", "1", "--node-lease-ms", "20000")
        with running_server("--log-level", "error", *options) as node, Client(node.url) as client:
            pool = client.create_pool("owned", num_blocks=40, block_size=4)
            pool.lease("only", renew=False)
            return scrape(node)


def use_up(lease: Lease) -> None:
    """All that can become of block 1, which is watched: published, held again by a hit, evicted."""
    hashes = [place.to_bytes(32) for place in (1_000_001, 1_000_002)]
    for name in ("prompt", "again"):
        blocks = lease.allocate(name, 9, block_hashes=hashes).block_ids
        assert blocks == [[1, 2, 3]], "a new pool gives its first blocks first"
        lease.commit(name, 9)
        lease.free([name])
    lease.allocate("all blocks", 39 * 4)
    lease.free(["all blocks"])


def work(lease: Lease, caller: int) -> None:
    """A caller's day: prompts that come twice, each time with one that can never fit."""
    for number in range(50):
        name = f"{caller}-{number}"
        hashes = [(1_000 * caller + number // 2 + place).to_bytes(32) for place in range(2)]
        lease.allocate(name, 9, block_hashes=hashes)
        lease.commit(name, 9)
        lease.free([name])
        try:
            lease.allocate(name, 1_000)
        except InsufficientBlocks:
            continue
        raise AssertionError
