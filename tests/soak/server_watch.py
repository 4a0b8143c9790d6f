"""What a server's process takes, looked at from outside."""

import re
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Self

EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Sample:
    """At one time, on the monotonic clock."""

    at_s: float
    rss_bytes: int


class ServerWatch:
    """Looks at the process ``pid`` every now and then, in a thread, from here to the end of the block."""

    def __init__(self, pid: int) -> None:
        self._folder = Path("/proc") / str(pid)
        self._should_end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.samples: list[Sample] = []

    def look(self) -> Sample:
        """The process now."""
        found = re.search(r"VmRSS:\s+(\d+) kB", (self._folder / "status").read_text())
        assert found
        return Sample(time.monotonic(), int(found[1]) * 1024)

    def files(self) -> Counter[str]:
        """What the process has open now, without the numbers of sockets and pipes."""
        found: Counter[str] = Counter()
        for link in (self._folder / "fd").iterdir():
            with suppress(FileNotFoundError):  # it was closed meanwhile
                target = str(link.readlink())
                found["journal" if target.endswith("/journal.sqlite") else re.sub(r"\d+", "", target)] += 1
        return found

    def rss_bytes(self, begin_s: float, end_s: float) -> int:
        """Its memory between these times, at the median."""
        return int(median(each.rss_bytes for each in self.samples if begin_s <= each.at_s <= end_s))

    def _run(self) -> None:
        while not self._should_end.wait(EVERY_S):
            self.samples.append(self.look())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._should_end.set()
        self._thread.join()
