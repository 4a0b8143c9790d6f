import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from blockyard.client import Client
from cli.support import (
    CACHED_WITH_4,
    CACHED_WITH_100,
    TRACE,
    UNREACHABLE,
    replay,
    run,
    start,
    write_trace,
)

LONG_RUN = ["--requests", "20000", "--users", "3"]
"""Far from done when a test ends it."""


def wait_for(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.02)


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


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("mode", [[], ["--steps", "--concurrency", "1"]])
def test_a_trace_is_cached_as_counted_by_hand(mode: list[str], tmp_path: Path) -> None:
    done = replay(write_trace(tmp_path, *TRACE), "--num-blocks", "5", *mode)
    assert (done["cached_tokens"], done["num_refused"]) == (CACHED_WITH_4, 1)


@pytest.mark.parametrize("mode", [[], ["--steps"], ["--concurrency", "2"], ["--steps", "--concurrency", "2"]])
def test_with_room_for_all_every_way_finds_the_same(mode: list[str], tmp_path: Path) -> None:
    done = replay(write_trace(tmp_path, *TRACE), "--num-blocks", "101", *mode)
    assert (done["cached_tokens"], done["num_refused"]) == (CACHED_WITH_100, 0)


@pytest.mark.parametrize("mode", [[], ["--steps"], ["--concurrency", "2"]])
def test_a_request_that_never_fits_is_refused_and_the_run_goes_on(mode: list[str], tmp_path: Path) -> None:
    giant = {"input_length": 100_000, "hash_ids": list(range(1000, 1196))}
    done = replay(write_trace(tmp_path, giant, *TRACE), "--num-blocks", "101", *mode)
    assert (done["cached_tokens"], done["num_refused"]) == (CACHED_WITH_100, 1)


def test_limit_takes_the_first_requests(tmp_path: Path) -> None:
    done = replay(write_trace(tmp_path, *TRACE), "--num-blocks", "101", "--limit", "2")
    assert (done["num_requests"], done["input_tokens"], done["cached_tokens"]) == (2, 2600, 1024)


def test_larger_blocks_look_at_every_other_hash_id(tmp_path: Path) -> None:
    trace = write_trace(
        tmp_path,
        {"input_length": 2500, "hash_ids": [1, 2, 3, 4, 5]},  # blocks of 1024: [1, 2], [3, 4]
        {"input_length": 2500, "hash_ids": [1, 2, 3, 6, 7]},  # the first is alike, the second not
    )
    assert replay(trace, "--num-blocks", "101", "--block-size", "1024")["cached_tokens"] == 1024


def test_smaller_blocks_than_those_of_the_trace_are_a_mistake_in_the_arguments(tmp_path: Path) -> None:
    done = run("replay", write_trace(tmp_path, *TRACE), "--block-size", "16")
    assert done.returncode == 2
    assert "choose a multiple of 512 as --block-size" in done.stderr


def test_a_trace_may_have_blocks_of_another_size(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, *[{"input_length": 40, "hash_ids": [1, 2, 3]}] * 2)
    done = replay(trace, "--trace-block-size", "16")
    assert (done["block_size"], done["cached_tokens"]) == (16, 32)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "Expecting property name"),
        ("7", "not a JSON object"),
        ({"hash_ids": []}, "input_length is missing"),
        ({"input_length": 5}, "hash_ids is missing"),
        ({"input_length": -5, "hash_ids": []}, "input_length is -5"),
        ({"input_length": 0, "hash_ids": []}, "input_length is 0"),
        ({"input_length": 5.0, "hash_ids": []}, "input_length is 5.0"),
        ({"input_length": 5, "hash_ids": 7}, "hash_ids is not a list"),
        ({"input_length": 1024, "hash_ids": [1]}, "1 hash_ids for an input_length of 1024"),
        ({"input_length": 600, "hash_ids": [1, 2, 3]}, "3 hash_ids for an input_length of 600"),
        ({"input_length": 512, "hash_ids": ["a"]}, "'a' is no hash id"),
        ({"input_length": 512, "hash_ids": [-1]}, "-1 is no hash id"),
        ({"input_length": 512, "hash_ids": [[]]}, "[] is no hash id"),
        ({"input_length": 1024, "hash_ids": [1, True]}, "True is no hash id"),
    ],
)
def test_a_bad_line_ends_the_replay_and_is_named(line: object, complaint: str, tmp_path: Path) -> None:
    path = write_trace(tmp_path, TRACE[0], line)
    done = run("replay", path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: {path}, line 2: ")
    assert complaint in done.stderr


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


def test_the_same_seed_gives_the_same_figures_in_another_process() -> None:
    first, second = [
        replay("--requests", "100", "--seed", "7", PYTHONHASHSEED=hash_seed) for hash_seed in ("1", "2")
    ]
    for name in ("input_tokens", "cached_tokens", "num_refused", "hit_rate_series"):
        assert first[name] == second[name]


def test_the_hit_rate_is_cached_by_input_tokens() -> None:
    done = replay("--requests", "100")
    assert done["hit_rate"] == done["cached_tokens"] / done["input_tokens"]


def test_the_series_ends_with_the_last_request() -> None:
    series = replay("--requests", "130")["hit_rate_series"]
    assert [point["num_requests"] for point in series] == [*range(3, 130, 3), 130]


def test_the_report_for_people_keeps_to_80_columns() -> None:
    done = run("replay", "--requests", "100", COLUMNS="80")
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_report_for_people_has_a_table_and_a_plot() -> None:
    done = run("replay", "--requests", "100")
    assert "\n requests " in done.stdout
    assert "hit rate over the requests, %" in done.stdout
    assert "┤" in done.stdout


def test_without_a_terminal_nothing_is_on_standard_error() -> None:
    assert run("replay", "--requests", "100").stderr == ""


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


def test_a_server_that_refuses_is_quoted(url: str) -> None:
    done = run("replay", "--requests", "20", "--url", url, "--num-blocks", "2000000000")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: invalid_request: num_blocks")


def test_an_unreachable_server_is_said_to_be() -> None:
    done = run("replay", "--requests", "20", "--url", UNREACHABLE)
    assert done.returncode == 1
    assert f"no answer from a server at {UNREACHABLE}" in done.stderr


@pytest.mark.parametrize("mode", [[], ["--steps"], ["--concurrency", "4"]])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_replay_that_is_interrupted_deletes_its_pool(number: int, mode: list[str], url: str) -> None:
    name = f"interrupted-{number}-{len(mode)}"
    with Client(url) as client:
        with start("replay", *LONG_RUN, "--url", url, "--pool", name, *mode) as process:
            wait_for(lambda: name in [pool.pool for pool in client.pools()])
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
    with start("replay", write_trace(tmp_path, "bad")) as process:
        wait_for(lambda: children(process.pid) or process.poll() is not None)
        servers = children(process.pid)
        assert process.wait(30) == 1
    assert not any(map(is_running, servers))
