"""What the journal costs: beside a server that keeps none, at a restart, and while a snapshot is taken.

python tests/benchmarks/bench_journal.py [--calls N] [--num-blocks N] [--sequences N] [--commands N] [--json]

Calls go in turns to two servers, one with the default journal and one with --volatile: a step that extends
256 sequences, and `allocate` with `free` of 16 blocks. The restart is that of a pool of --num-blocks, with
--sequences live and --commands after its last snapshot: from the start of the process to its ready line. Then
a snapshot of that pool is taken while one connection allocates and frees: the slowest call is told, and the
slowest of as many without a snapshot.
"""

import argparse
import platform
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from blockyard.client import Admission, Client, Lease, StepCommit, StepExtend
from blockyard.core.commands import Allocate, Command, Commit, CreateLease, Free
from blockyard.core.config import GroupConfig, PoolConfig
from blockyard.core.ids import BlockHash, LeaseId, SequenceId
from blockyard.core.pool import Pool
from blockyard.server.journal.command_codec import encode_command, join_batch
from blockyard.server.journal.data_dir import DataDir
from blockyard.server.journal.interface import Record, Snapshot
from blockyard.server.journal.pool_state import encode_definition, encode_state
from blockyard.server.journal.sqlite_journal import SqliteJournal

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.report.as_json import add_json_option, tell_as_json
from server_process import running_server

POOL, LEASE = "benchmark", LeaseId("benchmark")
BLOCK_SIZE, NUM_STEPPING, NUM_TOKENS = 16, 256, 256
TTL_MS = 7 * 24 * 3600 * 1000
COMMANDS_A_TURN = 4


# Beside a volatile server


def cost_of_calls(num_calls: int) -> dict[str, float]:
    """Median microseconds of a call to either server; as a ratio, how many more the first does in a time."""
    calls: dict[str, dict[str, Callable[[int], None]]] = {}
    with ExitStack() as stack:
        for name, options in (("volatile", ["--volatile"]), ("journal", [])):
            server = stack.enter_context(running_server("--log-level", "error", *options))
            client = stack.enter_context(Client(server.url))
            pool = client.create_pool(POOL, num_blocks=400_000, block_size=BLOCK_SIZE)
            lease = stack.enter_context(pool.lease("benchmark", TTL_MS, renew=False))
            calls[name] = {"step": stepping(lease), "allocate_free": allocating(lease)}
        times = {kind: median_us(calls, kind, num_calls) for kind in calls["journal"]}
    figures: dict[str, float] = {}
    for kind, of_server in times.items():
        figures |= {f"{kind}_{name}_us": round(value, 1) for name, value in of_server.items()}
        figures[f"{kind}_rate_beside_volatile"] = round(of_server["volatile"] / of_server["journal"], 3)
    return figures


