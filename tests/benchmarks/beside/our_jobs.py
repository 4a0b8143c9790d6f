"""Does jobs with `blockyard.core.pool.Pool`, in a process of its own: see `jobs`.

Timed is `Pool.apply` of an `Allocate` (which looks up as well), a `Commit` where the job's ``publish`` is
``on_commit``, and a `Free`. The commands exist before, with their hashes.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.beside.jobs import requests_of, serve, timed
from blockyard.core.commands import Admission, Allocate, Command, Commit, CreateLease, Free
from blockyard.core.config import Eviction, GroupConfig, PoolConfig, Publish
from blockyard.core.errors import InsufficientBlocks
from blockyard.core.ids import LeaseId, SequenceId
from blockyard.core.pool import Pool
from blockyard.core.replies import Allocated

LEASE = LeaseId("benchmark")


def do(job: Mapping[str, Any]) -> dict[str, Any]:
    publish = Publish(job["publish"])
    group = GroupConfig(kind="full_attention", block_size=job["block_size"])
    eviction = Eviction(job.get("eviction", Eviction.LRU))
    pool = Pool(
        PoolConfig.of(num_blocks=job["num_blocks"], groups=[group], publish=publish, eviction=eviction)
    )
    pool.apply(CreateLease(lease_id=LEASE, holder="benchmark", ttl_ms=10**9), 0)
    lots: list[list[tuple[Allocate, Command | None, Free]]] = []
    for number, request in enumerate(requests_of(job)):
        name = SequenceId(request.name)
        admission = Admission(
            sequence_id=name, num_tokens=request.num_tokens, block_hashes=request.block_hashes
        )
        commit = Commit(lease_id=LEASE, sequence_id=name, num_computed_tokens=request.num_tokens)
        if number % job["at_a_time"] == 0:
            lots.append([])
        lots[-1].append(
            (
                Allocate(lease_id=LEASE, admission=admission),
                commit if publish is Publish.ON_COMMIT else None,
                Free(lease_id=LEASE, sequence_ids=[name]),
            )
        )
    apply = pool.apply

    def run() -> int:
        num_cached = 0
        for lot in lots:
            held = []
            for allocate, commit, free in lot:
                try:
                    allocated = apply(allocate, 0)
                except InsufficientBlocks:
                    continue
                assert isinstance(allocated, Allocated)
                num_cached += allocated.num_cached_tokens or 0
                if commit is not None:
                    apply(commit, 0)
                held.append(free)
            for free in held:
                apply(free, 0)
        return num_cached

    done = timed(run)
    assert pool.audit().ok
    return done


if __name__ == "__main__":
    serve(do)
