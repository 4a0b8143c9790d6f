import io
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from rich.console import Console

from blockyard.client import NO_RETRY, Client
from blockyard.server.app import create_app
from blockyard.server.commands.pools import pools_with_figures
from blockyard.server.commands.top.frames import Look, frames
from blockyard.server.commands.top.pools_table import PoolFigures, pools_table
from blockyard.server.pools import Pools
from blockyard.server.settings import Settings
from cli.command_line import UNREACHABLE, invoke
from client.peers import elsewhere, peer
from server_process import running_server
from waiting import wait_for

HASH = b"\x01" * 16


@contextmanager
def serving_here() -> Iterator[tuple[str, Pools]]:
    """A server in a thread of ours, so that a fault can be planted: its URL, and its pools."""
    app = create_app(Settings())
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", app.pools
    finally:
        server.should_exit = True
        thread.join(30)


def make_pool(url: str, name: str, eviction: str = "lru") -> None:
    with Client(url) as client:
        client.create_pool(name, num_blocks=101, block_size=16, publish="on_allocate", eviction=eviction)


def query_pool(url: str, name: str, times: int) -> None:
    """Allocate 20 tokens, of which one block of 16 is found from the second time on."""
    with Client(url) as client, client.pool(name).lease("test", 10_000) as lease:
        for time in range(times):
            lease.allocate(f"{time}", 20, block_hashes=[HASH])
            lease.free([f"{time}"])


def test_a_server_without_pools_is_said_to_have_none() -> None:
    with running_server() as server:
        assert invoke("pools", "--url", server.url).stdout == f"no pools at {server.url}\n"
        assert json.loads(invoke("pools", "--url", server.url, "--json").stdout) == {"pools": []}


def test_pools_shows_a_line_for_each_pool(url: str) -> None:
    make_pool(url, "listed")
    [line] = [line for line in invoke("pools", "--url", url).stdout.splitlines() if "listed" in line]
    assert line.split() == ["listed", "101", "16", "0", "0.0", "%", "no", "queries", "yet"]


def test_pools_has_configuration_and_figures_for_programs(url: str) -> None:
    make_pool(url, "described")
    pools = json.loads(invoke("pools", "--url", url, "--json").stdout)["pools"]
    [pool] = [pool for pool in pools if pool["pool"] == "described"]
    assert (pool["num_blocks"], pool["publish"], pool["stats"]["num_free_blocks"]) == (
        101,
        "on_allocate",
        100,
    )


def test_a_pool_that_nobody_asked_has_no_hit_rate(url: str) -> None:
    make_pool(url, "unasked")
    assert hit_rate(url, "unasked") == "no queries yet"


def test_a_pool_that_found_nothing_has_a_hit_rate_of_0(url: str) -> None:
    make_pool(url, "missed")
    query_pool(url, "missed", 1)
    assert hit_rate(url, "missed") == "0.0 %"


def test_a_pool_that_found_16_of_40_tokens_has_a_hit_rate_of_40_percent(url: str) -> None:
    make_pool(url, "hit")
    query_pool(url, "hit", 2)
    assert hit_rate(url, "hit") == "40.0 %"


def hit_rate(url: str, pool: str) -> str:
    [line] = [line for line in invoke("stats", pool, "--url", url).stdout.splitlines() if "hit rate" in line]
    return line.strip().removeprefix("hit rate").strip()


def test_stats_are_one_object_for_programs(url: str) -> None:
    make_pool(url, "counted")
    query_pool(url, "counted", 2)
    stats = json.loads(invoke("stats", "counted", "--url", url, "--json").stdout)
    assert (stats["pool"], stats["hit_rate"], stats["counters"]["num_admitted_sequences"]) == (
        "counted",
        0.4,
        2,
    )


def test_an_audit_that_adds_up_says_so_and_exits_with_0(url: str) -> None:
    make_pool(url, "sound")
    done = invoke("audit", "sound", "--url", url)
    assert done.exit_code == 0
    assert "pool sound: adds up" in done.stdout


