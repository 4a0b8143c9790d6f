"""A worker in its pool: it registers, keeps its place, notices when it has lost it, and leaves."""

import gc
import os
import signal
import threading
import time

import pytest

from blockyard.client import Client, InvalidRequest, WorkerReplaced
from blockyard.core.errors import PlanNotFound
from blockyard.worker import Worker
from client.peers import elsewhere, peer
from server_process import running_server
from worker.made_pools import plan, wait_until


def test_a_worker_allocates_what_its_rank_of_the_plan_says(client: Client, url: str, name: str) -> None:
    pool = client.create_pool(name, plan=plan(num_ranks=2))
    with Worker(url, name, rank=1) as worker:
        assert worker.memory.backing.nbytes == worker.memory.map.device_bytes == 2**16
        assert worker.memory.layers["1"].part("key").shape == (128, 2, 4, 8)
        (report,) = pool.workers()
        assert (report.worker_id, report.rank, report.device) == ("rank-1", 1, "cpu")


def test_a_worker_that_lives_is_never_lost(client: Client, url: str, name: str) -> None:
    pool = client.create_pool(name, plan=plan(), worker_timeout_ms=2_000)
    with Worker(url, name):
        until_s = time.monotonic() + 3
        while time.monotonic() < until_s:
            assert pool.stats().num_lost_workers == 0
            time.sleep(0.05)


def test_a_worker_that_is_closed_is_forgotten_and_what_it_cached_with_it(
    client: Client, url: str, name: str
) -> None:
    pool = client.create_pool(name, plan=plan())
    with Worker(url, name) as worker, pool.lease("me") as lease:
        lease.allocate("one", 8, token_ids=range(8))
        lease.commit("one", 8)
        assert pool.lookup(9, token_ids=range(9)).num_cached_tokens == 8
    assert worker.has_ended
    assert pool.workers() == []
    assert pool.lookup(9, token_ids=range(9)).num_cached_tokens == 0


def test_a_worker_keeps_and_leaves_its_place_where_the_first_node_is_gone(
    client: Client, url: str, name: str
) -> None:
    pool = client.create_pool(name, plan=plan(), worker_timeout_ms=600)
    with Worker(f"http://127.0.0.1:1,{url}", name):
        wait_until(lambda: pool.workers()[0].silent_ms > 100)
        wait_until(lambda: pool.workers()[0].silent_ms < 100)
    assert pool.workers() == []


def test_a_worker_follows_its_pool_to_the_owner(client: Client, url: str, name: str) -> None:
    pool = client.create_pool(name, plan=plan())
    with peer(elsewhere(url, 1)) as node:
        with Worker(node.url, name):
            assert len(pool.workers()) == 1
        assert pool.workers() == []


def test_a_restarted_worker_takes_its_own_place_and_ends_the_old_one(
    client: Client, url: str, name: str
) -> None:
    pool = client.create_pool(name, plan=plan(), worker_timeout_ms=500)
    with Worker(url, name) as old:
        old.check()
        with Worker(url, name) as new:
            assert new.epoch == 2
            wait_until(lambda: old.has_ended)
            with pytest.raises(WorkerReplaced):
                old.check()
            old.close()
            assert [report.incarnation for report in pool.workers()] == [new.incarnation]


def test_a_replaced_worker_that_does_not_know_it_yet_leaves_the_new_one_its_place(
    client: Client, url: str, name: str
) -> None:
    pool = client.create_pool(name, plan=plan())
    with Worker(url, name) as old, Worker(url, name) as new:
        old.close()
        assert [report.incarnation for report in pool.workers()] == [new.incarnation]


def test_a_second_worker_of_a_rank_is_refused_while_the_first_lives(
    client: Client, url: str, name: str
) -> None:
    client.create_pool(name, plan=plan())
    with Worker(url, name), pytest.raises(WorkerReplaced, match="'rank-0''s, which is alive"):
        Worker(url, name, worker_id="another")


def test_all_ranks_hear_of_a_new_epoch(client: Client, url: str, name: str) -> None:
    client.create_pool(name, plan=plan(num_ranks=2), worker_timeout_ms=1_500)
    with (
        Worker(url, name, rank=0) as other,
        Worker(url, name, rank=1) as first,
        client.pool(name).lease("me") as lease,
    ):
        lease.allocate("one", 8)
        first.close()
        assert first.epoch == 1
        with Worker(url, name, rank=1):
            wait_until(lambda: other.epoch > 1)
            other.check()


