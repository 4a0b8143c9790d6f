"""Time every hash algorithm against a plain loop that hashes one block a time.

python tests/benchmarks/bench_hashing.py [--num-tokens N] [--block-size N] [--repeat N] [--json]

The plain loop serialises (parent, tuple of ids, None) and hashes it, block by block, and refuses nothing.
blake2b has no such form, so it is held against the plain loop of sha256. Each figure is the best of several
runs, taken in turns.
"""

import argparse
import hashlib
import pickle
import random
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import cbor2
import xxhash

from blockyard.core.extra_keys import Extras, Lora
from blockyard.core.hash_chain import Hasher
from blockyard.core.hashing import HashAlgorithm

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.report.as_json import add_json_option, tell_as_json

SEED = "benchmark"


def plain_sha256(value: Any) -> bytes:
    return hashlib.sha256(pickle.dumps(value, protocol=5)).digest()


def plain_sha256_cbor(value: Any) -> bytes:
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


def plain_xxhash(value: Any) -> bytes:
    return xxhash.xxh3_128_digest(pickle.dumps(value, protocol=5))


def plain_xxhash_cbor(value: Any) -> bytes:
    return xxhash.xxh3_128_digest(cbor2.dumps(value, canonical=True))


PLAIN: dict[HashAlgorithm, Callable[[Any], bytes]] = {
    HashAlgorithm.SHA256: plain_sha256,
    HashAlgorithm.SHA256_CBOR: plain_sha256_cbor,
    HashAlgorithm.XXHASH: plain_xxhash,
    HashAlgorithm.XXHASH_CBOR: plain_xxhash_cbor,
    HashAlgorithm.BLAKE2B: plain_sha256,
}


def plain_loop(
    digest: Callable[[Any], bytes], root: bytes, token_ids: list[int], block_size: int
) -> list[bytes]:
    """Hash block by block, as simply as can be."""
    parent, hashes = root, []
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        parent = digest((parent, tuple(token_ids[start : start + block_size]), None))
        hashes.append(parent)
    return hashes


def best_ms(num_runs: int, *calls: Callable[[], object]) -> list[float]:
    """The shortest time of each call, run in turns so that a busy machine slows all alike."""
    best = [float("inf")] * len(calls)
    for _ in range(num_runs):
        for index, call in enumerate(calls):
            start = perf_counter()
            call()
            best[index] = min(best[index], (perf_counter() - start) * 1e3)
    return best


def measure(algorithm: HashAlgorithm, token_ids: list[int], block_size: int, num_runs: int) -> dict[str, Any]:
    """One row of the table."""
    hasher = Hasher(algorithm, block_size, SEED)
    chain, with_lora = hasher.start(), hasher.start(Extras(lora=Lora("adapter", "/adapters/1")))
    plain_ms, ours_ms, lora_ms = best_ms(
        num_runs,
        lambda: plain_loop(PLAIN[algorithm], hasher.none_hash, token_ids, block_size),
        lambda: chain.append(token_ids),
        lambda: with_lora.append(token_ids),
    )
    return {
        "algorithm": algorithm.value,
        "plain_loop_ms": round(plain_ms, 2),
        "ours_ms": round(ours_ms, 2),
        "ratio": round(ours_ms / plain_ms, 2),
        "ours_with_lora_ms": round(lora_ms, 2),
        "ours_ns_a_token": round(ours_ms * 1e6 / len(token_ids), 1),
    }


def main() -> int:
    """Print the table, or the rows as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num-tokens", type=int, default=131_072)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=15)
    add_json_option(parser)
    args = parser.parse_args()
    generator = random.Random(0)
    token_ids = [generator.randrange(128_000) for _ in range(args.num_tokens)]
    rows = [measure(algorithm, token_ids, args.block_size, args.repeat) for algorithm in HashAlgorithm]
    if tell_as_json(args.json, {"num_tokens": args.num_tokens, "block_size": args.block_size, "rows": rows}):
        return 0
    print(f"{args.num_tokens} tokens, blocks of {args.block_size}, best of {args.repeat}")
    print(
        f"{'algorithm':<13}{'plain ms':>10}{'ours ms':>9}{'ratio':>7}{'with LoRA ms':>14}{'ns a token':>12}"
    )
    for row in rows:
        print(
            f"{row['algorithm']:<13}{row['plain_loop_ms']:>10.2f}{row['ours_ms']:>9.2f}{row['ratio']:>7.2f}"
            f"{row['ours_with_lora_ms']:>14.2f}{row['ours_ns_a_token']:>12.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