def test_an_audit_names_who_holds_what(url: str) -> None:
    make_pool(url, "held")
    with Client(url) as client, client.pool("held").lease("scheduler-7", 60_000) as lease:
        lease.allocate("one", 20)
        done = invoke("audit", "held", "--url", url)
    [line] = [line for line in done.stdout.splitlines() if "scheduler-7" in line]
    assert line.split()[-2:] == ["1", "2"]  # sequences, blocks


def test_an_audit_is_one_object_for_programs(url: str) -> None:
    make_pool(url, "recounted")
    audit = json.loads(invoke("audit", "recounted", "--url", url, "--json").stdout)
    assert (audit["ok"], audit["num_free_blocks"], audit["num_null_blocks"]) == (True, 100, 1)


def test_pins_are_listed_with_what_is_cached_of_them(url: str) -> None:
    make_pool(url, "pinned")
    assert invoke("pins", "pinned", "--url", url).stdout == "nothing is pinned in pool pinned\n"
    query_pool(url, "pinned", times=1)
    with Client(url) as client:
        pin = client.pool("pinned").pin(60_000, block_hashes=[HASH], hard=True)
    (listed,) = json.loads(invoke("pins", "pinned", "--url", url, "--json").stdout)["pins"]
    assert (listed["pin_id"], listed["num_cached_tokens"]) == (pin.pin_id, 16)
    for command in ("pins", "audit"):
        assert pin.pin_id[:8] in invoke(command, "pinned", "--url", url).stdout
    assert "1, 0 blocks evicted last, 1 held" in invoke("stats", "pinned", "--url", url).stdout


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_an_audit_that_does_not_add_up_exits_with_1(form: list[str]) -> None:
    with serving_here() as (url, pools):
        make_pool(url, "broken")
        pools.get("broken").store.reference_counts[5] += 1
        done = invoke("audit", "broken", "--url", url, *form)
    assert done.exit_code == 1
    assert "block 5 counts 1 holders, 0 name it" in done.stdout
    assert done.stderr == "Error: pool broken does not add up\n"


@pytest.mark.parametrize("command", ["stats", "audit"])
def test_a_missing_pool_exits_with_1_and_says_where_to_look(command: str, url: str) -> None:
    done = invoke(command, "nowhere", "--url", url)
    assert done.exit_code == 1
    assert "'nowhere'" in done.stderr
    assert f"blockyard pools --url {url}" in done.stderr


@pytest.mark.parametrize("arguments", [["pools"], ["stats", "some"], ["audit", "some"]])
def test_an_unreachable_server_exits_with_1_and_says_what_to_change(arguments: list[str]) -> None:
    done = invoke(*arguments, "--url", UNREACHABLE)
    assert done.exit_code == 1
    assert f"no answer from a server at {UNREACHABLE}" in done.stderr
    assert "--url" in done.stderr


def test_what_is_no_url_is_a_mistake_in_the_arguments() -> None:
    done = invoke("pools", "--url", "localhost:8484")
    assert done.exit_code == 2
    assert "--url" in done.stderr


def test_the_url_may_be_a_variable(url: str) -> None:
    make_pool(url, "by-variable")
    assert "by-variable" in invoke("stats", "by-variable", BLOCKYARD_URL=url).stdout


def test_the_url_may_name_several_nodes_of_which_one_answers(url: str) -> None:
    make_pool(url, "by-second-node")
    urls = f"{UNREACHABLE},{url}"
    for arguments in (["stats", "by-second-node"], ["top", "by-second-node"], ["pools"]):
        done = invoke(*arguments, "--url", urls)
        assert (done.exit_code, "by-second-node" in done.stdout) == (0, True), done.output


