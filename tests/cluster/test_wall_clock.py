import subprocess
import sys
from pathlib import Path

import pytest

from cluster.wall_clock import MISSING, WallClock

TELLING = """
import sys, time
for line in sys.stdin:
    print(time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
"""
HOUR_S = 3600
TRIES = 50


@pytest.mark.skipif(not WallClock.is_possible(), reason=MISSING)
@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_the_wall_clock_of_a_process_jumps_and_its_steady_clocks_do_not(ahead_s: int, tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "clock")
    command = [*clock.prefix, sys.executable, "-c", TELLING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def told() -> tuple[float, ...]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            return tuple(map(float, process.stdout.readline().split()))

        before = told()
        clock.set(ahead_s)
        after = told()
        for _ in range(TRIES):  # the library looks once a second
            if abs(after[0] - before[0]) > HOUR_S / 2:
                break
            process.poll()
            subprocess.run(["sleep", "0.1"], check=True)
            after = told()
        process.kill()
    wall_s, steady_s, boot_s = (new - old for new, old in zip(after, before, strict=True))
    assert abs(wall_s - ahead_s) < 60
    assert 0 <= steady_s < 60
    assert 0 <= boot_s < 60
