"""The example of two processes: what it serves is what the same model makes on an ordinary cache."""

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from blockyard.client import Client
from examples import two_processes
from examples.two_processes.command_line import ROWS
from examples.two_processes.comparison import TOLERANCE, largest_difference
from examples.two_processes.launcher import serve
from examples.two_processes.model import Transformer
from examples.two_processes.model_config import MODELS
from examples.two_processes.reports import Report
from examples.two_processes.settings import Settings
from server_process import running_server
from worker.made_pools import CLIENTS

PLENTY = 2_000
"""Blocks for all that a run ever computes."""


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with running_server("--log-level", "warning") as server:
        yield server.url


@cache
def run(url: str, settings: Settings) -> Report:
    """One run; tests that claim different things of it share it."""
    return serve(url, settings, lambda _: None)


@cache
def difference(url: str, settings: Settings) -> float:
    """Of all logits of the run to those of a contiguous cache."""
    model = Transformer(settings.model_config, settings.seed)
    finished = [each for served in run(url, settings).rounds for each in served.finished]
    return largest_difference(model, finished)


def num_requests(model: str) -> int:
    """As many as the README shows of the model that it shows, half of them of the others."""
    return 50 if model == Settings().model else 25


def scarce(model: str) -> Settings:
    """Prompts that share prefixes, and too few blocks for those that run together."""
    return Settings(model=model, num_rounds=1, num_requests=num_requests(model))


def plenty(model: str) -> Settings:
    """The same twice, and blocks for all."""
    return Settings(model=model, num_blocks=PLENTY, num_requests=num_requests(model))


def swapped(model: str) -> Settings:
    return Settings(model=model, num_rounds=1, num_requests=16, swap_blocks_at_step=20)


def killed(model: str) -> Settings:
    return Settings(model=model, num_rounds=1, num_requests=25, num_blocks=100, kill_worker_at_step=30)


@pytest.mark.parametrize("model", MODELS)
def test_logits_are_those_of_a_contiguous_cache_though_sequences_are_preempted(
    server_url: str, model: str
) -> None:
    (served,) = run(server_url, scarce(model)).rounds
    assert served.num_requests == num_requests(model)
    assert served.num_preemptions > 0
    assert difference(server_url, scarce(model)) < TOLERANCE


@pytest.mark.parametrize("model", MODELS)
def test_prefixes_are_found_though_blocks_are_evicted(server_url: str, model: str) -> None:
    (served,) = run(server_url, scarce(model)).rounds
    assert served.num_evicted_blocks > scarce(model).num_blocks
    assert served.num_cached_tokens > served.num_prompt_tokens / 10


def test_copied_blocks_hold_what_hits_inside_a_block_go_on_from(server_url: str) -> None:
    (served,) = run(server_url, scarce("recurrent")).rounds
    assert served.num_copied_blocks > 10


@pytest.mark.parametrize("model", MODELS)
def test_the_second_time_most_of_a_prompt_is_found(server_url: str, model: str) -> None:
    first, second = run(server_url, plenty(model)).rounds
    assert first.num_cached_tokens < second.num_cached_tokens
    assert second.num_cached_tokens > 0.8 * second.num_prompt_tokens
    assert difference(server_url, plenty(model)) < TOLERANCE


@pytest.mark.parametrize("model", MODELS)
def test_a_swapped_block_id_shows_in_the_logits(server_url: str, model: str) -> None:
    assert run(server_url, swapped(model)).was_fault_planted
    assert difference(server_url, swapped(model)) > 100 * TOLERANCE


@pytest.mark.parametrize("model", ["windows", "hybrid"])
def test_a_killed_worker_comes_back_in_another_epoch_and_the_logits_are_right(
    server_url: str, model: str
) -> None:
    report = run(server_url, killed(model))
    assert report.num_lost_workers == 1
    first, second = sorted({admission.epoch for admission in report.admissions})
    assert second > first
    assert sum(served.num_requests for served in report.rounds) == 25
    assert difference(server_url, killed(model)) < TOLERANCE


@pytest.mark.parametrize("model", ["windows", "hybrid"])
def test_nothing_that_a_killed_worker_computed_is_found(server_url: str, model: str) -> None:
    """What was found later was computed later: the new memory is full of NaN, and no logit became one."""
    admissions = run(server_url, killed(model)).admissions
    epoch = admissions[-1].epoch
    before = [each for each in admissions if each.epoch < epoch]
    after = [each for each in admissions if each.epoch == epoch]
    at_once = [each for each in after if each.step == after[0].step]
    assert any(each.num_cached_tokens for each in before)
    assert not any(each.num_cached_tokens for each in at_once)
    assert any(each.num_cached_tokens for each in after)


def test_the_scheduler_process_never_imports_torch() -> None:
    code = "import sys, examples.two_processes.scheduler_process; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=CLIENTS, check=False).returncode == 0


@pytest.mark.parametrize(("fault", "status"), [((), 0), (("--swap-blocks-at-step", "8"), 1)])
def test_the_command_tells_whether_logits_are_right(
    server_url: str, fault: tuple[str, ...], status: int
) -> None:
    options = ["--url", server_url, "--num-requests", "6", "--num-rounds", "1", *fault]
    command = [sys.executable, "-m", "examples.two_processes", *options]
    ran = subprocess.run(command, cwd=CLIENTS, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (status, "")
    assert ("WRONG" in ran.stdout) == bool(status)


def test_the_command_leaves_no_pool_behind(server_url: str) -> None:
    run(server_url, swapped("windows"))
    with Client(server_url) as client:
        assert list(client.pools()) == []


def test_readme_shows_what_the_example_prints(server_url: str) -> None:
    readme = (Path(two_processes.__path__[0]) / "README.md").read_text()
    (served,) = run(server_url, scarce("windows")).rounds
    shown = dict(re.findall(r"^ (\w.*?\w) {2,}([\d,]+) +[\d,]+$", readme, re.MULTILINE))
    assert shown == {name: f"{getattr(served, attribute):,}" for name, attribute in ROWS}
    _, second = run(server_url, plenty("windows")).rounds
    assert f"{second.num_cached_tokens:,} of its {second.num_prompt_tokens:,} prompt tokens" in readme
