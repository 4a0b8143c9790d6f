"""A server that ends, however it ends, and is started again on its data directory."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

from blockyard.client import NO_RETRY, BlockyardError, Client, Lease, NotReady, PoolNotFound
from blockyard.core.commands import RegisterWorker
from blockyard.core.ids import WorkerId
from blockyard.server.journal.sqlite_journal import SqliteJournal
from journal.stored import batch, flip, opened, record
from server_process import READY, ServerProcess, first_line, require, run, running_server, start
from waiting import wait_for

HASHES = [bytes([number]) * 32 for number in range(1, 6)]
LAYER = {"kind": "full_attention", "block_size": 4, "num_kv_heads": 2, "head_size": 8, "dtype": "float16"}


@contextmanager
def serving(path: Path, *options: str) -> Iterator[ServerProcess]:
    with running_server("--data-dir", str(path), "--log-level", "warning", *options) as server:
        yield server


@contextmanager
def killed_at_the_end(path: Path, *options: str) -> Iterator[ServerProcess]:
    """A server that is killed when the block ends."""
    command = ["serve", "--port", "0", "--data-dir", str(path), "--log-level", "warning", *options]
    with start(*command, stderr=None) as process:
        try:
            yield ServerProcess(first_line(require(process.stdout)).removeprefix(READY).strip(), process)
        finally:
            process.kill()


def use(server: ServerProcess) -> dict[str, Any]:
    """Make a pool, hold something of each kind in it; what a caller could read of it."""
    with Client(server.url) as client:
        pool = client.create_pool("pool", num_blocks=100, block_size=4, worker_timeout_ms=600_000)
        register = {"worker_id": "w", "rank": 0, "device": "cpu", "incarnation": "a"}
        assert server.call("POST", "/v1/pools/pool/workers", register)[0] == 200
        lease = pool.lease("me", 60_000, renew=False)
        lease.allocate("cached", 20, block_hashes=HASHES)
        lease.commit("cached", 20)
        lease.free(["cached"])
        lease.allocate("held", 9, block_hashes=HASHES[:2])
        lease.allocate_blocks(3)
        pool.pin(60_000, block_hashes=HASHES[:3], hard=True)
        pool.pin(60_000, block_hashes=HASHES)
    return readable(server)


def readable(server: ServerProcess) -> dict[str, Any]:
    """All that can be read of the pool, but for times."""
    read = {
        name: server.call("GET", f"/v1/pools/pool/{name}")[1]
        for name in ("stats", "audit", "sequences/held", "pins", "workers")
    }
    for pin in read["pins"]["pins"]:
        assert pin.pop("expires_at_ms") > 0
    for worker in read["workers"]["workers"]:
        del worker["silent_ms"]
    assert read["audit"]["ok"]
    return read


def test_after_a_kill_all_is_as_its_clients_were_told(tmp_path: Path) -> None:
    with killed_at_the_end(tmp_path) as server:
        before = use(server)
    with serving(tmp_path) as server:
        assert readable(server) == before
        status, found = server.call(
            "POST",
            "/v1/pools/pool/lookup",
            {"num_tokens": 21, "block_hashes": [each.hex() for each in HASHES]},
        )
        assert (status, found["num_cached_tokens"]) == (200, 20)


def test_so_it_is_after_a_clean_stop_and_after_a_second_kill(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        before = use(server)
    with killed_at_the_end(tmp_path) as server:
        assert readable(server) == before
    with serving(tmp_path, "--sync", "full") as server:
        assert readable(server) == before


def test_a_volatile_server_writes_nothing_and_forgets_all(tmp_path: Path) -> None:
    for _ in range(2):
        with serving(tmp_path / "data", "--volatile") as server, Client(server.url) as client:
            with pytest.raises(PoolNotFound):
                client.pool("pool").describe()
            client.create_pool("pool", num_blocks=100, block_size=4)
    assert not (tmp_path / "data").exists()


def test_a_repeat_after_a_restart_gets_the_first_reply(tmp_path: Path) -> None:
    path = "/v1/pools/pool"
    with killed_at_the_end(tmp_path) as server:
        server.call("PUT", path, {"num_blocks": 100, "block_size": 4})
        lease = server.call("POST", f"{path}/leases", {"holder": "me", "ttl_ms": 60_000}, Idempotency_Key="l")
        ask = {"lease_id": lease[1]["lease_id"], "sequence_id": "s", "num_tokens": 9}
        allocated = server.call("POST", f"{path}/allocate", ask, Idempotency_Key="a")
        refused = server.call("POST", f"{path}/allocate", {**ask, "num_tokens": 900}, Idempotency_Key="r")
        step = {"lease_id": ask["lease_id"], "step_id": 7, "admit": [{"sequence_id": "t", "num_tokens": 5}]}
        stepped = server.call("POST", f"{path}/step", step)
    with serving(tmp_path) as server:
        again = server.call("POST", f"{path}/leases", {"holder": "me", "ttl_ms": 60_000}, Idempotency_Key="l")
        assert again[1]["lease_id"] == lease[1]["lease_id"]
        assert server.call("POST", f"{path}/allocate", ask, Idempotency_Key="a") == allocated
        assert (
            server.call("POST", f"{path}/allocate", {**ask, "num_tokens": 900}, Idempotency_Key="r")
            == refused
        )
        assert server.call("POST", f"{path}/step", step) == stepped
        assert server.call("POST", f"{path}/allocate", ask, Idempotency_Key="b")[1]["block_ids"] == [[]]


def test_a_lease_gets_its_time_anew_after_a_restart(tmp_path: Path) -> None:
    with killed_at_the_end(tmp_path) as server, Client(server.url) as client:
        lease = client.create_pool("pool", num_blocks=100, block_size=4).lease("me", 2_500, renew=False)
        lease.allocate("held", 9)
    time.sleep(2.6)  # longer than the lease stands
    with serving(tmp_path) as server:
        assert server.call("GET", "/v1/pools/pool/sequences/held")[0] == 200
        wait_for(lambda: server.call("GET", "/v1/pools/pool/stats")[1]["num_leases"] == 0)
        assert server.call("GET", "/v1/pools/pool/sequences/held")[0] == 404


def test_a_lease_that_had_run_out_is_not_given_time_again(tmp_path: Path) -> None:
    with killed_at_the_end(tmp_path) as server, Client(server.url) as client:
        pool = client.create_pool("pool", num_blocks=100, block_size=4)
        pool.lease("me", 1_000, renew=False).allocate("held", 9)
        wait_for(lambda: pool.stats().num_leases == 0)
    with serving(tmp_path) as server:
        assert server.call("GET", "/v1/pools/pool/sequences/held")[0] == 404


def test_a_pool_of_a_plan_and_its_workers_come_back(tmp_path: Path) -> None:
    plan = {"workers": [{"available_memory_bytes": 2**16, "layers": {"0": LAYER}}], "max_model_len": 64}
    with killed_at_the_end(tmp_path) as server, Client(server.url) as client:
        pool = client.create_pool("planned", plan=plan, worker_timeout_ms=1_500)
        pool.register_worker("w", rank=0, device="cpu", incarnation="a")
        planned = server.call("GET", "/v1/pools/planned/plan")
    time.sleep(1.6)  # longer than a worker may be silent
    with serving(tmp_path) as server, Client(server.url) as client:
        assert server.call("GET", "/v1/pools/planned/plan") == planned
        pool = client.create_pool("planned", plan=plan, worker_timeout_ms=1_500)
        assert pool.heartbeat("w", "a").epoch == 1
        assert pool.stats().num_lost_workers == 0


def test_a_deleted_pool_stays_deleted_and_its_name_can_be_used_anew(tmp_path: Path) -> None:
    with killed_at_the_end(tmp_path) as server, Client(server.url) as client:
        client.create_pool("pool", num_blocks=100, block_size=4).delete()
        client.create_pool("anew", num_blocks=100, block_size=4).delete()
        with client.create_pool("anew", num_blocks=50, block_size=8).lease("me") as lease:
            lease.allocate("one", 8)
    with serving(tmp_path) as server, Client(server.url) as client:
        assert [pool.pool for pool in client.pools()] == ["anew"]
        assert client.pool("anew").describe().num_blocks == 50


def test_snapshots_are_taken_by_number_and_what_they_have_is_forgotten(tmp_path: Path) -> None:
    with killed_at_the_end(tmp_path, "--snapshot-commands", "50") as server:
        use(server)
        with Client(server.url) as client, client.pool("pool").lease("other", 60_000, renew=False) as lease:
            for number in range(200):
                lease.allocate(f"{number}", 9)
                lease.free([f"{number}"])
        wait_for(lambda: any((tmp_path / "snapshots").glob("*-*.snapshot")))
        wait_for(lambda: _num_records(tmp_path) < 200)
        before = readable(server)
    assert len(list((tmp_path / "snapshots").glob("*.snapshot"))) == 1
    with serving(tmp_path) as server:
        assert readable(server) == before


def _num_records(path: Path) -> int:
    shown = run("journal", "--data-dir", path, "--json")
    assert shown.returncode == 0, shown.stderr
    return len(shown.stdout.splitlines())


def test_snapshots_are_taken_by_age(tmp_path: Path) -> None:
    with serving(tmp_path, "--snapshot-interval-s", "1") as server:
        use(server)
        wait_for(lambda: any((tmp_path / "snapshots").glob("*-*.snapshot")))


def test_snapshots_are_taken_by_size(tmp_path: Path) -> None:
    with serving(tmp_path, "--snapshot-mib", "1") as server, Client(server.url) as client:
        pool = client.create_pool("pool", num_blocks=100_000, block_size=4)
        with pool.lease("me", 60_000, renew=False) as lease:
            for number in range(4):
                lease.allocate(f"{number}", 40_000, block_hashes=[os.urandom(32) for _ in range(10_000)])
            wait_for(lambda: any((tmp_path / "snapshots").glob("*-*.snapshot")))


def test_a_command_that_failed_by_a_mistake_of_ours_stops_neither_a_start_nor_a_snapshot(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as server:
        before = use(server)
    with opened(tmp_path) as journal:
        (pool,) = journal.pools()
        command = RegisterWorker(worker_id=WorkerId("w"), rank=None, device="", incarnation="")  # type: ignore[arg-type]
        number = journal.last_number(pool.key) + 1
        journal.append([record(pool.key, number, batch(command))])
    with serving(tmp_path, "--snapshot-interval-s", "1") as server:
        assert readable(server) == before
        wait_for(lambda: any((tmp_path / "snapshots").glob("*-*.snapshot")))


@pytest.fixture
def long_journal(tmp_path: Path) -> Path:
    """A data directory whose replay takes a while: token ids are hashed once more."""
    with killed_at_the_end(tmp_path) as server, Client(server.url) as client:
        pool = client.create_pool("pool", num_blocks=100_000, block_size=4)
        with pool.lease("me", 60_000, renew=False) as lease:
            for number in range(300):
                lease.allocate(f"{number}", 4_000, token_ids=range(4_000))
                lease.free([f"{number}"])
    return tmp_path


def test_until_the_replay_is_through_the_server_says_how_far_it_is(long_journal: Path) -> None:
    command = ("serve", "--port", "0", "--data-dir", long_journal, "--log-level", "warning")
    with start(*command, stderr=None) as process:
        port = _listening_port(process)
        seen: list[dict[str, Any]] = []
        while not seen or seen[-1]["status"] == 503:
            seen.append(_get(f"http://127.0.0.1:{port}/readyz"))
        assert _get(f"http://127.0.0.1:{port}/healthz")["status"] == 200
        process.terminate()
    told = [each for each in seen if "num_commands" in each and each["num_commands"] > 0]
    assert told
    assert all(each["code"] == "not_ready" and each["retry_after_ms"] > 0 for each in told)
    assert told[0]["num_replayed_commands"] <= told[-1]["num_replayed_commands"] <= told[-1]["num_commands"]


def _listening_port(process: subprocess.Popen[str]) -> int:
    """Where it listens, before it says so."""
    while True:
        with Path(f"/proc/{process.pid}/net/tcp").open() as table:
            sockets = {
                line.split()[9]: line.split()[1] for line in list(table)[1:] if line.split()[3] == "0A"
            }
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                inode = str(link.readlink()).removeprefix("socket:[").removesuffix("]")
            except OSError:
                continue
            if inode in sockets:
                return int(sockets[inode].rsplit(":", 1)[1], 16)
        time.sleep(0.005)


def _get(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=30) as reply:
            return {"status": reply.status}
    except urllib.error.HTTPError as error:
        with error:
            return {**json.loads(error.read()), "status": error.code}
    except urllib.error.URLError:
        return {"status": 503}


def test_a_server_that_is_stopped_while_it_replays_stops(long_journal: Path) -> None:
    with start("serve", "--port", "0", "--data-dir", long_journal) as process:
        port = _listening_port(process)
        while _get(f"http://127.0.0.1:{port}/healthz")["status"] != 200:
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    assert (process.returncode, output) == (0, "")


def test_what_many_ask_at_a_time_is_written_together(tmp_path: Path) -> None:
    num_callers = 16
    with serving(tmp_path) as server, contextlib.ExitStack() as stack:
        stack.enter_context(Client(server.url)).create_pool("pool", num_blocks=100, block_size=4)
        body = b'{"holder": "me", "ttl_ms": 60000}'
        head = f"POST /v1/pools/pool/leases HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        callers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 30))
            for _ in range(num_callers)
        ]
        for caller in callers:  # else the server takes them in one by one, and their requests with them
            caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += caller.recv(65_536)
        server.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.process.pid, os.WSTOPPED)  # else it may still answer some of them
        for caller in callers:
            caller.sendall(head.encode() + body)
        server.process.send_signal(signal.SIGCONT)
        assert all(caller.recv(65_536).startswith(b"HTTP/1.1 201") for caller in callers)
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as reply:
            text = reply.read().decode()
    figures = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line[0] != "#"}
    name = "blockyard_journal_append_commands"
    assert figures[f"{name}_sum"] == num_callers
    assert figures[f"{name}_count"] < num_callers


def test_one_pool_whose_snapshot_fails_leaves_the_others_theirs(tmp_path: Path) -> None:
    with serving(tmp_path, "--snapshot-commands", "5") as server, Client(server.url) as client:
        for name in ("one", "two"):
            client.create_pool(name, num_blocks=100, block_size=4)
        (tmp_path / "snapshots" / "1-1000.snapshot").mkdir()  # nothing that could be read
        for name in ("one", "two"):
            with client.pool(name).lease("me", 60_000, renew=False) as lease:
                for number in range(20 if name == "one" else 10):
                    lease.allocate(f"{number}", 4)
        wait_for(lambda: any((tmp_path / "snapshots").glob("2-*.snapshot")))
        (tmp_path / "snapshots" / "1-1000.snapshot").rmdir()


def test_a_pool_may_be_deleted_while_it_is_used(tmp_path: Path) -> None:
    def free_for_ever(url: str, ended: threading.Event) -> None:
        with Client(url, retries=NO_RETRY) as client, contextlib.suppress(BlockyardError):
            lease = client.pool("pool").lease("me", 60_000, renew=False)
            while not ended.is_set():
                lease.free(["nothing"])

    with killed_at_the_end(tmp_path) as server, Client(server.url) as client:
        ended = threading.Event()
        for _ in range(5):
            pool = client.create_pool("pool", num_blocks=100, block_size=4)
            users = [threading.Thread(target=free_for_ever, args=(server.url, ended)) for _ in range(4)]
            for user in users:
                user.start()
            time.sleep(0.1)
            pool.delete(force=True)
            for user in users:
                user.join()
    with serving(tmp_path) as server, Client(server.url) as client:
        assert client.pools() == []


def test_what_cannot_be_written_down_is_refused_and_all_goes_on(tmp_path: Path) -> None:
    with killed_at_the_end(tmp_path) as server:
        use(server)
        lease = server.call("POST", "/v1/pools/pool/leases", {"holder": "me", "ttl_ms": 60_000})[1][
            "lease_id"
        ]
        step = {"lease_id": lease, "free": {"sequences": [2**64]}}
        assert server.call("POST", "/v1/pools/pool/step", step)[0] == 422
        ask = {"lease_id": lease, "sequence_id": "after", "num_tokens": 9}
        assert server.call("POST", "/v1/pools/pool/allocate", ask)[0] == 200
    with serving(tmp_path) as server:
        assert server.call("GET", "/v1/pools/pool/sequences/after")[0] == 200


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "surrogate"])
def test_a_plan_that_could_not_be_read_again_is_refused(tmp_path: Path, encoding: str) -> None:
    layers = {"\\ud800" if encoding == "surrogate" else "0": LAYER}
    plan = {"workers": [{"available_memory_bytes": 2**16, "layers": layers}], "max_model_len": 64}
    body = json.dumps({"plan": plan}).replace("\\\\", "\\")
    raw = body.encode("utf-8" if encoding == "surrogate" else encoding)
    with serving(tmp_path) as server:
        request = urllib.request.Request(
            f"{server.url}/v1/pools/p", raw, {"Content-Type": "application/json"}, method="PUT"
        )
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=30)
        with caught.value as refused:
            assert refused.code == 422
    with serving(tmp_path) as server:
        assert server.call("GET", "/v1/pools")[1] == {"pools": []}


def test_an_audit_of_files_finds_a_lost_end(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        use(server)
    assert run("audit", "--data-dir", tmp_path).returncode == 0
    with opened(tmp_path) as journal:
        journal._database.execute("DELETE FROM records WHERE position = (SELECT max(position) FROM records)")
    found = run("audit", "--data-dir", tmp_path)
    assert found.returncode == 1
    assert "its end is lost" in found.stderr


# What stops a start


def failed_start(path: Path) -> str:
    done = run("serve", "--port", "0", "--data-dir", path)
    assert done.returncode == 1
    assert done.stdout == ""
    return done.stderr


def test_a_second_server_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        use(server)
        complaint = failed_start(tmp_path)
        assert f"belongs to another server (process {server.process.pid})" in complaint
        assert readable(server)["audit"]["ok"]


def test_a_damaged_snapshot_stops_the_start_with_what_to_do(tmp_path: Path) -> None:
    with serving(tmp_path, "--snapshot-interval-s", "1") as server:
        use(server)
        wait_for(lambda: any((tmp_path / "snapshots").glob("*-*.snapshot")))
    (snapshot,) = (tmp_path / "snapshots").glob("*.snapshot")
    flip(snapshot, 100)
    complaint = failed_start(tmp_path)
    assert "its checksum does not fit. Restore the data directory from a backup" in complaint
    assert run("audit", "--data-dir", tmp_path).returncode == 1


def test_a_record_that_is_missing_stops_the_start(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        use(server)
    with opened(tmp_path) as journal:
        journal._database.execute("DELETE FROM records WHERE position & 1023 = 3")
    assert "commands 3 to 3 of pool 'pool' are missing" in failed_start(tmp_path)


def test_a_record_of_another_version_stops_the_start(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        use(server)
    with opened(tmp_path) as journal:
        _append_unknown(journal)
    assert "was written by another version" in failed_start(tmp_path)


def _append_unknown(journal: SqliteJournal) -> None:
    (pool,) = journal.pools()
    payload = ormsgpack.packb([[0, "Teleport", {}, None, None]])
    journal.append([record(pool.key, journal.last_number(pool.key) + 1, payload)])


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("only a superuser can mount a file system")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def allocate_for_ever(lease: Lease, acknowledged: list[list[list[int]]]) -> None:
    while True:
        hashes = [os.urandom(32) for _ in range(100)]
        allocated = lease.allocate(f"{len(acknowledged)}", 1_600, block_hashes=hashes)
        acknowledged.append(allocated.block_ids)


@pytest.mark.parametrize("sync", ["process", "full"])
def test_a_full_disk_ends_the_server_and_nothing_acknowledged_is_lost(small_disk: Path, sync: str) -> None:
    acknowledged: list[list[list[int]]] = []
    with killed_at_the_end(small_disk / "data", "--sync", sync) as server:
        with Client(server.url, retries=NO_RETRY) as client:
            pool = client.create_pool("pool", num_blocks=1_000_000, block_size=16)
            lease = pool.lease("me", 60_000, renew=False)
            with pytest.raises(NotReady, match="the journal could not be written"):
                allocate_for_ever(lease, acknowledged)
        assert server.process.wait(10) == os.EX_IOERR
    assert len(acknowledged) > 100
    assert run("audit", "--data-dir", small_disk / "data").returncode == 0
    _grow(small_disk)
    with serving(small_disk / "data") as server, Client(server.url) as client:
        pool = client.pool("pool")
        assert [pool.sequence(f"{number}").block_ids for number in range(len(acknowledged))] == acknowledged
        assert pool.stats().num_sequences == len(acknowledged)


def _grow(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
