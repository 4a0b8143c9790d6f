"""What a scheduler's step costs by the kinds of a pool's groups, in the core and over HTTP in msgpack.

python tests/benchmarks/bench_step.py [--sequences N] [--steps N] [--json]

A step commits the last token of every sequence and asks for a slot for its next one. Sequences begin with
prompts of 1,024 tokens and some more, so that one in sixteen fills a block in each step and sends its hash.
Each figure is the median over all steps, taken in turns; ratios are those to a full-attention group alone.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from blockyard.client import Client, Lease
from blockyard.core.commands import Admission, CreateLease, Step, StepCommit, StepExtend
from blockyard.core.config import GroupConfig, PoolConfig
from blockyard.core.ids import BlockHash, LeaseId, SequenceHandle, SequenceId
from blockyard.core.pool import Pool
from blockyard.core.replies import Admitted, Stepped

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.report.as_json import add_json_option, tell_as_json
from server_process import running_server

BLOCK_SIZE, PROMPT_TOKENS, NUM_BLOCKS = 16, 1_024, 400_000
LEASE = LeaseId("benchmark")

FULL = GroupConfig(kind="full_attention", block_size=BLOCK_SIZE)
SLIDING = GroupConfig(kind="sliding_window", block_size=BLOCK_SIZE, sliding_window=512)
STATES = GroupConfig(kind="mamba", block_size=BLOCK_SIZE, mamba_cache_mode="align")
POOLS = {
    "full": (FULL,),
    "full_and_sliding": (FULL, SLIDING),
    "full_and_3_mamba_align": (FULL, STATES, STATES, STATES),
}

Send = Callable[[Step], Stepped]
"""Has a step done."""


@contextmanager
def in_the_core() -> Iterator[list[Send]]:
    """A pool in this process for each of `POOLS`."""
    pools = [Pool(PoolConfig.of(num_blocks=NUM_BLOCKS, groups=groups)) for groups in POOLS.values()]
    for pool in pools:
        pool.apply(CreateLease(lease_id=LEASE, holder="benchmark", ttl_ms=10**9), 0)
    yield [partial(pool.apply, now_ms=0) for pool in pools]  # type: ignore[misc]
    assert all(pool.audit().ok for pool in pools)


@contextmanager
def over_http() -> Iterator[list[Send]]:
    """The same in a server."""
    with ExitStack() as stack:
        server = stack.enter_context(running_server("--log-level", "error"))
        client = stack.enter_context(Client(server.url))
        leases = [
            stack.enter_context(
                client.create_pool(name, num_blocks=NUM_BLOCKS, groups=groups).lease("benchmark", 600_000)
            )
            for name, groups in POOLS.items()
        ]
        yield [partial(send_under, lease) for lease in leases]


def send_under(lease: Lease, step: Step) -> Stepped:
    return lease.step(commit=step.commit, extend=step.extend, admit=step.admit)


def block_hashes(sequence: int, begin: int, end: int) -> list[BlockHash]:
    """Those of the full blocks that a sequence has at its ``end``-th token, and not at its ``begin``-th."""
    return [
        (sequence << 32 | position).to_bytes(32, "big")
        for position in range(begin // BLOCK_SIZE, end // BLOCK_SIZE)
    ]


def admissions(lengths: list[int]) -> list[Admission]:
    return [
        Admission(
            sequence_id=SequenceId(f"s{number}"),
            num_tokens=length,
            block_hashes=block_hashes(number, 0, length),
        )
        for number, length in enumerate(lengths)
    ]


def decoding(handles: list[SequenceHandle], lengths: list[int]) -> Step:
    """Commits all tokens, and asks for a slot for one more of each sequence."""
    new = {
        handle: block_hashes(number, length, length + 1)
        for number, (handle, length) in enumerate(zip(handles, lengths, strict=True))
        if (length + 1) % BLOCK_SIZE == 0
    }
    return Step(
        lease_id=LEASE,
        commit=StepCommit(sequences=handles, num_computed_tokens=lengths),
        extend=StepExtend(sequences=handles, num_tokens=[n + 1 for n in lengths], block_hashes=new),
    )


def step_milliseconds(sends: list[Send], num_sequences: int, num_steps: int) -> list[float]:
    """The median step of each pool, in turns so that a busy machine slows all alike."""
    lengths = [PROMPT_TOKENS + number % BLOCK_SIZE for number in range(num_sequences)]
    handles: list[SequenceHandle] = []
    for send in sends:
        answers = send(Step(lease_id=LEASE, admit=admissions(lengths))).admit
        handles = [answer.sequence for answer in answers if isinstance(answer, Admitted)]
        assert len(handles) == num_sequences
    times: list[list[float]] = [[] for _ in sends]
    for _ in range(num_steps):
        step = decoding(handles, lengths)
        for send, taken in zip(sends, times, strict=True):
            start = perf_counter()
            reply = send(step)
            taken.append(perf_counter() - start)
            assert len(reply.extend.sequences) == num_sequences
        lengths = [length + 1 for length in lengths]
    return [median(taken) * 1e3 for taken in times]


def measure(num_sequences: int, num_steps: int) -> list[dict[str, Any]]:
    """A row a pool."""
    rows: list[dict[str, Any]] = [{"groups": name} for name in POOLS]
    for where, opened in (("core", in_the_core), ("http", over_http)):
        with opened() as sends:
            found = step_milliseconds(sends, num_sequences, num_steps)
        for row, milliseconds in zip(rows, found, strict=True):
            row[f"{where}_ms"] = round(milliseconds, 3)
            row[f"{where}_ratio"] = round(milliseconds / found[0], 2)
    return rows


def main() -> int:
    """Print the table, or the rows as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sequences", type=int, default=256)
    parser.add_argument("--steps", type=int, default=300)
    add_json_option(parser)
    args = parser.parse_args()
    rows = measure(args.sequences, args.steps)
    if tell_as_json(args.json, {"num_sequences": args.sequences, "num_steps": args.steps, "rows": rows}):
        return 0
    print(f"{args.sequences} sequences, a token each, median of {args.steps} steps")
    print(f"{'groups':<24}{'core ms':>9}{'ratio':>7}{'http ms':>9}{'ratio':>7}")
    for row in rows:
        print(
            f"{row['groups']:<24}{row['core_ms']:>9.3f}{row['core_ratio']:>7.2f}"
            f"{row['http_ms']:>9.3f}{row['http_ratio']:>7.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
