import os
import signal
import threading
from pathlib import Path
from subprocess import CompletedProcess

import click
import pytest

from blockyard.client import Client
from blockyard.core.config import Eviction
from blockyard.core.errors import PoolNotFound
from blockyard.server.commands.replay.options import ReplayOptions
from blockyard.server.commands.replay.own_pool import own_pool
from cli.command_line import UNREACHABLE, replay
from cli.short_trace import CACHED_WITH_4, CACHED_WITH_100, TRACE, write_trace
from server_process import run, start
from waiting import wait_for

LONG_RUN = ["--requests", "20000", "--users", "3"]
"""Far from done when a test ends it."""


def children(parent: int) -> list[int]:
    """Processes that ``parent`` has started and not yet buried."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def num_leases(client: Client, pool: str) -> int:
    try:
        return client.pool(pool).stats().num_leases
    except PoolNotFound:
        return 0


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("mode", [[], ["--steps", "--concurrency", "1"]])
def test_a_trace_is_cached_as_counted_by_hand(mode: list[str], url: str, tmp_path: Path) -> None:
    done = replay(write_trace(tmp_path, *TRACE), "--num-blocks", "5", "--url", url, *mode)
    assert (done["cached_tokens"], done["num_refused"]) == (CACHED_WITH_4, 1)


@pytest.mark.parametrize("mode", [[], ["--steps"], ["--concurrency", "2"], ["--steps", "--concurrency", "2"]])
def test_with_room_for_all_every_way_finds_the_same(mode: list[str], url: str, tmp_path: Path) -> None:
    done = replay(write_trace(tmp_path, *TRACE), "--num-blocks", "101", "--url", url, *mode)
    assert (done["cached_tokens"], done["num_refused"]) == (CACHED_WITH_100, 0)


@pytest.mark.parametrize("mode", [[], ["--steps"], ["--concurrency", "2"]])
def test_a_request_that_never_fits_is_refused_and_the_run_goes_on(
    mode: list[str], url: str, tmp_path: Path
) -> None:
    giant = {"input_length": 100_000, "hash_ids": list(range(1000, 1196))}
    done = replay(write_trace(tmp_path, giant, *TRACE), "--num-blocks", "101", "--url", url, *mode)
    assert (done["cached_tokens"], done["num_refused"]) == (CACHED_WITH_100, 1)


def test_limit_takes_the_first_requests(url: str, tmp_path: Path) -> None:
    done = replay(write_trace(tmp_path, *TRACE), "--num-blocks", "101", "--limit", "2", "--url", url)
    assert (done["num_requests"], done["input_tokens"], done["cached_tokens"]) == (2, 2600, 1024)


def test_larger_blocks_look_at_every_other_hash_id(url: str, tmp_path: Path) -> None:
    trace = write_trace(
        tmp_path,
        {"input_length": 2500, "hash_ids": [1, 2, 3, 4, 5]},  # blocks of 1024: [1, 2], [3, 4]
        {"input_length": 2500, "hash_ids": [1, 2, 3, 6, 7]},  # the first is alike, the second not
    )
    done = replay(trace, "--num-blocks", "101", "--block-size", "1024", "--url", url)
    assert done["cached_tokens"] == 1024


def test_smaller_blocks_than_those_of_the_trace_are_a_mistake_in_the_arguments(tmp_path: Path) -> None:
    done = run("replay", write_trace(tmp_path, *TRACE), "--block-size", "16")
    assert done.returncode == 2
    assert "choose a multiple of 512 as --block-size" in done.stderr


def test_a_trace_may_have_blocks_of_another_size(url: str, tmp_path: Path) -> None:
    trace = write_trace(tmp_path, *[{"input_length": 40, "hash_ids": [1, 2, 3]}] * 2)
    done = replay(trace, "--trace-block-size", "16", "--url", url)
    assert (done["block_size"], done["cached_tokens"]) == (16, 32)


def test_a_bad_line_ends_the_replay_and_is_named(tmp_path: Path) -> None:
    path = write_trace(tmp_path, TRACE[0], "7")
    done = run("replay", path)
    assert done.returncode == 1
    assert done.stderr == f"Error: {path}, line 2: not a JSON object\n"


def test_an_empty_trace_is_refused(tmp_path: Path) -> None:
    done = run("replay", write_trace(tmp_path))
    assert done.returncode == 1
    assert "the trace is empty" in done.stderr


def test_a_trace_that_is_not_there_is_a_mistake_in_the_arguments(tmp_path: Path) -> None:
    done = run("replay", tmp_path / "none.jsonl")
    assert done.returncode == 2
    assert "none.jsonl" in done.stderr


def test_options_of_the_workload_do_not_go_with_a_trace(tmp_path: Path) -> None:
    done = run("replay", write_trace(tmp_path, *TRACE), "--seed", "1")
    assert done.returncode == 2
    assert "--seed goes without a TRACE" in done.stderr


def test_options_of_a_trace_do_not_go_with_the_workload() -> None:
    done = run("replay", "--limit", "1")
    assert done.returncode == 2
    assert "--limit goes only with a TRACE" in done.stderr


def test_the_same_seed_gives_the_same_figures_in_another_process(url: str) -> None:
    first, second = [
        replay("--requests", "100", "--seed", "7", "--url", url, PYTHONHASHSEED=hash_seed)
        for hash_seed in ("1", "2")
    ]
    for name in ("input_tokens", "cached_tokens", "num_refused", "hit_rate_series"):
        assert first[name] == second[name]


def test_adaptive_eviction_finds_more_in_a_small_pool_than_the_default(url: str) -> None:
    small = ("--requests", "300", "--num-blocks", "501", "--url", url)
    default, adaptive = replay(*small), replay(*small, "--eviction", "adaptive")
    assert (default["eviction"], adaptive["eviction"]) == ("lru", "adaptive")
    assert default["cached_tokens"] < adaptive["cached_tokens"]


@pytest.fixture(scope="module")
def shown() -> CompletedProcess[str]:
    """A replay for people, with a server of its own."""
    return run("replay", "--requests", "100", COLUMNS="80")


def test_the_report_for_people_keeps_to_80_columns(shown: CompletedProcess[str]) -> None:
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_the_report_for_people_has_a_table_and_a_plot(shown: CompletedProcess[str]) -> None:
    assert "\n requests " in shown.stdout
    assert "hit rate over the requests, %" in shown.stdout
    assert "┤" in shown.stdout


def test_without_a_terminal_nothing_is_on_standard_error(shown: CompletedProcess[str]) -> None:
    assert shown.stderr == ""


def test_variables_for_the_server_that_serves_do_not_reach_the_own_one() -> None:
    assert replay("--requests", "1", BLOCKYARD_MAX_POOL_BLOCKS="1")["num_requests"] == 1


def test_on_a_server_that_runs_the_pool_is_gone_afterwards(url: str) -> None:
    replay("--requests", "20", "--url", url, "--pool", "passing")
    with Client(url) as client:
        assert "passing" not in [pool.pool for pool in client.pools()]


def test_a_pool_that_stands_is_left_alone(url: str) -> None:
    with Client(url) as client:
        client.create_pool("standing", num_blocks=10_001, block_size=16, publish="on_allocate")
        done = run("replay", "--requests", "20", "--url", url, "--pool", "standing")
        assert done.returncode == 1
        assert "pool standing exists already" in done.stderr
        assert client.pool("standing").stats().counters["num_created_leases"] == 0


def test_a_pool_of_the_same_configuration_is_left_alone_even_if_made_at_the_same_time(url: str) -> None:
    num_callers = 8
    options = ReplayOptions(
        num_blocks=11, block_size=16, eviction=Eviction.LRU, concurrency=1, steps=False, pool="contested"
    )
    all_here = threading.Barrier(num_callers)
    owners = []

    def take(client: Client) -> None:
        all_here.wait(10)
        try:
            with own_pool(client, options):
                owners.append("contested")
                all_tried.wait(10)
        except click.ClickException as error:
            assert "pool contested exists already" in error.message  # noqa: PT017 - most end here
            all_tried.wait(10)

    all_tried = threading.Barrier(num_callers)
    with Client(url) as client:
        threads = [threading.Thread(target=take, args=[client]) for _ in range(num_callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert owners == ["contested"]
        with pytest.raises(PoolNotFound):
            client.pool("contested").describe()


def test_a_server_that_refuses_is_quoted(url: str) -> None:
    done = run("replay", "--requests", "20", "--url", url, "--num-blocks", "2000000000")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: limit_exceeded: ")


def test_an_unreachable_server_is_said_to_be() -> None:
    done = run("replay", "--requests", "20", "--url", UNREACHABLE)
    assert done.returncode == 1
    assert f"no answer from a server at {UNREACHABLE}" in done.stderr


@pytest.mark.parametrize("mode", [[], ["--steps"], ["--concurrency", "4"]])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_replay_that_is_interrupted_deletes_its_pool(number: int, mode: list[str], url: str) -> None:
    name = f"interrupted-{number}-{'-'.join(mode)}"
    with Client(url) as client:
        with start("replay", *LONG_RUN, "--url", url, "--pool", name, *mode) as process:
            wait_for(lambda: num_leases(client, name))
            process.send_signal(number)
            assert process.wait(30) == 1
        assert name not in [pool.pool for pool in client.pools()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for children in /proc")
def test_a_replay_that_is_interrupted_ends_its_server(number: int) -> None:
    with start("replay", *LONG_RUN) as process:
        wait_for(lambda: children(process.pid))
        [server] = children(process.pid)
        process.send_signal(number)
        assert process.wait(30) == 1
    assert not is_running(server)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for children in /proc")
def test_a_replay_with_a_bad_trace_ends_its_server(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    os.mkfifo(trace)  # the replay reads on until we close our end
    with start("replay", trace) as process:
        with trace.open("w") as lines:
            wait_for(lambda: children(process.pid))
            [server] = children(process.pid)
            lines.write("bad")
        assert process.wait(30) == 1
    assert not is_running(server)
