"""The rules and the dashboard name what a server really shows, and promtool agrees with all of it."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from deploy.busy_server import Scrape, scrape_of_a_busy_server, scrape_of_a_node
from deploy.promql import selectors

ROOT = Path(__file__).resolve().parents[2]
RULES = sorted((ROOT / "deploy/prometheus").glob("*.yml"))
DASHBOARD = ROOT / "deploy/grafana/blockyard.json"
EXPRESSION = re.compile(r"^( +)(?:- )?expr: (?:\|\n((?:\1  .*\n)+)|(.+)\n)", re.MULTILINE)

OF_PROMETHEUS = {"job", "instance"}
"""Labels that a scrape's target has."""

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


@pytest.fixture(scope="module")
def busy() -> Scrape:
    return scrape_of_a_busy_server()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Scrape:
    return scrape_of_a_node(tmp_path_factory.mktemp("nats"))


def expressions_of_rules() -> list[str]:
    return [block or line for path in RULES for _, block, line in EXPRESSION.findall(path.read_text())]


def recorded_names() -> set[str]:
    return {
        name for path in RULES for name in re.findall(r"^ +- record: (\S+)$", path.read_text(), re.MULTILINE)
    }


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def variables() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["templating"]["list"]
    return found


def expressions_of_the_dashboard() -> Iterator[str]:
    for panel in panels():
        for target in panel.get("targets", []):
            yield target["expr"]
    for variable in variables():
        if variable["type"] == "query":
            yield variable["query"]["query"].removeprefix("label_values(").rpartition(",")[0]


def unknown(expressions: Iterator[str] | list[str], *scrapes: Scrape) -> set[str]:
    """Metrics and labels that ``expressions`` name and none of ``scrapes`` shows."""
    known = {name: labels for each in scrapes for name, labels in each.labels.items()}
    known |= {"up": set()} | {name: {"pool", "route"} for name in recorded_names()}
    found = set()
    for expression in expressions:
        for selector in selectors(expression):
            if selector.metric not in known:
                found.add(selector.metric)
            else:
                labels = selector.labels - known[selector.metric] - OF_PROMETHEUS
                found |= {f"{selector.metric}{{{label}}}" for label in labels}
    return found


def promtool(*arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *map(str, arguments)], input=text, capture_output=True, text=True, check=False
    )


def test_every_expression_of_the_rules_is_looked_at() -> None:
    num_rules = sum(
        len(re.findall(r"^ +- (?:record|alert):", path.read_text(), re.MULTILINE)) for path in RULES
    )
    assert len(expressions_of_rules()) == num_rules > 0


def test_every_metric_of_the_rules_is_shown_by_a_busy_server_or_a_node(busy: Scrape, node: Scrape) -> None:
    assert unknown(expressions_of_rules(), busy, node) == set()


def test_every_metric_of_the_dashboard_is_shown_by_a_busy_server_or_a_node(
    busy: Scrape, node: Scrape
) -> None:
    expressions = list(expressions_of_the_dashboard())
    assert len(expressions) > 30
    assert unknown(expressions, busy, node) == set()


def test_a_server_that_is_no_node_sets_off_no_alert_of_clusters(busy: Scrape) -> None:
    assert [name for name in busy.labels if name.startswith("blockyard_cluster")] == []


def test_a_node_alone_owns_its_pools_and_has_a_lease(node: Scrape) -> None:
    told = {name: node.total(f"blockyard_cluster_{name}") for name in ("connected", "nodes", "owned_pools")}
    assert told == {"connected": 1, "nodes": 1, "owned_pools": 1}
    assert node.total("blockyard_cluster_lease_seconds") > 0
    assert node.total("blockyard_cluster_take_overs_total", kind="new") == 1
    assert node.total("blockyard_cluster_take_overs_total", kind="forced") == 0


def test_a_nodes_journal_is_timed_as_a_servers_is(node: Scrape) -> None:
    assert node.total("blockyard_journal_append_duration_seconds_count") > 0


def test_a_name_that_nobody_shows_is_found(busy: Scrape) -> None:
    expressions = ['blockyard_pool_usage_ratio{colour="red"} + rate(blockyard_wishes_total[5m])']
    assert unknown(expressions, busy) == {"blockyard_pool_usage_ratio{colour}", "blockyard_wishes_total"}


