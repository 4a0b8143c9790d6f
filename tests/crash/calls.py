"""A client's calls and their answers, as it writes them down: one JSON object a line, in its log.

    {"number": 7, "verb": "allocate", "pool": "plain", "key": "a-7", "body": {...}}     before it is sent
    {"number": 7, "status": 200, "num_tries": 2, "body": {...}}                         once it is answered

A log survives the end of whoever writes it. One call is under way at a time. Both entries say when, by the
steady clock of the machine, which all its processes share.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Verb(StrEnum):
    """What a call does. The value is the end of its path."""

    LEASE = "leases"
    RELEASE = "release"
    """``DELETE`` of a lease, named in the body; it has no key."""
    ALLOCATE = "allocate"
    COMMIT = "commit"
    FREE = "free"
    STEP = "step"
    TAKE = "blocks/allocate"
    GIVE = "blocks/free"
    READ = "sequences"
    """``GET`` of a sequence, named in the body."""
    LOOKUP = "lookup"


READS = {Verb.READ, Verb.LOOKUP}
"""They change nothing, and have no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """``at_ns``: before its first try."""

    number: int
    verb: Verb
    pool: str
    key: str
    body: dict[str, Any]
    at_ns: int = field(default_factory=time.monotonic_ns, compare=False)

    @property
    def lease_id(self) -> str | None:
        found: str | None = self.body.get("lease_id")
        return found

    def __str__(self) -> str:
        return f"{self.verb} {self.key} of pool {self.pool}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """``tried_ns``: before the try that was answered; ``at_ns``: after it.

    ``node`` is who answered, and ``ownership`` by which right, where there are several nodes.
    """

    number: int
    status: int
    num_tries: int
    body: dict[str, Any]
    tried_ns: int = 0
    at_ns: int = 0
    node: str = ""
    ownership: int | None = None

    @property
    def code(self) -> str | None:
        """Of a refusal."""
        found: str | None = self.body.get("code")
        return found

    @property
    def is_success(self) -> bool:
        return self.status < 300

    @property
    def told(self) -> tuple[int, dict[str, Any]]:
        """What a repeat is told too: not when the lease ends, which the repeat has put off."""
        return self.status, {name: value for name, value in self.body.items() if name != "expires_at_ms"}


class LogWriter:
    """Appends to the log at ``path``; each entry is the kernel's before the next line of the program runs."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, entry: Call | Answer) -> None:
        line = json.dumps(asdict(entry), separators=(",", ":")).encode() + b"\n"
        written = os.write(self._file, line)
        assert written == len(line), "a disk that is full is no test of a server"

    def close(self) -> None:
        os.close(self._file)


class LogReader:
    """Reads the log at ``path`` on from where it stopped; a last line without its end was never written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    @property
    def has_more(self) -> bool:
        """Whether there is something that was not read."""
        return self.path.exists() and self.path.stat().st_size > self._offset

    def read(self) -> Iterator[Call | Answer]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield _entry(json.loads(line))


def _entry(fields: dict[str, Any]) -> Call | Answer:
    if "verb" in fields:
        return Call(**{**fields, "verb": Verb(fields["verb"])})
    return Answer(**fields)
