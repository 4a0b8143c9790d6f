"""Whatever comes as a body is read or refused, in either form, and a fault of ours is none of the answers."""

import json
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.support import make_api, make_lease, make_pool
from blockyard.core.errors import InvalidRequest
from blockyard.server.hash_limit import HashLimit
from blockyard.server.media import JSON, MSGPACK, BodyReader
from blockyard.server.pool_calls import POOL_CALLS, PoolCall
from blockyard.server.settings import MAX_PREFIXES, MAX_TOKENS
from fuzz.mutations import damaged, faulty, fuzzed

HASHES = [f"{number:064x}" for number in range(3)]
EXTRAS = {
    "mm_features": [{"offset": 0, "length": 4, "identifier": "image"}],
    "lora": {"name": "adapter", "path": "/adapter"},
    "cache_salt": "salt",
    "prompt_embeds_float32": [[0.5, 1.5], [2.0, -0.25]],
}
ADMISSION = {
    "sequence_id": "s",
    "num_tokens": 40,
    "max_new_tokens": 16,
    "num_lookahead_tokens": 2,
    "num_prompt_tokens": 40,
    "num_encoder_tokens": 0,
    "block_hashes": HASHES,
    "token_ids": [],
    "event_token_ids": list(range(12)),
    "full_sequence_must_fit": True,
    **EXTRAS,
}
LEASE = {"lease_id": "lease", "epoch": 1}
BODIES: dict[str, dict[str, Any]] = {
    "/step": {
        **LEASE,
        "step_id": 3,
        "commit": {"sequences": [1, 2], "num_computed_tokens": [16, 17]},
        "free": {"sequences": [3]},
        "extend": {
            "sequences": [1, 2],
            "num_tokens": [40, 41],
            "num_computed_tokens": [16, 17],
            "num_lookahead_tokens": 1,
            "block_hashes": {"1": HASHES},
            "token_ids": {"2": [5, 6]},
            "event_token_ids": {"1": [7, 8]},
            "only_changes": True,
        },
        "admit": [ADMISSION],
    },
    "/allocate": {**LEASE, **ADMISSION, "num_computed_tokens": 0},
    "/commit": {**LEASE, "sequence_id": "s", "num_computed_tokens": 16, "block_hashes": HASHES},
    "/fork": {
        **LEASE,
        "sequence_id": "s",
        "new_sequence_ids": ["t", "u"],
        "block_hashes": HASHES,
        "token_ids": [5],
        "event_token_ids": [7],
    },
    "/free": {**LEASE, "sequence_ids": ["s", "t"]},
    "/lookup": {"epoch": 1, "num_tokens": 40, "block_hashes": HASHES, **EXTRAS},
    "/prefixes": {"epoch": 1, "prefixes": [{"num_tokens": 40, "block_hashes": HASHES, **EXTRAS}, {}]},
    "/pins": {"epoch": 1, "ttl_ms": 1000, "hard": True, "block_hashes": HASHES, **EXTRAS},
    "/pins/{pin_id}/renew": {"epoch": 1, "ttl_ms": 1000},
    "/pins/{pin_id}": {"epoch": 1},
    "/leases": {"epoch": 1, "holder": "test", "ttl_ms": 1000},
    "/leases/{lease_id}/renew": {"epoch": 1},
    "/leases/{lease_id}": {"epoch": 1},
    "/blocks/allocate": {**LEASE, "num_blocks": 2},
    "/blocks/free": {**LEASE, "block_ids": [1, 2]},
    "/reset_prefix_cache": {"epoch": 1},
}
"""A body with every field, by the path of its call."""

PLAN: dict[str, Any] = {
    "workers": [
        {
            "available_memory_bytes": 2**24,
            "layers": {
                "a": {
                    "kind": "full_attention",
                    "block_size": 16,
                    "num_kv_heads": 2,
                    "head_size": 64,
                    "dtype": "bfloat16",
                },
                "b": {
                    "kind": "mamba",
                    "block_size": 16,
                    "shapes": [[4, 16]],
                    "dtypes": ["float32"],
                },
            },
        }
    ],
    "max_model_len": 256,
    "parallel": {"tensor": 1, "pipeline": 1},
    "prefix_match_unit": 16,
    "tensor_form": "layers",
}
WITH_CONFIG: dict[str, Any] = {
    "workers": [{"available_memory_bytes": 2**30}],
    "max_model_len": 256,
    "hf_config": {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 256,
        "torch_dtype": "bfloat16",
        "max_position_embeddings": 4096,
    },
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "/v1/plans": ("POST", PLAN),
    "/v1/plans?": ("POST", WITH_CONFIG),
    "/v1/hash": ("POST", {"algorithm": "sha256", "block_size": 4, "token_ids": [1, 2, 3, 4], **EXTRAS}),
    "/v1/pools/new": (
        "PUT",
        {
            "num_blocks": 64,
            "groups": [
                {"kind": "full_attention", "block_size": 16},
                {"kind": "sliding_window", "block_size": 16, "sliding_window": 64},
            ],
            "events": {"topic": "t", "hash_form": "bytes", "rank": 0},
            "hash_seed": "seed",
        },
    ),
    "/v1/pools/planned": ("PUT", {"plan": WITH_CONFIG}),
    "/v1/pools/pool/workers": (
        "POST",
        {"worker_id": "w", "rank": 0, "device": "cpu", "incarnation": "one", "epoch": 1},
    ),
    "/v1/pools/pool/workers/w/heartbeat": ("POST", {"incarnation": "one", "epoch": 1}),
}
"""Method and body of the other routes that read one."""


