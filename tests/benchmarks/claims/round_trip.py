"""One small call through a client, beside a blocking socket that sends the same bytes, made before.

`allocate` and `free` of one block by turns; a figure is one of the two calls. The socket calls the same
server, and the bare ASGI application, which answers as many bytes. Ours and both of them take turns pair by
pair.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from statistics import median
from time import perf_counter

from benchmarks.claims.figure import Figure
from benchmarks.claims.setting import Setting
from benchmarks.load.processes import bare_app
from benchmarks.load.raw_calls import RawCaller, body_of
from benchmarks.load.tap import Exchanges, Tap, with_fresh_key
from blockyard.client import AsyncClient, Client
from server_process import running_server

NAME = "round_trip"
BOUNDS = {"sync": 2.5, "async": 4.0}
NUM_TOKENS, BLOCK_SIZE = 16, 16
CALLS_A_PAIR = 2
TTL_MS = 3_600_000

Seconds = dict[str, list[float]]


class Beside:
    """Sockets that do what a client was seen to do, to its server and to the bare application.

    Args:
        port: The server's.
        taken: A lease, an `allocate` and a `free`. The lease has to stand.
        stack: Ends what is begun here.
    """

    def __init__(self, port: int, taken: Exchanges, stack: ExitStack | AsyncExitStack) -> None:
        self._asked = taken.requests[1:3]
        sizes = [len(body_of(reply)) for reply in taken.replies[1:3]]
        bare = stack.enter_context(bare_app(sum(sizes) // len(sizes)))
        self._callers = {
            "server": stack.enter_context(RawCaller(port)),
            "bare": stack.enter_context(RawCaller(bare.port)),
        }

    def call(self, seconds: Seconds) -> None:
        """A pair of calls to each, and note their time."""
        for name, caller in self._callers.items():
            pair = list(map(with_fresh_key, self._asked))
            seconds[name].append(caller.seconds(pair))


def sync_seconds(port: int, num_pairs: int) -> Seconds:
    """Of pairs of calls: the client's, and those beside it."""
    seconds: Seconds = {"client": [], "server": [], "bare": []}
    with ExitStack() as stack:
        tap = stack.enter_context(Tap(port))
        with Client(tap.url) as client:
            lease = client.pool("pool").lease("tapped", TTL_MS, renew=False)
            lease.allocate("tapped", NUM_TOKENS)
            lease.free(["tapped"])
        beside = Beside(port, tap.taken, stack)
        client = stack.enter_context(Client(f"http://127.0.0.1:{port}"))
        lease = stack.enter_context(client.pool("pool").lease("benchmark", TTL_MS, renew=False))
        for _ in range(num_pairs):
            start = perf_counter()
            lease.allocate("sequence", NUM_TOKENS)
            lease.free(["sequence"])
            seconds["client"].append(perf_counter() - start)
            beside.call(seconds)
    return seconds


async def async_seconds(port: int, num_pairs: int) -> Seconds:
    """The same with `AsyncClient`, on the event loop of the standard library."""
    seconds: Seconds = {"client": [], "server": [], "bare": []}
    async with AsyncExitStack() as stack:
        tap = stack.enter_context(Tap(port))
        async with AsyncClient(tap.url) as client:
            lease = await client.pool("pool").lease("tapped", TTL_MS, renew=False)
            await lease.allocate("tapped", NUM_TOKENS)
            await lease.free(["tapped"])
        beside = Beside(port, tap.taken, stack)
        client = await stack.enter_async_context(AsyncClient(f"http://127.0.0.1:{port}"))
        lease = await stack.enter_async_context(client.pool("pool").lease("benchmark", TTL_MS, renew=False))
        for _ in range(num_pairs):
            start = perf_counter()
            await lease.allocate("sequence", NUM_TOKENS)
            await lease.free(["sequence"])
            seconds["client"].append(perf_counter() - start)
            beside.call(seconds)
    return seconds


def measure(setting: Setting) -> Iterator[Figure]:
    """Both clients beside both sockets."""
    num_pairs = setting.pick(600, 10)
    with running_server("--volatile", "--log-level", "error") as server:
        with Client(server.url) as client:
            client.create_pool("pool", num_blocks=10_000, block_size=BLOCK_SIZE, eviction="lru")
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in BOUNDS}
        for number in range(setting.rounds):
            setting.note(f"round {number + 1}")
            for name, seconds in (
                ("sync", sync_seconds(server.port, num_pairs)),
                ("async", asyncio.run(async_seconds(server.port, num_pairs))),
            ):
                rounds[name].append({who: call_us(taken) for who, taken in seconds.items()})
    for name, found in rounds.items():
        for who, what in (
            ("server", "a socket at the same server"),
            ("bare", "a socket at the bare ASGI app"),
        ):
            figure = Figure(claim=NAME, what=f"{name} client beside {what}", bound=BOUNDS[name])
            yield figure.measured(
                [each["client"] for each in found], [each[who] for each in found], unit="µs"
            )


def call_us(seconds: list[float]) -> float:
    """The median call."""
    return median(seconds) / CALLS_A_PAIR * 1e6
