"""``blockyard top POOL``: all of one pool, in a terminal and in a pipe."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from blockyard.client import Client
from blockyard.client.lease import Lease
from blockyard.core.block_map import BlockMap, LegendEntry, State
from blockyard.core.errors import PoolNotFound
from blockyard.server.commands.reach import Reach
from blockyard.server.commands.top.frames import Look, frames
from blockyard.server.commands.top.pool_map import MAX_LINES, PoolMap, run_states
from blockyard.server.commands.top.pool_view import pool_view
from blockyard.server.commands.top.pool_watch import PoolWatch, SeenPool
from cli.command_line import UNREACHABLE, invoke
from cli.test_watching import HASH, make_pool
from server_process import run, running_server


def shown(what: RenderableType, width: int, encoding: str = "utf-8") -> list[str]:
    """The lines of ``what``, without blanks at their ends."""
    content = io.BytesIO()
    file = io.TextIOWrapper(content, encoding)
    Console(width=width, file=file).print(what)
    file.flush()
    return [line.rstrip() for line in content.getvalue().decode(encoding).splitlines()]


def seen(url: str, pool: str) -> SeenPool:
    with PoolWatch(Reach(url=url), pool) as watch:
        return watch.look()


def view_frames(watch: PoolWatch, url: str) -> Iterator[RenderableType]:
    return frames(
        watch.look,
        lambda now, before: pool_view(now, before, 140),
        title=url,
        interval_s=0.01,
        looks=None,
    )


def hold(lease: Lease) -> None:
    """Of a pool of 101 blocks, hold 3, one of them with content, and leave one free with content."""
    lease.allocate("freed", 17, block_hashes=[b"\x02" * 16])
    lease.allocate("held", 40, block_hashes=[HASH, b"\x03" * 16])
    lease.free(["freed"])


def make_map(codes: bytes) -> BlockMap:
    legend = [
        LegendEntry(code=state, label=state.name.lower(), num_blocks=codes.count(state)) for state in State
    ]
    return BlockMap(epoch=1, legend=legend, codes=codes)


def test_top_shows_a_pool_with_its_blocks_holders_and_workers(url: str) -> None:
    make_pool(url, "whole")
    with Client(url) as client:
        pool = client.pool("whole")
        pool.register_worker("worker-a", rank=0, device="cpu", incarnation="a")
        with pool.lease("scheduler-7", 60_000) as lease:
            hold(lease)
            done = invoke("top", "whole", "--url", url)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[4].split()[0] == "whole"
    assert "101 blocks, each of them" in lines
    assert "0░·██▒" + "·" * 95 in [line.strip() for line in lines]
    [legend] = [line for line in lines if line.startswith("0 null 1 ")]
    assert [part.strip() for part in legend.split("  ") if part.strip()] == [
        "0 null 1",
        "· free 96",
        "░ free and cached 1",
        "▒ held 1",
        "█ held and cached 2",
    ]
    [member] = [line.split() for line in lines if "scheduler-7" in line]
    assert member[:3] == ["scheduler-7", "3", "1"]
    assert member[5:8] == ["worker-a", "0", "alive"]


def test_top_shows_how_long_calls_took_between_its_looks(url: str) -> None:
    make_pool(url, "timed")
    with (
        Client(url) as client,
        client.pool("timed").lease("test", 60_000) as lease,
        PoolWatch(Reach(url=url), "timed") as watch,
    ):
        watch.look()
        lease.allocate("one", 20)
        lines: list[str] = []
        for frame in view_frames(watch, url):
            lines = shown(frame, 140)
            if any("allocate" in line for line in lines):
                break
    [line] = [line for line in lines if "allocate" in line]
    name, num_calls, p50, unit, *_ = line[line.index("allocate") :].split()
    assert (name, unit) == ("allocate", "ms")
    assert int(num_calls) >= 1
    assert float(p50) > 0


def test_a_sign_of_the_map_is_what_most_of_its_blocks_are() -> None:
    codes = bytes([1, 1, 4, 4, 4, 3, 4, 1])
    assert list(run_states(codes, 3)) == [State.FREE, State.HELD_CACHED, State.HELD_CACHED]


@pytest.mark.parametrize("num_blocks", [1, 40, 41, 241, 1_000_003])
def test_a_map_has_a_few_lines_whatever_the_size_of_the_pool(num_blocks: int) -> None:
    drawn = shown(PoolMap(make_map(bytes([State.HELD]) * num_blocks)), 40)
    lines = [line for line in drawn if set(line) == {"▒"}]
    assert 1 <= len(lines) <= MAX_LINES
    assert all(len(line) == 40 for line in lines[:-1])


def test_a_map_is_drawn_in_ascii_where_there_is_nothing_else() -> None:
    drawn = shown(PoolMap(make_map(bytes(State))), 80, encoding="ascii")
    assert drawn[:2] == ["5 blocks, each of them", "0.-=#"]


@pytest.mark.parametrize("width", [40, 60, 80, 110])
def test_a_pool_fits_a_narrow_terminal(width: int, url: str) -> None:
    name = f"narrow-{width}"
    make_pool(url, name)
    with Client(url) as client, client.pool(name).lease("a holder of a long name " * 3, 60_000) as lease:
        hold(lease)
        look = Look(0.0, seen(url, name))
    lines = shown(pool_view(look, None, width), width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for expected in ("3.0 %", "█", "a holder", "expires", "worker"):
        assert expected in text


def test_a_low_screen_shows_fewer_holders_and_says_how_many_there_are(url: str) -> None:
    make_pool(url, "many")
    with Client(url) as client:
        leases = [client.pool("many").lease(f"holder-{number:02}", 60_000) for number in range(12)]
        look = Look(0.0, seen(url, "many"))
        for lease in leases:
            lease.release()
    low, high = (shown(pool_view(look, None, 80, height), 80) for height in (24, None))
    assert any("holder, 3 of 12" in line for line in low)
    assert max(number for number, line in enumerate(low) if "holder-" in line) < 23  # a title stands above
    assert any("holder, 10 of 12" in line for line in high)


def test_no_holder_steers_what_reads_the_output(url: str) -> None:
    make_pool(url, "steered")
    with Client(url) as client, client.pool("steered").lease("\x1b[2Jgone\x07", 60_000):
        done = run("top", "steered", "--url", url, "--looks", "2", "--interval-s", "0.1")
    assert done.returncode == 0, done.stderr
    assert "?[2Jgone?" in done.stdout
    assert done.stdout.replace("\n", "").isprintable()


def test_top_waits_for_the_server_of_a_pool_until_it_is_back(tmp_path: Path) -> None:
    with running_server("--data-dir", str(tmp_path)) as server:
        make_pool(server.url, "kept")
        watch = PoolWatch(Reach(url=server.url), "kept")
        looks = view_frames(watch, server.url)
        next(looks)
        server.stop()
        assert "no answer since" in shown(next(looks), 140)[0]
    with watch, running_server("--data-dir", str(tmp_path), "--port", str(server.port)):
        lines = shown(next(looks), 140)
    assert "no answer since" not in lines[0]
    assert any(line.split()[:1] == ["kept"] for line in lines)


def test_top_ends_when_its_pool_is_deleted(url: str) -> None:
    make_pool(url, "deleted")
    with Client(url) as client, PoolWatch(Reach(url=url), "deleted") as watch:
        looks = view_frames(watch, url)
        next(looks)
        client.pool("deleted").delete()
        with pytest.raises(PoolNotFound, match="'deleted'"):
            next(looks)


def test_top_of_a_missing_pool_says_where_to_look(url: str) -> None:
    done = invoke("top", "nowhere", "--url", url)
    assert done.exit_code == 1
    assert "'nowhere'" in done.stderr
    assert f"blockyard pools --url {url}" in done.stderr


def test_top_of_what_no_pool_can_be_called_is_refused(url: str) -> None:
    done = invoke("top", "a/b", "--url", url)
    assert done.exit_code == 1
    assert "'a/b'" in done.stderr


def test_top_of_a_pool_says_that_nobody_answers() -> None:
    done = invoke("top", "some", "--url", UNREACHABLE)
    assert done.exit_code == 1
    assert f"no answer from a server at {UNREACHABLE}" in done.stderr


def test_the_help_of_top_has_an_example_with_a_pool() -> None:
    assert "  blockyard top llama-70b\n" in invoke("top", "--help").stdout
