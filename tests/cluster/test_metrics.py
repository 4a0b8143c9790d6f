"""Metrics of a node: where the cluster stands, and what has happened to the node."""

from prometheus_client import CollectorRegistry

from blockyard.server.cluster.figures import ClusterFigures, TakeOver
from blockyard.server.cluster.metrics import ClusterCollector
from blockyard.server.cluster.report import ClusterReport
from cluster.made_up_report import make_pool, make_report


def scrape(report: ClusterReport, figures: ClusterFigures) -> dict[str, float]:
    """Every sample by its name, or by its name and kind."""
    registry = CollectorRegistry()
    registry.register(ClusterCollector(report, figures))
    return {
        " ".join([sample.name.removeprefix("blockyard_cluster_"), *sample.labels.values()]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_a_scrape_tells_of_the_cluster_and_of_what_has_happened() -> None:
    figures = ClusterFigures()
    for how in (TakeOver.NEW, TakeOver.NEW, TakeOver.FORCED, TakeOver.PLANNED):
        figures.took_over(how)
    figures.lost_pool()
    figures.lease_lapsed()
    figures.lease_lapsed()
    assert scrape(make_report(), figures) == {
        "connected": 1,
        "lease_seconds": 1.5,
        "nodes": 2,
        "owned_pools": 1,
        "followed_pools": 1,
        "follower_lag_messages": 7,
        "take_overs_total new": 2,
        "take_overs_total planned": 1,
        "take_overs_total forced": 1,
        "take_overs_total regained": 0,
        "lost_pools_total": 1,
        "lease_lapses_total": 2,
    }


def test_a_node_that_follows_nothing_is_not_behind() -> None:
    report = make_report(is_connected=False, lease_left_ms=0, pools=[make_pool("p", "b", lag=None)])
    found = scrape(report, ClusterFigures())
    assert found["follower_lag_messages"] == found["followed_pools"] == 0
    assert found["connected"] == found["lease_seconds"] == 0


def test_the_largest_lag_counts_of_the_pools_that_it_follows() -> None:
    pools = [make_pool(f"p{lag}", "b", role="standby", standby="a", lag=lag) for lag in (2, 40, 3)]
    pools.append(make_pool("own", "a", role="owner", lag=90))
    assert scrape(make_report(pools=pools), ClusterFigures())["follower_lag_messages"] == 40
