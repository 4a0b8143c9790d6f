"""How long answered calls take when there is more to do than can be done, with and without a bound on turns.

python tests/benchmarks/bench_overload.py [--connections N ...] [--blocks N] [--seconds S] [--long] [--json]

Two servers: one as it is, one whose --max-turn-ms is so long that it refuses nobody. N connections call each
as fast as it answers: a step that frees a sequence and admits one of so many blocks; with --long it has their
hashes, too, and so comes in several packets. Who is told to come back does so when told. A try is answered
with 200; a call may have taken several.
"""

import argparse
import asyncio
import json
import re
import secrets
import sys
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.report.as_json import add_json_option, tell_as_json
from server_process import ServerProcess, running_server

POOL = "/v1/pools/pool"
BLOCK_SIZE = 16
UNBOUNDED_MS = 3_600_000
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Caller:
    """One connection and its lease, on which steps are made; what they took is noted, in ms."""

    def __init__(self, lease: str, hashes: list[str], num_blocks: int) -> None:
        self._lease = lease
        self._admission = {"num_tokens": num_blocks * BLOCK_SIZE, "block_hashes": hashes}
        self._number = 0
        self._held: list[int] = []
        self.tries_ms: list[float] = []
        self.calls_ms: list[float] = []
        self.num_refused = 0

    async def run(self, port: int, until_s: float) -> None:
        """Call until then."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < until_s:
            self._number += 1
            step = {
                "lease_id": self._lease,
                "step_id": self._number,
                "free": {"sequences": self._held},
                "admit": [{"sequence_id": f"{self._lease}-{self._number}", **self._admission}],
            }
            raw = json.dumps(step).encode()
            head = f"POST {POOL}/step HTTP/1.1\r\nHost: b\r\nContent-Length: {len(raw)}\r\n\r\n"
            await self._call(reader, writer, head.encode() + raw)
        writer.close()

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
        began_s = time.perf_counter()
        while True:
            try_s = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            assert length, head
            reply = json.loads(await reader.readexactly(int(length[1])))
            now_s = time.perf_counter()
            if b" 200 " in head[:16]:
                self._held = [admitted["sequence"] for admitted in reply["admit"]]
                self.tries_ms.append(1_000 * (now_s - try_s))
                self.calls_ms.append(1_000 * (now_s - began_s))
                return
            assert reply["code"] == "overloaded", reply
            self.num_refused += 1
            await asyncio.sleep(reply["retry_after_ms"] / 1_000)


async def run(
    server: ServerProcess, num_connections: int, num_blocks: int, seconds: float, long: bool
) -> Any:
    """What so many callers met."""
    callers = []
    for number in range(num_connections):
        lease = server.call("POST", f"{POOL}/leases", {"holder": f"{number}", "ttl_ms": 3_600_000})[1]
        hashes = [secrets.token_hex(32) for _ in range(num_blocks)] if long else []
        callers.append(Caller(lease["lease_id"], hashes, num_blocks))
    until_s = time.perf_counter() + seconds
    await asyncio.gather(*(caller.run(server.port, until_s) for caller in callers))
    tries = [ms for caller in callers for ms in caller.tries_ms]
    calls = [ms for caller in callers for ms in caller.calls_ms]
    return {
        "calls_a_second": round(len(calls) / seconds),
        "num_refused": sum(caller.num_refused for caller in callers),
        **{f"try_p{percent}_ms": round(value) for percent, value in _percentiles(tries).items()},
        **{f"call_p{percent}_ms": round(value) for percent, value in _percentiles(calls).items()},
    }


def _percentiles(values: list[float]) -> dict[int, float]:
    cuts = quantiles(values, n=100)
    return {50: cuts[49], 99: cuts[98]}


def main() -> int:
    """Print the figures as a table, or as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, nargs="+", default=[16, 64, 256, 1024])
    parser.add_argument("--blocks", type=int, default=2_000, help="of a sequence")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--long", action="store_true", help="send hashes, in several packets")
    add_json_option(parser)
    args = parser.parse_args()
    found = []
    for number in args.connections:
        for name, options in (("bounded", ()), ("unbounded", ("--max-turn-ms", str(UNBOUNDED_MS)))):
            with running_server("--log-level", "error", "--volatile", *options) as server:
                config = {"num_blocks": 2 * args.blocks * number + 1, "block_size": BLOCK_SIZE}
                assert server.call("PUT", POOL, config)[0] == 201
                figures = asyncio.run(run(server, number, args.blocks, args.seconds, args.long))
            found.append({"turns": name, "num_connections": number, **figures})
    if tell_as_json(args.json, found):
        return 0
    for cells in (found[0], *(each.values() for each in found)):
        print("".join(f"{cell:>16}" for cell in cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
