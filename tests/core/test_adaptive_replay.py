"""Adaptive eviction is replayed to the bit: in this process, from a snapshot, and in another process."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import cbor2

from blockyard.core.config import Eviction, PoolConfig, Publish
from blockyard.core.pool import Pool
from core.engine_day import EngineDay
from core.recorded_cases import recorded_cases
from core.worked_pool import group

NUM_CALLS = 400


def make_day() -> EngineDay:
    config = PoolConfig.of(
        num_blocks=120,
        groups=(group("full_attention"), group("sliding_window", sliding_window=9)),
        publish=Publish.ON_COMMIT,
        max_model_len=250,
        eviction=Eviction.ADAPTIVE,
    )
    return EngineDay(config, "adaptive")


def digest_of(pool: Pool) -> str:
    return hashlib.sha256(cbor2.dumps(pool.snapshot())).hexdigest()


def digest_of_a_day() -> str:
    day = make_day()
    for _ in range(NUM_CALLS):
        day.call()
    return digest_of(day.pool)


def test_a_pool_that_is_restored_in_the_middle_evicts_what_the_first_one_does() -> None:
    """In the end both are equal to the bit."""
    first, second = make_day(), make_day()
    for call in range(NUM_CALLS):
        if call % 100 == 50:
            second.pool = Pool.restore(cbor2.loads(cbor2.dumps(second.pool.snapshot())))
        first.call()
        second.call()
        if call % 10 == 0:
            assert [*first.pool.store.queue] == [*second.pool.store.queue], call
    assert digest_of(first.pool) == digest_of(second.pool)
    assert first.pool.counters.num_evicted_blocks > 100


def test_no_process_evicts_otherwise_for_the_seed_of_its_hashes() -> None:
    program = "from core.test_adaptive_replay import digest_of_a_day; print(digest_of_a_day())"
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest_of_a_day()


def test_all_that_was_recorded_is_of_least_recently_used() -> None:
    cases = [*recorded_cases("sequences.json"), *recorded_cases("kinds.json")]
    assert {case.config.eviction for case in cases} == {Eviction.LRU}
