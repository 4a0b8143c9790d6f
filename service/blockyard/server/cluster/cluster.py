"""A server's part in a cluster: its node, the way to other nodes, and the snapshots of its pools."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import structlog
from prometheus_client.registry import Collector
from starlette.types import ASGIApp

from blockyard.core.errors import BlockyardError
from blockyard.server.clock import Clock
from blockyard.server.cluster.directory import Directory
from blockyard.server.cluster.journal import ClusterJournal
from blockyard.server.cluster.metrics import ClusterCollector
from blockyard.server.cluster.node import ClusterNode
from blockyard.server.cluster.node_settings import NodeSettings
from blockyard.server.cluster.proxy import Proxy
from blockyard.server.cluster.report import ClusterReport
from blockyard.server.cluster.router import Router
from blockyard.server.cluster.stream_snapshots import StreamSnapshots
from blockyard.server.cluster.tasks import end
from blockyard.server.durable import snapshot_rule
from blockyard.server.journal.errors import JournalError
from blockyard.server.journal.figures import JournalFigures
from blockyard.server.journal.snapshots import SnapshotKeeper, SnapshotRule
from blockyard.server.pools import Pools
from blockyard.server.settings import Settings
from blockyard.server.sse import Streams

log = structlog.get_logger("blockyard.cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What a server is told of its part.

    Attributes:
        node: Of its node.
        rule: When snapshots are taken.
        proxies: Whether it asks other nodes for callers.
        proxy_tls: How it speaks ``https://`` to them; None: with the authorities that httpx trusts.
        timeout_s: How long it waits for them.
        leave_s: How long handing its pools over may take.
    """

    node: NodeSettings
    rule: SnapshotRule
    proxies: bool
    proxy_tls: ssl.SSLContext | None
    timeout_s: int
    leave_s: int

    @classmethod
    def of(cls, settings: Settings, url: str, host_name: str) -> "ClusterSettings":
        """As ``settings`` have it; see `NodeSettings.of`. Raises OSError: a file of theirs cannot be used."""
        tls = None
        if settings.proxy_ca:
            tls = ssl.create_default_context(cafile=settings.proxy_ca)
            if settings.tls_cert:
                tls.load_cert_chain(settings.tls_cert, settings.tls_key)
        return cls(
            node=NodeSettings.of(settings, url, host_name),
            rule=snapshot_rule(settings),
            proxies=settings.proxy,
            proxy_tls=tls,
            timeout_s=settings.request_timeout_s,
            leave_s=settings.shutdown_timeout_s,
        )


class Cluster:
    """Made before the application, and run beside it.

    Args:
        settings: What it is told.
        clock: The time that commands are given.
        journal_figures: What publishing costs.
    """

    def __init__(self, settings: ClusterSettings, clock: Clock, journal_figures: JournalFigures) -> None:
        self._settings = settings
        self._journal_figures = journal_figures
        self._node = ClusterNode(settings.node, clock, journal_figures)
        self._directory = Directory(self._node)
        self._proxy: Proxy | None = None

    @property
    def journal(self) -> ClusterJournal:
        """What its pools are written to."""
        return self._node.journal

    def absent(self, pool: str) -> BlockyardError:
        """What is said of a pool that this node does not answer for."""
        return self._directory.absent(pool)

    def check(self) -> None:
        """Raise NotReady where this node has no lease."""
        self._node.journal.check_lease()

    def around(self, app: ASGIApp, pools: Pools, streams: Streams) -> ASGIApp:
        """``app``, and before it the way to the other nodes; what goes on for long is one of ``streams``."""
        told = self._settings
        if told.proxies:
            self._proxy = Proxy(told.node.node, told.proxy_tls, told.timeout_s, streams)
        return Router(
            app,
            self._directory,
            lambda pool: pools.find(pool) is not None,
            self._node.journal.commit,
            self._proxy,
        )

    def report(self) -> ClusterReport:
        """The cluster as this node knows it now."""
        return self._directory.report()

    def collector(self) -> Collector:
        """The metrics of this moment."""
        return ClusterCollector(self.report(), self._node.figures)

    @contextlib.asynccontextmanager
    async def running(
        self, pools: Pools, on_failure: Callable[[JournalError], object]
    ) -> AsyncIterator[None]:
        """Be a node of the cluster within the block, which begins once it may answer, however late.

        Args:
            pools: What it serves.
            on_failure: Told of a mistake of ours, after which it is none any more.
        """
        node = self._node
        keeper = SnapshotKeeper(
            StreamSnapshots(node), pools.lines, self._settings.rule, on_failure, self._journal_figures
        )
        tasks: list[asyncio.Task[None]] = []
        try:
            await node.join(pools)
            works = (_told(node.run(), on_failure), keeper.run(), node.sweep())
            tasks = [asyncio.create_task(work) for work in works]
            await node.ready()
            yield
        finally:
            await end(*tasks)
            await node.close()
            if self._proxy is not None:
                await self._proxy.close()

    async def leave(self) -> None:
        """Hand all pools over to other nodes, and give the lease up."""
        await self._node.leave(self._settings.leave_s)

    def describe(self) -> dict[str, object]:
        """For the server's log."""
        settings = self._settings.node
        return {"cluster": settings.cluster, "node": settings.node, "advertised": settings.url}


MakeCluster: TypeAlias = Callable[[Clock, JournalFigures], Cluster]


def cluster_of(settings: Settings, url: str, host_name: str) -> MakeCluster:
    """Makes the part of a server with ``settings``. Raises OSError: a file of theirs cannot be used."""
    return partial(Cluster, ClusterSettings.of(settings, url, host_name))


async def _told(running: Coroutine[Any, Any, None], on_failure: Callable[[JournalError], object]) -> None:
    """``running``, and whoever is to know where it fails."""
    try:
        await running
    except Exception as error:
        log.exception("the node has failed")
        on_failure(JournalError(f"the node has failed: {error!r}"))
