"""Puts as many requests to a server as it answers, over many connections, and tells how many they were.

python tests/benchmarks/load/generator.py PORT SECONDS < REQUESTS

REQUESTS is a JSON array with an array for each connection: its requests, whole and in hex, which it sends one
after the other and over again, each once the one before is answered. Nothing is made anew in the loop, and of
a reply only its status and its length are read. Prints one JSON object; ``busy`` is the share of the time
that this process was at work: near 1, it would measure itself.
"""

import asyncio
import json
import re
import sys
from time import perf_counter, process_time
from typing import Any

import uvloop

WARM_UP_S = 0.3
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Tally:
    """What all connections count together."""

    def __init__(self, end_s: float) -> None:
        self.begin_s = end_s
        self.end_s = end_s
        self.latencies_s: list[float] = []
        self.num_answered = 0
        self.num_failed = 0
        self.num_open = 0
        self.is_over = asyncio.Event()


class Connection(asyncio.Protocol):
    """Sends its requests in turn, until the time is over."""

    def __init__(self, requests: list[bytes], tally: Tally) -> None:
        self._requests = requests
        self._tally = tally
        self._next = 0
        self._sent_s = 0.0
        self._received = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._tally.num_open += 1
        self._send(perf_counter())

    def data_received(self, data: bytes) -> None:
        if self._received:
            data = self._received + data
        end = data.find(b"\r\n\r\n")
        found = _LENGTH.search(data, 0, end) if end > 0 else None
        if found is None or len(data) < end + 4 + int(found[1]):
            self._received = data
            return
        self._received = b""
        now_s = perf_counter()
        tally = self._tally
        tally.num_answered += 1
        if now_s >= tally.begin_s:
            tally.latencies_s.append(now_s - self._sent_s)
            if data[9:12] != b"200":
                tally.num_failed += 1
        if now_s < tally.end_s:
            self._send(now_s)
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's
        self._tally.num_open -= 1
        if self._tally.num_open == 0:
            self._tally.is_over.set()

    def _send(self, now_s: float) -> None:
        self._sent_s = now_s
        self._transport.write(self._requests[self._next])
        self._next = (self._next + 1) % len(self._requests)


async def drive(port: int, seconds: float, requests: list[list[bytes]]) -> dict[str, float]:
    """Requests a second and the latency's percentiles, after a short warming up."""
    loop = asyncio.get_running_loop()
    tally = Tally(perf_counter())
    tally.begin_s += WARM_UP_S
    tally.end_s = tally.begin_s + seconds
    busy_s, began_s = process_time(), perf_counter()
    for own in requests:
        await loop.create_connection(lambda own=own: Connection(own, tally), "127.0.0.1", port)  # type: ignore[misc]
    await tally.is_over.wait()
    busy = (process_time() - busy_s) / (perf_counter() - began_s)
    latencies = sorted(tally.latencies_s)
    assert latencies, "nothing was answered"
    return {
        "requests_a_second": len(latencies) / seconds,
        "answered": tally.num_answered,
        "failed": tally.num_failed,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3,
        "busy": round(busy, 3),
    }


def main() -> int:
    """Print the figures."""
    requests = [list(map(bytes.fromhex, own)) for own in json.load(sys.stdin)]
    print(json.dumps(uvloop.run(drive(int(sys.argv[1]), float(sys.argv[2]), requests))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
