"""Bodies that get somewhere: small and mostly right, beside those that are drawn from the schema alone."""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

MODELS = sorted((Path(__file__).parents[1] / "planning" / "data" / "models").glob("*.json"))
LEASE = "prepared"
"""Stands for the id of the pool's prepared lease."""

PIN = "pinned"
"""Likewise of its pin."""

sequences = st.sampled_from(["s1", "s2", "s3"])
handles = st.integers(1, 12)
counts = st.integers(0, 40)
lengths = st.integers(1, 80)
hashes = st.lists(st.sampled_from([f"{number:064x}" for number in range(6)]), max_size=5)
tokens = st.lists(st.integers(0, 3), max_size=40)


def bodies(
    required: dict[str, st.SearchStrategy[Any]], optional: dict[str, st.SearchStrategy[Any]] | None = None
) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional or {})


def columns(**columns: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, list[Any]]]:
    """Columns of one length, sequences by handle."""
    rows = st.lists(
        st.tuples(handles, *columns.values()), max_size=4, unique_by=lambda row: row[0]
    )  # a step names a sequence once
    names = ("sequences", *columns)
    return rows.map(lambda drawn: {name: [row[at] for row in drawn] for at, name in enumerate(names)})


content = {"block_hashes": hashes, "token_ids": tokens, "event_token_ids": tokens}
admission = {
    "max_new_tokens": lengths,
    "num_lookahead_tokens": st.integers(0, 4),
    "skip_prefix_cache": st.booleans(),
    "full_sequence_must_fit": st.booleans(),
    "end_at_state": st.booleans(),
    "num_prompt_tokens": lengths,
    "cache_salt": st.sampled_from(["a", "b"]),
    **content,
}
names = {"sequence_id": sequences, "num_tokens": lengths}
lease = {"lease_id": st.just(LEASE)}

layers = bodies(
    {
        "kind": st.sampled_from(["full_attention", "sliding_window", "mla_attention"]),
        "block_size": st.sampled_from([16, 32]),
        "num_kv_heads": st.sampled_from([1, 2]),
        "head_size": st.sampled_from([32, 64]),
        "dtype": st.sampled_from(["bfloat16", "float8_e4m3fn"]),
    }
).map(lambda layer: {**layer, "sliding_window": 64} if layer["kind"] == "sliding_window" else layer)
plans = st.one_of(
    bodies(
        {
            "workers": st.lists(
                bodies(
                    {
                        "available_memory_bytes": st.integers(2**18, 2**26),
                        "layers": st.dictionaries(
                            st.sampled_from(["a", "b", "c", "d"]), layers, min_size=1, max_size=4
                        ),
                    }
                ),
                min_size=1,
                max_size=2,
            ),
            "max_model_len": st.sampled_from([64, 256, 1000]),
        },
        {
            "tensor_form": st.sampled_from(["slots", "layers"]),
            "hybrid_groups": st.booleans(),
            "layout": st.sampled_from(["LBNHC", "BLNHC"]),
            "num_blocks_override": st.integers(1, 300),
        },
    ),
    bodies(
        {
            "workers": st.just([{"available_memory_bytes": 2**34}]),
            "hf_config": st.sampled_from(MODELS).map(lambda path: json.loads(path.read_text())),
            "max_model_len": st.sampled_from([64, 4096]),
        },
        {"auto_fit_max_model_len": st.booleans(), "enable_prefix_caching": st.booleans()},
    ),
)
pools = st.one_of(
    bodies(
        {"num_blocks": st.integers(2, 64), "block_size": st.sampled_from([1, 4, 16])},
        {
            "publish": st.sampled_from(["on_commit", "on_allocate"]),
            "eviction": st.sampled_from(["lru", "adaptive"]),
            "watermark_blocks": st.integers(0, 3),
            "events": st.booleans(),
            "max_model_len": lengths,
        },
    ),
    bodies({"plan": plans}),
)

BODIES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "PUT /v1/pools/{pool}": pools,
    "POST /v1/plans": plans,
    "POST /v1/hash": bodies(
        {"algorithm": st.sampled_from(["sha256", "blake2b"]), "block_size": lengths, "token_ids": tokens}
    ),
    "POST /v1/pools/{pool}/allocate": bodies(
        {**lease, **names}, {"num_computed_tokens": counts, **admission}
    ),
    "POST /v1/pools/{pool}/commit": bodies(
        {**lease, "sequence_id": sequences, "num_computed_tokens": counts}, content
    ),
    "POST /v1/pools/{pool}/fork": bodies(
        {
            **lease,
            "sequence_id": sequences,
            "new_sequence_ids": st.lists(sequences, min_size=1, max_size=2, unique=True),
        },
        content,
    ),
    "POST /v1/pools/{pool}/free": bodies({**lease, "sequence_ids": st.lists(sequences, max_size=3)}),
    "POST /v1/pools/{pool}/lookup": bodies({"num_tokens": lengths}, content),
    "POST /v1/pools/{pool}/prefixes": bodies(
        {"prefixes": st.lists(bodies({}, {"block_hashes": hashes, "num_tokens": lengths}), max_size=3)}
    ),
    "POST /v1/pools/{pool}/pins": bodies(
        {"block_hashes": hashes, "ttl_ms": st.sampled_from([1, 60_000])}, {"hard": st.booleans()}
    ),
    "POST /v1/pools/{pool}/pins/{pin_id}/renew": bodies({}, {"ttl_ms": st.just(60_000)}),
    "DELETE /v1/pools/{pool}/pins/{pin_id}": bodies({}),
    "POST /v1/pools/{pool}/step": bodies(
        lease,
        {
            "step_id": counts,
            "commit": columns(num_computed_tokens=counts),
            "free": columns(),
            "extend": columns(num_tokens=lengths),
            "admit": st.lists(bodies(names, admission), max_size=2, unique_by=lambda row: row["sequence_id"]),
        },
    ),
    "POST /v1/pools/{pool}/blocks/allocate": bodies({**lease, "num_blocks": st.integers(1, 8)}),
    "POST /v1/pools/{pool}/blocks/free": bodies(
        {**lease, "block_ids": st.lists(st.integers(1, 12), max_size=4, unique=True)}
    ),
    "POST /v1/pools/{pool}/workers": bodies(
        {
            "worker_id": st.sampled_from(["w0", "w1"]),
            "rank": st.just(0),
            "device": st.just("cpu"),
            "incarnation": st.integers(0, 1),
        }
    ),
    "POST /v1/pools/{pool}/workers/{worker_id}/heartbeat": bodies({}),
    "DELETE /v1/pools/{pool}/workers/{worker_id}": bodies({}),
    "DELETE /v1/pools/{pool}/leases/{lease_id}": bodies({}),
}
"""By operation."""
