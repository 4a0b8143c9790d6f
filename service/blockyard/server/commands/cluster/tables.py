"""A cluster in a terminal: a line on the node that was asked, a row a node, a row a pool."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from blockyard.client.cluster_report import ClusterPoolReport, ClusterReport, NodeReport

NUM_OTHER_LINES = 12
"""Of a screen, beside the rows of nodes and pools: titles, heads, borders."""
BAD, PASSING = "bold red", "yellow"


def cluster_tables(report: ClusterReport, height: int | None = None) -> RenderableType:
    """All of ``report``.

    Args:
        report: What a node said.
        height: Lines that there are; pools beyond them are left out. None: as many as it takes.
    """
    pools = sorted(report.pools, key=lambda pool: (pool.node is not None, pool.pool))
    shown = pools
    if height is not None:
        shown = pools[: max(height - len(report.nodes) - NUM_OTHER_LINES, 1)]
    return Group(_asked(report), _nodes(report), _pools(shown, len(pools)))


def _asked(report: ClusterReport) -> Text:
    text = Text(f"cluster {report.cluster}, asked of {report.node}: ")
    if report.is_connected:
        text.append("connected to NATS")
    else:
        text.append("not connected to NATS", BAD)
    if report.lease_left_ms > 0:
        return text.append(f", lease for {report.lease_left_ms / 1e3:,.1f} s")
    return text.append(", no lease: it answers for no pool", BAD)


def _nodes(report: ClusterReport) -> Table:
    table = _table("node", "url", "state", figures=("owned", "followed", "heard"))
    for node in report.nodes:
        name = f"{node.node} *" if node.node == report.node else node.node
        counts = (f"{node.num_owned_pools:,}", f"{node.num_followed_pools:,}")
        table.add_row(
            Text(name), Text(node.url), _state(node), *counts, f"{node.heard_ms_ago / 1e3:,.1f} s ago"
        )
    return table


def _state(node: NodeReport) -> Text:
    if not node.is_live:
        return Text("lost", BAD)
    return Text("leaving", PASSING) if node.is_leaving else Text("live", "green")


def _pools(pools: Sequence[ClusterPoolReport], num_pools: int) -> RenderableType:
    if not pools:
        return Text("no pools yet: PUT /v1/pools/{name} at any node makes one")
    heading = "pool" if len(pools) == num_pools else f"pool, {len(pools):,} of {num_pools:,}"
    table = _table(heading, "owner", "standby", figures=("ownership", "lag"))
    for pool in pools:
        owner = Text("none", BAD) if pool.node is None else Text(pool.node)
        standby = Text("none", PASSING) if pool.standby is None else Text(pool.standby)
        lag = "-" if pool.lag is None else f"{pool.lag:,}"
        table.add_row(Text(pool.pool), owner, standby, f"{pool.ownership:,}", lag)
    return table


def _table(*names: str, figures: Iterable[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    for figure in figures:
        table.add_column(figure, justify="right", no_wrap=True)
    return table
