"""Requests for a cache manager, the same for the peer's and for ours: from a trace, or made up.

It is imported under two Pythons, ours and the peer's, and so needs the standard library alone.

A job is a mapping: ``requests`` names them (``conversation`` or ``fresh``), ``trace`` the file, ``limit`` how
many at most, ``num_blocks`` and ``block_size`` are the pool's, and ``at_a_time`` requests are in flight: each
lot is freed before the next one is admitted.
"""

import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

FRESH_TOKENS = 2_000


@dataclass(frozen=True)
class JobRequest:
    """Tokens of a sequence and the hashes of its full blocks."""

    name: str
    num_tokens: int
    block_hashes: list[bytes]


def requests_of(job: Mapping[str, Any]) -> list[JobRequest]:
    """Those that ``job`` names."""
    size, limit = job["block_size"], job["limit"]
    if job["requests"] == "fresh":
        return [
            JobRequest(f"r{n}", FRESH_TOKENS, [block_hash(n << 20 | i) for i in range(FRESH_TOKENS // size)])
            for n in range(limit)
        ]
    made = []
    known: dict[int, bytes] = {}
    with Path(job["trace"]).open() as lines:
        for number, line in zip(range(limit), lines, strict=False):
            fields = json.loads(line)
            num_tokens = fields["input_length"]
            ids = fields["hash_ids"][: num_tokens // size]
            hashes = [known.setdefault(each, block_hash(each)) for each in ids]
            made.append(JobRequest(f"r{number}", num_tokens, hashes))
    return made


def block_hash(number: int) -> bytes:
    """As long as a SHA-256."""
    return number.to_bytes(32, "big")


@contextmanager
def collected() -> Iterator[None]:
    """Garbage is gone, and what is there is not looked at again: it was only made for the measuring."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def timed(run: Callable[[], int]) -> dict[str, Any]:
    """Seconds of ``run``, and the cached tokens that it returns."""
    with collected():
        start = perf_counter()
        num_cached_tokens = run()
        seconds = perf_counter() - start
    return {"seconds": seconds, "cached_tokens": num_cached_tokens}


def serve(do: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    """Do the jobs that stand in the lines of standard input, and print what came of each."""
    for line in sys.stdin:
        print(json.dumps(do(json.loads(line))), flush=True)
