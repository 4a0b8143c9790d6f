"""Every benchmark runs and reports; none is held to a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SMALL = {
    "bench_events.py": ["--subscribers", "5", "--turns", "1", "--turn-s", "0.2"],
    "bench_hashing.py": ["--num-tokens", "4096", "--repeat", "1"],
    "bench_planning.py": ["--rounds", "1", "--layers", "24"],
    "bench_journal.py": ["--calls", "20", "--num-blocks", "2001", "--sequences", "10", "--commands", "100"],
    "bench_pool.py": ["--num-blocks", "2000"],
    "bench_server.py": ["--starts", "1", "--calls", "20"],
    "bench_step.py": ["--sequences", "8", "--steps", "20"],
    "bench_worker.py": ["--layers", "2", "--num-blocks", "64", "--rounds", "1"],
}


def test_every_benchmark_is_tried() -> None:
    assert {path.name for path in HERE.glob("bench_*.py")} == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_reports_json(name: str) -> None:
    done = subprocess.run(
        [sys.executable, HERE / name, *SMALL[name], "--json"], check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout)


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_prints_a_table(name: str) -> None:
    done = subprocess.run(
        [sys.executable, HERE / name, *SMALL[name]], check=True, capture_output=True, text=True
    )
    assert len(done.stdout.splitlines()) > 3