def reader_of(call: PoolCall) -> BodyReader[Any]:
    return BodyReader(
        call.body, takes_msgpack=call.is_hot, check_faults=HashLimit(MAX_TOKENS, MAX_PREFIXES).check_faults
    )


def packed(document: Any) -> bytes | None:
    """None: msgpack has no such values."""
    try:
        return ormsgpack.packb(document, option=ormsgpack.OPT_NON_STR_KEYS)
    except ormsgpack.MsgpackEncodeError:
        return None


def as_msgpack(document: dict[str, Any]) -> dict[str, Any]:
    """A body of `BODIES` as msgpack has it."""

    def converted(value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return {
                int(key) if key.isdecimal() else key: converted(part, name if key.isdecimal() else key)
                for key, part in value.items()
            }
        if isinstance(value, list):
            return [converted(part, name) for part in value]
        return bytes.fromhex(value) if name == "block_hashes" else value

    found = converted(document, "")
    assert isinstance(found, dict)
    return found


def read(reader: BodyReader[Any], raw: bytes, media_type: str) -> None:
    """Claim: it is read, or refused by name."""
    try:
        reader.read(raw, {b"content-type": media_type.encode()})
    except InvalidRequest as refusal:
        json.dumps(refusal.figures).encode()  # what is said of it can be sent
        str(refusal).encode()


@pytest.mark.parametrize("call", POOL_CALLS, ids=lambda call: call.path)
def test_a_body_is_the_same_in_both_forms(call: PoolCall) -> None:
    document = BODIES[call.path]
    as_json = reader_of(call).read(json.dumps(document).encode(), {b"content-type": JSON.encode()})
    assert json.loads(json.dumps(as_json.model_dump(exclude_unset=True), default=bytes.hex)) == document
    if call.is_hot:
        raw = packed(as_msgpack(document))
        assert raw is not None
        assert reader_of(call).read(raw, {b"content-type": MSGPACK.encode()}) == as_json


@pytest.mark.parametrize("call", POOL_CALLS, ids=lambda call: call.path)
def test_bytes_are_read_as_a_body_or_refused(call: PoolCall) -> None:
    reader, document = reader_of(call), BODIES[call.path]
    as_json, raw = json.dumps(document).encode(), packed(as_msgpack(document))
    assert raw is not None

    @fuzzed
    @given(st.data())
    def each(data: st.DataObject) -> None:
        read(reader, data.draw(st.one_of(st.binary(max_size=200), damaged(as_json))), JSON)
        read(reader, data.draw(st.one_of(st.binary(max_size=200), damaged(raw))), MSGPACK)

    each()


@pytest.mark.parametrize("call", POOL_CALLS, ids=lambda call: call.path)
def test_a_body_with_faults_is_read_or_refused(call: PoolCall) -> None:
    reader, document = reader_of(call), BODIES[call.path]

    @fuzzed
    @given(faulty(document), faulty(as_msgpack(document), binary=True))
    def each(as_json: Any, as_packed: Any) -> None:
        read(reader, json.dumps(as_json).encode(), JSON)
        raw = packed(as_packed)
        if raw is not None:
            read(reader, raw, MSGPACK)

    each()


@pytest.mark.parametrize("path", OTHERS)
def test_a_faulty_body_is_no_mistake_of_ours(path: str) -> None:
    method, document = OTHERS[path]
    raw = json.dumps(document).encode()
    with make_api(max_pools=100_000) as api:
        make_pool(api)

        @fuzzed
        @given(
            st.one_of(
                faulty(document).map(lambda found: json.dumps(found).encode()),
                damaged(raw),
                st.binary(max_size=50),
            )
        )
        def each(body: bytes) -> None:
            answer = api.request(method, path, content=body, headers={"content-type": JSON})
            assert answer.status_code < 500, (answer.text, body)

        each()
        assert api.get("/v1/pools/pool/audit").json()["ok"]


def test_a_faulty_call_leaves_a_pool_whole() -> None:
    """Through the routes, with a lease that stands: what is read is also done."""
    with make_api() as api:
        pool = make_pool(api, num_blocks=64, block_size=16)
        lease = make_lease(api, pool)
        hot = [call for call in POOL_CALLS if call.is_hot]

        @fuzzed
        @given(st.data())
        def each(data: st.DataObject) -> None:
            call = data.draw(st.sampled_from(hot))
            document = (
                {**BODIES[call.path], "lease_id": lease} if call.path != "/lookup" else BODIES["/lookup"]
            )
            if data.draw(st.booleans()):
                body, media_type = json.dumps(data.draw(faulty(document))).encode(), JSON
            else:
                raw = packed(data.draw(faulty(as_msgpack(document), binary=True)))
                body, media_type = raw or b"", MSGPACK
            answer = api.post(pool + call.path, content=body, headers={"content-type": media_type})
            assert answer.status_code < 500, (answer.text, body)

        each()
        assert api.get(f"{pool}/audit").json()["ok"]