def test_a_worker_registers_again_in_a_pool_that_was_made_anew(client: Client, url: str, name: str) -> None:
    pool = client.create_pool(name, plan=plan(), worker_timeout_ms=300)
    with Worker(url, name) as worker:
        pool.delete()
        time.sleep(0.2)
        client.create_pool(name, plan=plan(), worker_timeout_ms=300)
        wait_until(lambda: [each.incarnation for each in pool.workers()] == [worker.incarnation])
        worker.check()


def test_a_worker_whose_memory_does_not_fit_the_pool_made_anew_ends(
    client: Client, url: str, name: str
) -> None:
    pool = client.create_pool(name, plan=plan(), worker_timeout_ms=300)
    with Worker(url, name) as worker:
        pool.delete()
        client.create_pool(name, plan=plan(layout="BLHNC"), worker_timeout_ms=300)
        wait_until(lambda: worker.has_ended)
        with pytest.raises(WorkerReplaced, match="another plan"):
            worker.check()
        wait_until(lambda: pool.workers() == [])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # its open sockets
def test_a_worker_that_nobody_refers_to_is_lost(client: Client, url: str, name: str) -> None:
    pool = client.create_pool(name, plan=plan(), worker_timeout_ms=200)
    worker = Worker(url, name)
    assert pool.stats().num_workers == 1
    del worker
    gc.collect()
    wait_until(lambda: pool.stats().num_lost_workers == 1)


def test_a_worker_of_a_pool_without_a_plan_is_refused_and_leaves_nothing_behind(
    client: Client, url: str, name: str
) -> None:
    pool = client.create_pool(name, num_blocks=8, block_size=4)
    before = set(threading.enumerate())
    with pytest.raises(PlanNotFound, match="create the pool with a plan"):
        Worker(url, name)
    assert pool.workers() == []
    assert set(threading.enumerate()) == before


def test_a_worker_that_is_closed_says_so_from_then_on(client: Client, url: str, name: str) -> None:
    client.create_pool(name, plan=plan())
    worker = Worker(url, name)
    worker.close()
    worker.close()
    for call in (worker.check, worker.beat):
        with pytest.raises(WorkerReplaced, match="is closed"):
            call()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # of `fork`: the child does little
def test_a_forked_child_leaves_the_worker_to_its_parent(client: Client, url: str, name: str) -> None:
    pool = client.create_pool(name, plan=plan())
    with Worker(url, name) as worker:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                with worker, pytest.raises(WorkerReplaced, match="not this process's"):
                    worker.beat()
                os._exit(0 if worker.has_ended else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [report.incarnation for report in pool.workers()] == [worker.incarnation]
        worker.beat()


def test_a_pool_that_waits_for_ages_has_its_worker_wait(client: Client, url: str, name: str) -> None:
    client.create_pool(name, plan=plan(), worker_timeout_ms=2**48)
    with Worker(url, name) as worker:
        worker.beat()
        time.sleep(0.2)
        assert worker._heartbeats._thread.is_alive()
        assert worker.heartbeat_interval_s == threading.TIMEOUT_MAX


def test_the_interval_is_that_of_the_pool_made_anew(client: Client, url: str, name: str) -> None:
    pool = client.create_pool(name, plan=plan(), worker_timeout_ms=60_000)
    with Worker(url, name) as worker:
        assert worker.heartbeat_interval_s == 12
        pool.delete()
        client.create_pool(name, plan=plan(), worker_timeout_ms=500)
        worker.beat()
        assert worker.heartbeat_interval_s == 0.1


def test_a_worker_of_no_rank_is_refused(client: Client, url: str, name: str) -> None:
    client.create_pool(name, plan=plan())
    with pytest.raises(InvalidRequest, match="has 1 ranks"):
        Worker(url, name, rank=1)


def test_a_heartbeat_that_fails_is_tried_again(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with running_server("--log-level", "warning") as server, Client(server.url) as own:
        own.create_pool(name, plan=plan(), worker_timeout_ms=500)
        with Worker(server.url, name) as worker:
            server.process.send_signal(signal.SIGSTOP)  # it stands still, and goes on
            wait_until(lambda: "a heartbeat failed, and is tried again" in caplog.text)
            server.process.send_signal(signal.SIGCONT)
            time.sleep(1)  # for what was sent while the server stood still, to count no longer
            wait_until(lambda: own.pool(name).workers()[0].silent_ms < 100)
            worker.check()