def median_us(
    calls: dict[str, dict[str, Callable[[int], None]]], kind: str, num_calls: int
) -> dict[str, float]:
    """One call to each server after the other, so that whatever else the machine does meets both."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(num_calls):
        for name, of_server in calls.items():
            times[name].append(seconds(of_server[kind], number))
    return {name: median(values) * 1e6 for name, values in times.items()}


def seconds(call: Callable[[int], None], number: int) -> float:
    """How long the call of this number takes."""
    start = perf_counter()
    call(number)
    return perf_counter() - start


def stepping(lease: Lease) -> Callable[[int], None]:
    """Steps that extend sequences by a token each."""
    lengths = [1_024 + number % BLOCK_SIZE for number in range(NUM_STEPPING)]
    admitted = lease.step(
        admit=[
            Admission(sequence_id=SequenceId(f"s{n}"), num_tokens=length) for n, length in enumerate(lengths)
        ]
    )
    handles = [each.sequence for each in admitted.admit if not hasattr(each, "code")]

    def step(number: int) -> None:
        lengths_now = [length + number for length in lengths]
        lease.step(
            commit=StepCommit(sequences=handles, num_computed_tokens=lengths_now),
            extend=StepExtend(sequences=handles, num_tokens=[length + 1 for length in lengths_now]),
        )

    return step


def allocating(lease: Lease) -> Callable[[int], None]:
    def allocate_and_free(number: int) -> None:
        lease.allocate(f"a{number}", NUM_TOKENS)
        lease.free([f"a{number}"])

    return allocate_and_free


# A large pool


def fill(path: Path, num_blocks: int, num_sequences: int, num_commands: int) -> None:
    """A data directory as a server leaves it: a snapshot with every block cached, and commands after it."""
    data_dir = DataDir(path)
    data_dir.make()
    group = GroupConfig(kind="full_attention", block_size=BLOCK_SIZE)
    config = PoolConfig.of(num_blocks=num_blocks, groups=[group])
    pool = Pool(config)
    pool.apply(CreateLease(lease_id=LEASE, holder="benchmark", ttl_ms=TTL_MS), 0)
    cache_every_block(pool, num_blocks)
    asked = day(num_sequences)
    for _ in range(num_sequences):
        pool.apply(next(asked), 0)
    with closing(SqliteJournal(data_dir)) as journal:
        key = journal.create(POOL, encode_definition(config, None))
        journal.save_snapshot(key, Snapshot(number=1, state=encode_state(pool)))
        for number in range(1, num_commands, COMMANDS_A_TURN):
            entries = [encode_command(next(asked), 0) for _ in range(COMMANDS_A_TURN)]
            journal.append([Record(key=key, number=number + COMMANDS_A_TURN, payload=join_batch(entries))])


def cache_every_block(pool: Pool, num_blocks: int) -> None:
    """So that a snapshot is as large as it can be."""
    num_tokens = 1_000 * BLOCK_SIZE
    for prompt in range((num_blocks - 1) // 1_000):
        name = SequenceId(f"p{prompt}")
        pool.apply(allocate(name, num_tokens, fresh_hashes(prompt, num_tokens)), 0)
        pool.apply(Commit(lease_id=LEASE, sequence_id=name, num_computed_tokens=num_tokens), 0)
        pool.apply(Free(lease_id=LEASE, sequence_ids=[name]), 0)


def day(num_sequences: int) -> Iterator[Command]:
    """First ``num_sequences`` are admitted; then they grow block by block, and some make room for others."""
    draw = random.Random(0)
    names = [SequenceId(f"s{number}") for number in range(num_sequences)]
    lengths = dict.fromkeys(names, NUM_TOKENS)
    prompt = iter(range(-1, -(10**9), -1))
    for name in names:
        yield allocate(name, NUM_TOKENS, fresh_hashes(next(prompt), NUM_TOKENS))
    while True:
        name = draw.choice(names)
        if lengths[name] >= 2 * NUM_TOKENS:
            yield Free(lease_id=LEASE, sequence_ids=[name])
            lengths[name] = NUM_TOKENS
            yield allocate(name, NUM_TOKENS, fresh_hashes(next(prompt), NUM_TOKENS))
        else:
            lengths[name] += BLOCK_SIZE
            yield allocate(name, lengths[name], fresh_hashes(next(prompt), BLOCK_SIZE))
        yield Commit(lease_id=LEASE, sequence_id=name, num_computed_tokens=lengths[name])


def allocate(name: SequenceId, num_tokens: int, block_hashes: list[BlockHash]) -> Allocate:
    admission = Admission(sequence_id=name, num_tokens=num_tokens, block_hashes=block_hashes)
    return Allocate(lease_id=LEASE, admission=admission)


def fresh_hashes(prompt: int, num_tokens: int) -> list[BlockHash]:
    """As many as so many tokens have blocks, and no others have."""
    return [
        prompt.to_bytes(16, "big", signed=True) + block.to_bytes(16, "big")
        for block in range(num_tokens // BLOCK_SIZE)
    ]


def restart_seconds(path: Path) -> float:
    start = perf_counter()
    with running_server("--log-level", "error", "--data-dir", str(path)):
        return perf_counter() - start


def snapshot_pauses(path: Path, num_blocks: int) -> dict[str, float]:
    """Milliseconds of the slowest of many calls, while a snapshot is taken and while none is."""
    with (
        running_server("--log-level", "error", "--data-dir", str(path), "--snapshot-commands", "1") as server,
        Client(server.url) as client,
        client.pool(POOL).lease("watching", TTL_MS, renew=False) as lease,
    ):
        call = allocating(lease)
        during: list[float] = []
        before = snapshot_names(path)
        while snapshot_names(path) == before:
            during.append(seconds(call, len(during)))
    with (
        running_server("--log-level", "error", "--data-dir", str(path)) as server,
        Client(server.url) as client,
        client.pool(POOL).lease("watching", TTL_MS, renew=False) as lease,
    ):
        call = allocating(lease)
        after = [seconds(call, number) for number in range(len(during))]
    return {
        "num_blocks": num_blocks,
        "calls_during_snapshot": len(during),
        "slowest_call_during_snapshot_ms": round(max(during) * 1e3, 1),
        "slowest_call_without_ms": round(max(after) * 1e3, 1),
    }


def snapshot_names(path: Path) -> set[str]:
    return {each.name for each in (path / "snapshots").glob("*.snapshot")}


def main() -> int:
    """Print the figures as a table, or as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--num-blocks", type=int, default=1_000_000)
    parser.add_argument("--sequences", type=int, default=10_000)
    parser.add_argument("--commands", type=int, default=100_000)
    add_json_option(parser)
    args = parser.parse_args()
    figures: dict[str, Any] = {"python": platform.python_version(), **cost_of_calls(args.calls)}
    with TemporaryDirectory(prefix="blockyard-") as folder:
        path = Path(folder) / "data"
        fill(path, args.num_blocks, args.sequences, args.commands)
        figures["restart_s"] = round(restart_seconds(path), 2)
        figures |= snapshot_pauses(path, args.num_blocks)
    if tell_as_json(args.json, figures):
        return 0
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):40} {value:>12}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