@pytest.mark.parametrize("arguments", [["stats", "moved"], ["top", "moved"]])
def test_a_command_about_a_pool_follows_it_to_its_owner(url: str, arguments: list[str]) -> None:
    make_pool(url, "moved")
    with peer(elsewhere(url, 1)) as node:
        done = invoke(*arguments, "--url", node.url)
    assert (done.exit_code, "moved" in done.stdout) == (0, True), done.output


def shown_by_top(url: str, *options: str) -> dict[str, list[str]]:
    """The cells of each pool's row, without its bar."""
    shown = invoke("top", "--url", url, "--interval-s", "0.1", *options, COLUMNS="120")
    assert (shown.exit_code, shown.stderr) == (0, "")
    rows = [re.sub("[━╸╺]", " ", line).split() for line in shown.stdout.splitlines()[3:]]
    return {row[0]: row[1:] for row in rows if row}


def figures(client: Client) -> PoolFigures:
    return {pool.pool: stats for pool, stats in pools_with_figures(client)}


def test_top_shows_each_pool_as_stats_does() -> None:
    with running_server() as server:
        make_pool(server.url, "watched")
        query_pool(server.url, "watched", 2)
        with Client(server.url) as client, client.pool("watched").lease("test", 10_000) as lease:
            lease.allocate("held", 160)
            client.pool("watched").register_worker("w", rank=0, device="cpu", incarnation="a")
            row = shown_by_top(server.url, "--looks", "1")["watched"]
    assert row == ["10.0", "%", "90", "0", "8.0", "%", "lru", "1", "1", "1", "-", "-", "-"]


def test_top_shows_what_happened_since_the_look_before() -> None:
    with running_server() as server:
        make_pool(server.url, "watched")
        row = shown_by_top(server.url, "--looks", "2")["watched"]
    assert row[-3:] == ["0.0", "0.0", "0.0"]


def test_stats_and_top_show_the_weight_of_an_adaptive_pool(url: str) -> None:
    make_pool(url, "adaptive", eviction="adaptive")
    weight = json.loads(invoke("stats", "adaptive", "--url", url, "--json").stdout)["eviction_weight"]
    shown = invoke("stats", "adaptive", "--url", url).stdout
    assert re.findall(r"eviction +(.*)", shown)[0].strip() == f"adaptive, weight {weight:g}"
    assert shown_by_top(url, "--looks", "1")["adaptive"][5] == f"{weight:g}"


def test_top_says_that_there_are_no_pools() -> None:
    with running_server() as server:
        assert "no pools yet" in invoke("top", "--url", server.url, "--looks", "1").stdout


def test_top_says_that_nobody_answers() -> None:
    shown = invoke("top", "--url", UNREACHABLE, "--looks", "1")
    assert shown.exit_code == 1
    assert "no answer from a server" in shown.stderr


def test_top_shows_the_names_of_pools_in_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with running_server() as server, Client(server.url) as client:
        for name in ("demo", "llama-3.1-70b-instruct-prod-eu"):
            make_pool(server.url, name)
        Console(width=80).print(pools_table(Look(0.0, figures(client)), None, 80))
    shown = capsys.readouterr().out.splitlines()
    assert any(line.strip().startswith("demo") for line in shown)
    assert any(line.strip().startswith("llama-3.1-70b") for line in shown)
    assert len([line for line in shown if "%" in line]) == 2


def test_top_waits_for_a_server_that_does_not_answer_any_more() -> None:
    with running_server() as server, Client(server.url, retries=NO_RETRY) as client:
        make_pool(server.url, "watched")
        shown_frames = frames(
            lambda: figures(client),
            lambda now, before: pools_table(now, before, 140),
            title=server.url,
            interval_s=0.01,
            looks=None,
        )
        next(shown_frames)
        server.stop()
        console = Console(width=140, record=True, file=io.StringIO())
        console.print(next(shown_frames))
        console.print(next(shown_frames))
    shown = console.export_text()
    assert shown.count("no answer since") == 2
    assert shown.count("watched") == 2
