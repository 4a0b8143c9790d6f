"""Hostile callers: ``python -m soak.hostile_process PORT NUMBER SEED LOG``, until SIGTERM.

The log, written at the end, is JSON: how often each was answered what.
"""

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

from soak.hostile import Hostile

NICENESS = 10
"""They are to cost the server its time, not the well-behaved theirs where processors are few."""


async def run(port: int, number: int, seed: int) -> Counter[str]:
    """So many, until SIGTERM; what they were answered."""
    should_end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, should_end.set)
    seen: Counter[str] = Counter()
    callers = [Hostile(port, each, random.Random(f"{seed} {each}"), seen) for each in range(number)]
    await asyncio.gather(*(caller.run(should_end) for caller in callers))
    return seen


if __name__ == "__main__":
    os.nice(NICENESS)
    found = asyncio.run(run(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
    Path(sys.argv[4]).write_text(json.dumps(found))
