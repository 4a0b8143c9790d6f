"""What it costs a server that its pool's events are followed: by 100 subscribers, and over ZeroMQ.

python tests/benchmarks/bench_events.py [--subscribers N] [--blocks N] [--turns N] [--turn-s S] [--json]

Two servers side by side, in turns: one whose pool has events, with a ZeroMQ socket that one subscriber reads
and with N subscribers to server-sent events; one whose pool has none. Each is given `allocate` and then
`free` of a sequence with N blocks of new content over 16 connections, in which every allocation evicts as
many: so each has events for every block.
"""

import argparse
import json
import multiprocessing as mp
import re
import secrets
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from typing import Any

import zmq

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.report.as_json import add_json_option, tell_as_json
from server_process import ServerProcess, running_server

NUM_CONNECTIONS = 16
NUM_POOL_BLOCKS = 10_000
BLOCK_SIZE = 16
POOL = "/v1/pools/pool"
READ_BYTES = 1 << 20


def request(path: str, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {POOL}/{path} HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


class Caller:
    """One connection, on which a sequence is allocated and freed by turns; what it counts are pairs."""

    def __init__(self, port: int, lease: str, number: int, num_blocks: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = {"lease_id": lease, "sequence_id": f"s{number}"}
        self._free = request("free", {"lease_id": lease, "sequence_ids": [f"s{number}"]})
        self._num_blocks = num_blocks
        self._holds = False
        self._answer = b""
        self.num_pairs = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def ask(self) -> None:
        if self._holds:
            self._socket.sendall(self._free)
            return
        hashes = [secrets.token_hex(32) for _ in range(self._num_blocks)]
        tokens = {"num_tokens": self._num_blocks * BLOCK_SIZE, "block_hashes": hashes}
        self._socket.sendall(request("allocate", {**self._held, **tokens}))

    def is_answered(self) -> bool:
        """Read some more of the answer; whether it is complete."""
        self._answer += self._socket.recv(READ_BYTES)
        head, _, content = self._answer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if length is None or len(content) < int(length[1]):
            return False
        assert head.startswith(b"HTTP/1.1 200"), self._answer
        self._answer = b""
        self.num_pairs += self._holds
        self._holds = not self._holds
        return True


def pairs_a_second(callers: list[Caller], seconds: float) -> float:
    """How many pairs of calls are answered, all callers together."""
    before = sum(caller.num_pairs for caller in callers)
    with selectors.DefaultSelector() as selector:
        for caller in callers:
            selector.register(caller, selectors.EVENT_READ, caller)
            caller.ask()
        began_s = time.perf_counter()
        end_s = began_s + seconds
        num_asked = len(callers)
        while num_asked:
            for key, _ in selector.select():
                if not key.data.is_answered():
                    continue
                if time.perf_counter() < end_s:
                    key.data.ask()
                else:
                    num_asked -= 1
        took_s = time.perf_counter() - began_s
    return (sum(caller.num_pairs for caller in callers) - before) / took_s


def subscribe(port: int, endpoint: str, num_subscribers: int, is_ready: Event, counts: Any) -> None:
    """Read whatever comes, until killed: ``counts`` are bytes of server-sent events and ZeroMQ's messages."""
    context = zmq.Context()
    updates = context.socket(zmq.SUB)
    updates.subscribe("")
    updates.connect(endpoint)
    with selectors.DefaultSelector() as selector:
        for _ in range(num_subscribers):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(f"GET {POOL}/events HTTP/1.1\r\nHost: b\r\n\r\n".encode())
            assert connection.recv(READ_BYTES).startswith(b"HTTP/1.1 200")
            selector.register(connection, selectors.EVENT_READ, connection)
        is_ready.set()
        buffer = bytearray(READ_BYTES)
        while True:
            time.sleep(0.02)  # as they have a core to share with the callers, and would have others in life
            for key, _ in selector.select(0):
                counts[0] += key.data.recv_into(buffer)
            while updates.poll(0):
                updates.recv_multipart()
                counts[1] += 1


@contextmanager
def subscribers(server: ServerProcess, endpoint: str, number: int) -> Iterator[Any]:
    """So many of them, in a process of their own; what they have received."""
    is_ready, counts = mp.Event(), mp.Array("Q", 2)
    process = mp.Process(
        target=subscribe, args=(server.port, endpoint, number, is_ready, counts), daemon=True
    )
    process.start()
    try:
        assert is_ready.wait(60), "the subscribers did not get ready"
        seen = -1
        while counts[0] != seen:  # each begins with a snapshot
            seen = counts[0]
            time.sleep(0.5)
        yield counts
    finally:
        process.kill()
        process.join()


def measure(num_subscribers: int, num_blocks: int, turns: int, turn_s: float) -> dict[str, Any]:
    """Pairs a second with events that are followed and without, in turns."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        endpoint = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
    rates: dict[str, list[float]] = {"followed": [], "without": []}
    with ExitStack() as ending:
        callers = {}
        for name in rates:
            options = ("--event-endpoint", endpoint) if name == "followed" else ()
            server = ending.enter_context(running_server("--volatile", "--log-level", "error", *options))
            config = {"num_blocks": NUM_POOL_BLOCKS, "block_size": BLOCK_SIZE, "publish": "on_allocate"}
            server.call("PUT", POOL, {**config, "events": name == "followed"})
            lease = server.call("POST", f"{POOL}/leases", {"holder": "b", "ttl_ms": 3_600_000})[1]["lease_id"]
            callers[name] = [Caller(server.port, lease, each, num_blocks) for each in range(NUM_CONNECTIONS)]
            while server.call("GET", f"{POOL}/stats")[1]["counters"]["num_evicted_blocks"] == 0:
                pairs_a_second(callers[name], 0.5)
            if name == "followed":
                counts = ending.enter_context(subscribers(server, endpoint, num_subscribers))
        before = list(counts)
        for _ in range(turns):
            for name, measured in rates.items():
                measured.append(pairs_a_second(callers[name], turn_s))
        received = [now - earlier for now, earlier in zip(counts, before, strict=True)]
    ratios = [one / other for one, other in zip(rates["followed"], rates["without"], strict=True)]
    return {
        "num_subscribers": num_subscribers,
        "num_blocks": num_blocks,
        "followed_pairs_a_second": round(median(rates["followed"])),
        "without_pairs_a_second": round(median(rates["without"])),
        "ratio": round(median(ratios), 3),
        "server_sent_mib_a_second": round(received[0] / 2**20 / (turns * turn_s), 1),
        "zmq_messages_a_second": round(received[1] / (turns * turn_s)),
    }


def main() -> int:
    """Print the figures as a table, or as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--subscribers", type=int, default=100)
    parser.add_argument("--blocks", type=int, default=1, help="of a sequence")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--turn-s", type=float, default=0.3)
    add_json_option(parser)
    args = parser.parse_args()
    figures = measure(args.subscribers, args.blocks, args.turns, args.turn_s)
    if tell_as_json(args.json, figures):
        return 0
    for name, value in figures.items():
        print(f"{name:<26}{value:>10,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
