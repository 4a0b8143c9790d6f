"""``blockyard cluster show``: nodes and pools as a node tells of them."""

import json
from collections.abc import Iterator

import pytest
from rich.console import Console

from blockyard.server.commands.cluster.tables import cluster_tables
from cli.command_line import UNREACHABLE, invoke
from cluster.made_up_report import make_node, make_pool, make_report
from cluster.told_cluster import ToldCluster, telling_server


@pytest.fixture(scope="module")
def told() -> Iterator[ToldCluster]:
    with telling_server() as told:
        yield told


def lines(text: str) -> list[list[str]]:
    """The words of each line that has any, without rules."""
    return [words for line in text.splitlines() if (words := line.split()) and "─" not in line]


def test_it_shows_a_row_a_node_and_a_row_a_pool(told: ToldCluster) -> None:
    told.report = make_report()
    shown = lines(invoke("cluster", "show", "--url", told.url).stdout)
    assert shown[0] == [
        "cluster",
        "blockyard,",
        "asked",
        "of",
        "a:",
        "connected",
        "to",
        "NATS,",
        "lease",
        "for",
        "1.5",
        "s",
    ]
    assert shown[1:5] == [
        ["node", "url", "state", "owned", "followed", "heard"],
        ["a", "*", "http://127.0.0.1:8484", "live", "1", "1", "0.1", "s", "ago"],
        ["b", "http://127.0.0.1:8485", "leaving", "1", "1", "0.1", "s", "ago"],
        ["c", "http://127.0.0.1:8486", "lost", "0", "0", "9.0", "s", "ago"],
    ]
    assert shown[5:] == [
        ["pool", "owner", "standby", "ownership", "lag"],
        ["acme-lost", "none", "none", "2", "-"],
        ["acme-chat", "a", "b", "3", "0"],
        ["other-code", "b", "a", "1", "7"],
    ]


def test_it_says_where_a_node_may_not_answer(told: ToldCluster) -> None:
    told.report = make_report(is_connected=False, lease_left_ms=0, pools=[])
    shown = " ".join(invoke("cluster", "show", "--url", told.url).stdout.split())
    assert "asked of a: not connected to NATS, no lease: it answers for no pool" in shown
    assert "no pools yet: PUT /v1/pools/{name} at any node makes one" in shown


def test_for_programs_it_is_what_the_node_said(told: ToldCluster) -> None:
    told.report = make_report()
    done = invoke("cluster", "show", "--url", told.url, "--json")
    assert json.loads(done.stdout) == make_report().model_dump()
    assert done.stdout.count("\n") == 1


def test_without_a_terminal_it_looks_once(told: ToldCluster) -> None:
    told.report = make_report()
    watched = invoke("cluster", "show", "--url", told.url, "--watch")
    assert watched.stdout == invoke("cluster", "show", "--url", told.url).stdout


def test_where_there_is_no_room_pools_without_an_owner_stay() -> None:
    pools = [make_pool(f"p{number}", "a") for number in range(50)]
    report = make_report(nodes=[make_node("a")], pools=[*pools, make_pool("lost", None)])
    console = Console(width=100, record=True)
    with console.capture() as capture:
        console.print(cluster_tables(report, height=24))  # type: ignore[arg-type]  # the client's is alike
    shown = lines(capture.get())
    assert ["pool,", "11", "of", "51", "owner", "standby", "ownership", "lag"] in shown
    assert shown[4][0] == "lost"
    assert len(capture.get().splitlines()) <= 23  # and one for the time


def test_a_server_that_stands_alone_has_no_cluster_to_show(url: str) -> None:
    done = invoke("cluster", "show", "--url", url)
    assert done.exit_code == 1
    assert "no_cluster" in done.stderr
    assert "--cluster" in done.stderr


def test_where_nobody_answers_it_says_so() -> None:
    done = invoke("cluster", "show", "--url", UNREACHABLE)
    assert done.exit_code == 1
    assert "no answer from a server" in done.stderr


def test_to_watch_and_to_ask_for_an_object_do_not_go_together() -> None:
    done = invoke("cluster", "show", "--watch", "--json")
    assert done.exit_code == 2
