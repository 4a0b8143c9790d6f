"""Hashing 131,072 tokens in blocks of 16, checks included, beside the peer's."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from time import perf_counter
from typing import Any

from benchmarks.claims.figure import Figure
from benchmarks.claims.setting import Setting
from blockyard.core.config import PoolConfig
from blockyard.core.hash_chain import Hasher
from blockyard.core.hashing import HashAlgorithm

NAME = "hashing"
NUM_TOKENS, BLOCK_SIZE = 131_072, 16
BEST_OF = 3
DEFAULT = PoolConfig.of(num_blocks=2, groups=[]).hash_algorithm
CLAIMED = {
    "default": (DEFAULT, "sha256", 0.33),
    "sha256": (HashAlgorithm.SHA256, "sha256", 0.8),
    "sha256_cbor": (HashAlgorithm.SHA256_CBOR, "sha256_cbor", 0.8),
    "xxhash_cbor": (HashAlgorithm.XXHASH_CBOR, "xxhash_cbor", 0.8),
}
"""Ours, the peer's, and what the ratio may be."""


class Hashing:
    """Our side of the claim."""

    name = NAME

    def __init__(self, _setting: Setting, _stack: ExitStack) -> None:
        self._token_ids = list(range(NUM_TOKENS))  # the peer's

    def measure(self) -> dict[str, float]:
        """The best of three, as the peer tells it."""
        return {
            name: min(self._milliseconds(algorithm) for _ in range(BEST_OF))
            for name, (algorithm, _, _) in CLAIMED.items()
        }

    def _milliseconds(self, algorithm: HashAlgorithm) -> float:
        hasher = Hasher(algorithm, BLOCK_SIZE, "benchmark")
        start = perf_counter()
        _, hashes = hasher.start().append(self._token_ids)
        taken = perf_counter() - start
        assert len(hashes) == NUM_TOKENS // BLOCK_SIZE
        return taken * 1e3

    @staticmethod
    def figures(
        rounds: Mapping[str, list[float]], peer: list[Mapping[str, Any]], note: str
    ) -> Iterator[Figure]:
        """A row for each algorithm."""
        for name, (algorithm, other, bound) in CLAIMED.items():
            beside = [each[f"hash_128k_ms_{other}"] for each in peer]
            what = f"{algorithm.value}, the default" if name == "default" else algorithm.value
            figure = Figure(claim=NAME, what=what, bound=bound, note=note)
            yield figure.measured(rounds[name], beside, other=other)