@pytest.mark.parametrize(
    "counter",
    ["hit_tokens", "evicted_blocks", "refused_allocations", "expired_leases", "published_blocks"],
)
def test_the_busy_server_was_busy(busy: Scrape, counter: str) -> None:
    assert busy.total(f"blockyard_pool_{counter}_total", pool="busy") > 0


@pytest.mark.parametrize("span", ["lifetime", "idle_before_evict", "reuse_gap"])
def test_the_busy_servers_first_block_was_published_hit_and_evicted(busy: Scrape, span: str) -> None:
    assert busy.total(f"blockyard_pool_block_{span}_seconds_count", pool="busy") > 0


def test_events_are_counted_and_timed(busy: Scrape) -> None:
    batches = busy.total("blockyard_pool_event_batches_total", pool="busy")
    assert 0 < busy.total("blockyard_event_publish_delay_seconds_count") <= batches
    assert busy.total("blockyard_pool_event_followers", pool="busy") == 0


def test_the_journal_tells_of_every_command(busy: Scrape) -> None:
    commands = busy.total("blockyard_journal_append_commands_sum")
    appends = busy.total("blockyard_journal_append_commands_count")
    assert commands >= 4 * 4 * 50  # callers, calls, rounds
    assert 0 < appends == busy.total("blockyard_journal_append_duration_seconds_count") <= commands
    assert busy.total("blockyard_journal_appended_bytes_total") > commands
    assert busy.total("blockyard_pool_commands_since_snapshot") < commands


def test_snapshots_and_the_sizes_of_the_journals_files_are_told(busy: Scrape) -> None:
    taken = busy.total("blockyard_journal_snapshots_total", outcome="taken")
    assert taken == busy.total("blockyard_journal_snapshot_duration_seconds_count") > 0
    assert busy.total("blockyard_journal_snapshots_total", outcome="failed") == 0
    assert 0 <= busy.total("blockyard_pool_snapshot_age_seconds", pool="busy") < 60
    assert busy.total("blockyard_journal_size_bytes", file="database") > 0
    assert busy.total("blockyard_journal_size_bytes", file="log") > 0


def test_every_panel_reads_from_the_data_source_that_is_chosen() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    sources = [panel["datasource"] for panel in panels() if panel["type"] != "row"]
    sources += [target["datasource"] for panel in panels() for target in panel.get("targets", [])]
    sources += [variable["datasource"] for variable in variables() if variable["type"] == "query"]
    assert all(source == chosen for source in sources)
    assert [variable["name"] for variable in variables()] == ["datasource", "instance", "pool"]


def test_no_panel_covers_another_and_each_has_an_id_and_a_sentence_of_its_own() -> None:
    places = [panel["gridPos"] for panel in panels()]
    for one, other in combinations(places, 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_below
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert len({panel["id"] for panel in panels()}) == len(panels())
    assert all(panel["description"] for panel in panels() if panel["type"] != "row")


@needs_promtool
@pytest.mark.parametrize("shown", ["busy", "node"])
def test_promtool_finds_nothing_to_mend_in_the_metrics(shown: str, request: pytest.FixtureRequest) -> None:
    checked = promtool("check", "metrics", text=request.getfixturevalue(shown).text)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@needs_promtool
def test_promtool_reads_the_rules() -> None:
    checked = promtool("check", "rules", *RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@needs_promtool
def test_alerts_fire_when_they_should() -> None:
    checked = promtool("test", "rules", Path(__file__).parent / "rules.test.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


@needs_promtool
@pytest.mark.parametrize(
    "panel", [panel for panel in panels() if "targets" in panel], ids=lambda p: p["title"]
)
def test_promtool_reads_every_expression_of_the_dashboard(panel: dict[str, Any], tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": target["expr"].replace("$__rate_interval", "5m")}
        for number, target in enumerate(panel["targets"])
    ]
    path = tmp_path / "rules.yml"  # JSON is YAML
    path.write_text(json.dumps({"groups": [{"name": "panel", "rules": rules}]}))
    checked = promtool("check", "rules", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
