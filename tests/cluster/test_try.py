"""``blockyard cluster try`` whole: three nodes and NATS servers, a node killed, and what is left of all."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from blockyard.client import Client, ClusterReport
from cli.command_line import invoke
from server_process import TIMEOUT_S, first_line, require, start
from waiting import wait_for
from web.browser import CHROMIUM, running_browser, visiting

TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial that is ready.

    Attributes:
        told: The object that it printed.
        said: The file with what it said on standard error.
    """

    process: subprocess.Popen[str]
    told: dict[str, Any]
    said: Path

    @property
    def urls(self) -> list[str]:
        return [node["url"] for node in self.told["nodes"]]

    def process_ids(self) -> list[int]:
        return [each["pid"] for each in (*self.told["nodes"], *self.told["nats"])]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """One for all tests of this module; the last one stops it."""
    said = tmp_path_factory.mktemp("trial") / "said"
    with (
        said.open("wb") as file,
        start("cluster", "try", "--port", "0", "--json", stderr=file.fileno()) as process,
    ):
        try:
            line = first_line(require(process.stdout))
            assert line, said.read_text()
            yield Trial(process, json.loads(line), said)
        finally:
            process.kill()  # its children go with it


def runs(process_id: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_report(client: Client, num_nodes: int = 1, num_pools: int = 0) -> ClusterReport:
    """What the node says once it knows of so many at least."""
    report = client.cluster()

    def knows() -> bool:
        nonlocal report
        report = client.cluster()
        return len(report.nodes) >= num_nodes and len(report.pools) >= num_pools

    wait_for(knows)
    return report


def test_each_node_knows_of_all_of_them(trial: Trial) -> None:
    names = [node["node"] for node in trial.told["nodes"]]
    assert names == ["node-1", "node-2", "node-3"]
    assert len(trial.told["nats"]) == 3
    assert all(map(runs, trial.process_ids()))
    for url in trial.urls:
        with Client(url) as client:
            report = wait_for_report(client, num_nodes=3)
        assert [(node.node, node.url) for node in report.nodes] == list(zip(names, trial.urls, strict=True))
        assert (report.cluster, report.is_connected) == ("trial", True)


def test_a_pool_of_any_node_is_shown_by_every_other(trial: Trial) -> None:
    for number, url in enumerate(trial.urls):
        with Client(url) as client:
            client.create_pool(f"shown-{number}", num_blocks=11, block_size=16)
    for url in trial.urls:
        with Client(url) as client:
            wait_for_report(client, num_pools=3)
        shown = invoke("cluster", "show", "--url", url).stdout
        assert all(f"shown-{number}" in shown for number in range(3))


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_dashboard_of_a_node_sees_a_pool_move_when_its_owner_is_killed(trial: Trial) -> None:
    with Client(trial.urls) as client:
        pool = client.create_pool("moving", num_blocks=11, block_size=16)
        with pool.lease("before", ttl_ms=600_000, renew=False) as lease:
            lease.allocate("sequence", 40)
        [known] = [each for each in client.cluster().pools if each.pool == "moving"]
        [killed] = [node for node in trial.told["nodes"] if node["node"] == known.node]
        [other, *_] = [node for node in trial.told["nodes"] if node["node"] != known.node]
        with running_browser() as browser, visiting(browser, f"{other['dashboard']}#pool=moving") as visit:
            row = visit.page.locator("#cluster-pools tr", has_text="moving")
            expect(row.locator("td").nth(1)).to_have_text(killed["node"], timeout=TIMEOUT_MS)
            link = visit.page.get_by_role("link", name=f"moving is a pool of {killed['node']}")
            expect(link).to_have_attribute("href", f"{killed['dashboard']}#pool=moving")
            os.kill(killed["pid"], signal.SIGKILL)
            expect(row.locator("td").nth(3)).to_have_text("2", timeout=TIMEOUT_MS)
            expect(row.locator("td").nth(1)).not_to_have_text(killed["node"])
            expect(visit.page.locator("#fenced")).to_be_hidden()
        assert pool.stats().counters["num_created_leases"] == 1
    wait_for(lambda: f"{killed['node']} was ended by SIGKILL: its pools are for" in trial.said.read_text())


def test_once_it_is_told_to_stop_nothing_of_it_is_left(trial: Trial) -> None:
    trial.process.send_signal(signal.SIGTERM)
    assert trial.process.wait(TIMEOUT_S) == 0, trial.said.read_text()
    assert not any(map(runs, trial.process_ids()))
    assert not Path(trial.told["dir"]).exists()
