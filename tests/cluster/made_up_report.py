"""A cluster that there is not, as a node of it would tell of it."""

from typing import Any

from blockyard.server.cluster.report import ClusterPoolReport, ClusterReport, NodeReport

URL = "http://127.0.0.1:{}"
PORTS = {"a": 8484, "b": 8485, "c": 8486}


def make_node(node: str, **changes: Any) -> NodeReport:
    """A live node that owns and follows nothing, unless ``changes`` say otherwise."""
    told = {
        "node": node,
        "url": URL.format(PORTS[node]),
        "is_live": True,
        "is_leaving": False,
        "num_owned_pools": 0,
        "num_followed_pools": 0,
        "heard_ms_ago": 120,
    }
    return NodeReport(**{**told, **changes})


def make_pool(pool: str, node: str | None, **changes: Any) -> ClusterPoolReport:
    """A pool of ``node``, which the node that is asked has nothing to do with unless ``changes`` say so."""
    url = None if node is None else URL.format(PORTS[node])
    told = {"pool": pool, "node": node, "url": url, "ownership": 1, "standby": None, "role": "none"}
    return ClusterPoolReport(**{**told, "lag": None, **changes})


def make_report(**changes: Any) -> ClusterReport:
    """Node a owns a pool and follows one of b's; c is dead, and its pool without an owner."""
    told = {
        "cluster": "blockyard",
        "node": "a",
        "is_connected": True,
        "lease_left_ms": 1_500,
        "nodes": [
            make_node("a", num_owned_pools=1, num_followed_pools=1),
            make_node("b", num_owned_pools=1, num_followed_pools=1, is_leaving=True),
            make_node("c", is_live=False, heard_ms_ago=9_000),
        ],
        "pools": [
            make_pool("acme-chat", "a", ownership=3, standby="b", role="owner", lag=0),
            make_pool("other-code", "b", ownership=1, standby="a", role="standby", lag=7),
            make_pool("acme-lost", None, ownership=2),
        ],
    }
    return ClusterReport(**{**told, **changes})
