"""Finding 8,191 cached blocks over HTTP, beside the peer's lookup in process."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.bench_step import block_hashes
from benchmarks.claims.figure import Figure
from benchmarks.claims.setting import Setting
from blockyard.client import Client
from server_process import running_server

NAME, BOUND = "lookup", 1.0
NUM_TOKENS, BLOCK_SIZE = 131_072, 16


class Lookup:
    """Our side of the claim: a default server, whose pool has a sequence of 131,072 tokens committed."""

    name = NAME

    def __init__(self, setting: Setting, stack: ExitStack) -> None:
        self._num_calls = setting.pick(60, 2)
        server = stack.enter_context(running_server("--log-level", "error"))
        client = stack.enter_context(Client(server.url))
        self._pool = client.create_pool("benchmark", num_blocks=10_000, block_size=BLOCK_SIZE, eviction="lru")
        lease = stack.enter_context(self._pool.lease("benchmark", 3_600_000))
        self._hashes = block_hashes(0, 0, NUM_TOKENS)
        lease.allocate("sequence", NUM_TOKENS, block_hashes=self._hashes)
        lease.commit("sequence", NUM_TOKENS)

    def measure(self) -> dict[str, float]:
        """The median call."""
        times = []
        for _ in range(self._num_calls):
            start = perf_counter()
            found = self._pool.lookup(NUM_TOKENS, block_hashes=self._hashes)
            times.append(perf_counter() - start)
            assert found.num_cached_tokens == NUM_TOKENS - BLOCK_SIZE
        return {"lookup": median(times) * 1e3}

    @staticmethod
    def figures(
        rounds: Mapping[str, list[float]], peer: list[Mapping[str, Any]], note: str
    ) -> Iterator[Figure]:
        """One row."""
        beside = [each["lookup_8191_ms"] for each in peer]
        figure = Figure(claim=NAME, what="8,191 cached blocks", bound=BOUND, note=note)
        yield figure.measured(rounds["lookup"], beside)
