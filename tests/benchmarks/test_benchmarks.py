"""Every benchmark runs and reports; none is held to a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.claims.claims import NAMES

HERE = Path(__file__).parent
SMALL = {
    "bench_cluster.py": ["--num-blocks", "2000", "--take-overs", "1", "--seconds", "0.3", "--rounds", "1"],
    "bench_cluster_size.py": ["--nodes", "5", "--pools", "20", "--num-blocks", "2000"],
    "bench_eviction.py": ["--requests", "100", "--workloads", "chat", "loop", "--capacities", "300"],
    "bench_events.py": ["--subscribers", "5", "--turns", "1", "--turn-s", "0.2"],
    "bench_hashing.py": ["--num-tokens", "4096", "--repeat", "1"],
    "bench_planning.py": ["--rounds", "1", "--layers", "24"],
    "bench_journal.py": ["--calls", "20", "--num-blocks", "2001", "--sequences", "10", "--commands", "100"],
    "bench_overload.py": ["--connections", "8", "--blocks", "100", "--seconds", "0.5"],
    "bench_pool.py": ["--num-blocks", "2000"],
    "bench_server.py": ["--starts", "1"],
    "bench_step.py": ["--sequences", "8", "--steps", "20"],
    "bench_worker.py": ["--layers", "2", "--num-blocks", "64", "--rounds", "1"],
}
REPORTS = {"--json": "figures.json", "--plot": "figures.png", "--markdown": "figures.md"}


def test_every_benchmark_is_tried() -> None:
    assert {path.name for path in HERE.glob("bench_*.py")} == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_prints_a_table_and_reports_json(name: str, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, HERE / name, *SMALL[name], "--json", path],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()
    assert json.loads(path.read_text())


def test_without_a_file_json_is_in_place_of_the_table() -> None:
    done = subprocess.run(
        [sys.executable, HERE / "bench_pool.py", *SMALL["bench_pool.py"], "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout)


def test_all_claims_are_measured_side_by_side_and_reported(tmp_path: Path) -> None:
    files = {option: tmp_path / name for option, name in REPORTS.items()}
    options = [str(text) for pair in files.items() for text in pair]
    done = subprocess.run(
        [sys.executable, HERE, "--quick", *options], check=True, capture_output=True, text=True
    )
    report = json.loads(files["--json"].read_text())
    assert {figure["claim"] for figure in report["figures"]} == set(NAMES)
    assert all(figure["value"] is not None or figure["note"] for figure in report["figures"])
    assert files["--plot"].read_bytes().startswith(b"\x89PNG")
    for name in NAMES:
        assert name in done.stdout
        assert f"| {name} |" in files["--markdown"].read_text()
