"""A server between well-behaved callers and hostile ones, and what became of both.

First the well-behaved are alone: that is the calm. Then the hostile ones come, and are ended; once their
leases have run out nothing may be left of them: no block, no open file, no memory.
"""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory

from server_process import TIMEOUT_S, ServerProcess, environment, running_server
from soak.server_watch import ServerWatch
from soak.settings import IDLE_S, LEASE_MS, OPTIONS, POOL, POOL_CONFIG, SERVED
from waiting import wait_for

TESTS = Path(__file__).parents[1]
WARM_UP_S = 2.0
"""Of the well-behaved, before the calm."""
MAX_GROWTH = 1.05
SLACK_BYTES = 16 * 2**20
"""Memory is flat where no tenth of the second half has more than the end of the first, times so much and with
so much added: an allocator of a process that has seen large bodies is no smoother."""

SPARE_FILES = Counter(journal=1)
"""Once the log was folded, SQLite keeps a further file of its journal open, for the next time."""

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakPlan:
    """How long, and by how many.

    Attributes:
        calm_s: How long the well-behaved are alone.
        hostile_s: How long the hostile ones are there as well.
    """

    calm_s: float
    hostile_s: float
    num_well_behaved: int
    num_hostile: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakResult:
    """What became of it.

    Attributes:
        num_calls: Of the well-behaved, in the calm and after it.
        calm_p99_ms, hostile_p99_ms: Of their calls, in the calm and beside the hostile ones.
        rss_bytes: The server's memory at the end of the first half, and in each tenth of the second.
        left_open: Files that are open at the end and were not at the start.
        statuses: Requests by outcome, as the server counts them.
        seen: What the hostile ones were answered, and how often.
        audits: Of both pools, at the end.
        faults: What must not have been; empty where all is well.
    """

    num_calls: tuple[int, int]
    calm_p99_ms: float
    hostile_p99_ms: float
    rss_bytes: list[int]
    left_open: dict[str, int]
    statuses: dict[str, int]
    seen: dict[str, int]
    audits: list[dict[str, object]]
    faults: list[str] = field(default_factory=list)

    @property
    def p99_ratio(self) -> float:
        """How many times as long the slowest hundredth of the well-behaved calls take beside hostile ones."""
        return self.hostile_p99_ms / self.calm_p99_ms


def soak(plan: SoakPlan, progress: Progress = lambda _: None) -> SoakResult:
    """Carry ``plan`` out.

    Args:
        plan: What to do.
        progress: Told now and then how many seconds of it have passed.
    """
    with TemporaryDirectory(prefix="soak-") as name, running_server(*OPTIONS) as server:
        for pool in (SERVED, POOL):
            assert server.call("PUT", pool, POOL_CONFIG)[0] == 201
        with ServerWatch(server.process.pid) as watch:
            return _soak(plan, server, watch, Path(name), progress)


def _soak(
    plan: SoakPlan, server: ServerProcess, watch: ServerWatch, folder: Path, progress: Progress
) -> SoakResult:
    files = watch.files() + SPARE_FILES
    began_s = time.monotonic()
    calls, answers = folder / "calls", folder / "answers"

    def stay(seconds: float) -> float:
        """Let it go on for so long; the time then."""
        until_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < until_s:
            progress(now_s - began_s)
            time.sleep(min(0.5, until_s - now_s))
        return until_s

    with _process("soak.well_behaved", server.port, plan.num_well_behaved, calls) as well_behaved:
        calm_s = stay(WARM_UP_S)
        hostile_s = stay(plan.calm_s)
        arguments = (server.port, plan.num_hostile, plan.seed, answers)
        with _process("soak.hostile_process", *arguments) as hostile:
            end_s = stay(plan.hostile_s)
            _end(hostile)
        _end(well_behaved)
    assert server.process.poll() is None, "the server has ended"
    held = _wait_until_free(server)
    audits = [server.call("GET", f"{pool}/audit")[1] for pool in (SERVED, POOL)]
    wait_for(lambda: watch.files() <= files or _has_waited(end_s), TIMEOUT_S)
    latencies = _latencies(calls)
    calm = [ms for at_s, ms in latencies if calm_s <= at_s < hostile_s]
    beside = [ms for at_s, ms in latencies if hostile_s <= at_s < end_s]
    tenths = [hostile_s + plan.hostile_s * number / 10 for number in range(11)]
    result = SoakResult(
        num_calls=(len(calm), len(beside)),
        calm_p99_ms=quantiles(calm, n=100)[98],
        hostile_p99_ms=quantiles(beside, n=100)[98],
        rss_bytes=[watch.rss_bytes(tenths[each], tenths[each + 1]) for each in range(4, 10)],
        left_open=dict(watch.files() - files),
        statuses=_outcomes(server),
        seen=json.loads(answers.read_text()),
        audits=audits,
    )
    result.faults.extend(_faults(result, held))
    return result


def _faults(result: SoakResult, held: list[str]) -> Iterator[str]:
    yield from held
    first, *rest = result.rss_bytes
    if max(rest) > MAX_GROWTH * first + SLACK_BYTES:
        yield f"memory has grown from {first} bytes to {max(rest)}"
    if result.left_open:
        yield f"left open: {result.left_open}"
    if result.statuses.get("failed"):
        yield f"{result.statuses['failed']} requests failed by a mistake of the server's"
    for what in result.seen:
        if re.search(r" 5\d\d\b", what) and not what.endswith(" 503 overloaded"):
            yield f"answered: {what}"
    for audit in result.audits:
        if not audit["ok"]:
            yield f"the audit says {audit['problems']}"


def _has_waited(since_s: float) -> bool:
    """Whether all that is idle must be closed by now."""
    return time.monotonic() > since_s + 3 * IDLE_S


def _wait_until_free(server: ServerProcess) -> list[str]:
    """Until all leases must have run out; what is held then."""
    time.sleep(2 * LEASE_MS / 1_000)
    found = {pool: server.call("GET", f"{pool}/stats")[1] for pool in (SERVED, POOL)}
    return [
        f"{stats['num_held_blocks']} blocks and {stats['num_leases']} leases of {pool} are left"
        for pool, stats in found.items()
        if stats["num_held_blocks"] or stats["num_leases"]
    ]


def _latencies(log: Path) -> list[tuple[float, float]]:
    """When each call began, in seconds, and what it took, in ms."""
    lines = (line.split() for line in log.read_text().splitlines())
    return [(float(at_s), float(ms)) for at_s, ms in lines]


def _outcomes(server: ServerProcess) -> dict[str, int]:
    """Requests by their outcome."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=TIMEOUT_S) as reply:
        text = reply.read().decode()
    counts: Counter[str] = Counter()
    for outcome, count in re.findall(r'request_duration_seconds_count\{outcome="(\w+)".*\} (\S+)', text):
        counts[outcome] += int(float(count))
    return dict(counts)


@contextmanager
def _process(module: str, *arguments: object) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of our own, killed at the end if it has not ended."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(command, env=environment({"PYTHONPATH": str(TESTS)})) as process:
        try:
            yield process
        finally:
            process.kill()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 0, "callers have failed"
