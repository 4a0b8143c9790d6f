"""Requests that are wrong, absurd or hostile: each is refused by name, or answered, and soon."""

import json
import math
import re
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import MISSING, fields
from types import FrameType
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.support import make_api
from blockyard.core.errors import BlockyardError, InvalidRequest
from blockyard.planning.errors import PLAN_ERRORS
from blockyard.planning.layers import LAYER_KINDS
from blockyard.planning.planner import plan
from blockyard.server.plan_reply import plan_reply
from blockyard.server.plan_schemas import PlanBody

CODES = {InvalidRequest.code} | {error.code for error in PLAN_ERRORS}

LAYER_FIELDS: dict[str, Any] = {
    "block_size": 16,
    "page_size_padded": 4096,
    "num_kv_heads": 1,
    "head_size": 16,
    "dtype": "bfloat16",
    "head_size_v": 16,
    "kv_quant_mode": "none",
    "num_head_slots": 1,
    "state_content_bytes": 64,
    "tokens_per_state": 1,
    "block_stride_alignment": 16,
    "max_tp_shards": 1,
    "dcp_sharded": True,
    "sliding_window": 64,
    "attention_chunk_size": 64,
    "extra_retained_tokens": 0,
    "sink_len": 4,
    "cache_dtype_str": "auto",
    "alignment": 16,
    "model_version": "v1",
    "non_causal_multi_token_decode": False,
    "cache_role": "sparse",
    "is_index_group_leader": False,
    "shapes": [[4, 16]],
    "dtypes": ["float32"],
    "mamba_cache_mode": "none",
    "num_speculative_blocks": 0,
}
"""A value for every field that any kind of layer has."""

REQUEST: dict[str, Any] = {
    "max_model_len": 256,
    "auto_fit_max_model_len": False,
    "block_size": 16,
    "layout": "BLHNC",
    "num_blocks_override": 64,
    "enable_prefix_caching": True,
    "prefix_match_unit": 16,
    "hybrid_groups": True,
    "mamba_cache_mode": "none",
    "max_in_flight_tokens": 64,
    "max_encoder_tokens": 64,
    "kv_cache_dtype": "auto",
    "tensor_form": "layers",
    "parallel": {
        "tensor": 1,
        "pipeline": 1,
        "decode_context": 1,
        "prefill_context": 1,
        "num_hidden_layers": 1,
        "pipeline_partition": [1],
    },
    "speculative": {"method": "eagle", "model_type": "llama", "num_prefill_lookahead_tokens": 1},
}
"""A value for every field of a request beside its workers and those that exclude others."""

WORKER = {"total_memory_bytes": 2**20, "memory_utilization": 0.5, "weights_bytes": 1024}

NO_COUNTS: list[Any] = [-1, 10**30, "1", "x", True, [], {}, 1e300, -0.5]
"""Neither counts nor parts of one. What is no number of JSON's makes the whole body none."""

Place = tuple[str | int, ...]


def make_layer(kind: str) -> dict[str, Any]:
    """A layer of ``kind`` with every field that it has."""
    return {"kind": kind, **{each.name: LAYER_FIELDS[each.name] for each in fields(LAYER_KINDS[kind])}}


def make_request(kind: str = "full_attention", **options: Any) -> dict[str, Any]:
    """A request that says all it can, for one layer of ``kind``."""
    return {"workers": [{**WORKER, "layers": {"l": make_layer(kind)}}], **deepcopy(REQUEST), **options}


def hisparse_request() -> dict[str, Any]:
    layers = {"l": make_layer("mla_attention"), "i": {**make_layer("mla_attention"), "cache_role": "indexer"}}
    hisparse = {
        "host_pool_bytes": 2**20,
        "index_topk": 16,
        "device_buffer_size": 64,
        "max_decode_query_len": 1,
        "shared_host_pool": True,
    }
    return {**make_request(), "workers": [{**WORKER, "layers": layers}], "hisparse": hisparse}


REQUESTS = {kind: make_request(kind) for kind in LAYER_KINDS} | {"hisparse": hisparse_request()}


def places(value: Any, inside: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every field of a body, and every item of its lists."""
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for name, item in items:
        yield (*inside, name), item
        yield from places(item, (*inside, name))


def changed(body: dict[str, Any], place: Place, value: Any) -> dict[str, Any]:
    """``body`` with ``value`` at ``place``; without it for MISSING."""
    other = deepcopy(body)
    target: Any = other
    for name in place[:-1]:
        target = target[name]
    if value is MISSING:
        del target[place[-1]]
    else:
        target[place[-1]] = value
    return other


def named_fields(problem: dict[str, Any]) -> list[str]:
    return [error["field"] for error in problem["errors"]]


def dotted(place: Place) -> str:
    return ".".join(map(str, place))


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    with make_api(log_level="error") as client:
        yield client


def faults(
    api: TestClient, body: dict[str, Any], place: Place, *, must_refuse: bool, or_beside: bool = False
) -> list[str]:
    """What is wrong with the answer to ``body``, whose fault is at ``place``.

    ``or_beside``: a field beside it may be named in its place.
    """
    reply = api.post("/v1/plans", content=json.dumps(body), headers={"Content-Type": "application/json"})
    said = f"{dotted(place)}: {reply.status_code} {reply.text[:200]}"
    if reply.status_code == 200:
        return [f"not refused: {said}"] if must_refuse else []
    if reply.status_code != 422 or reply.json()["code"] not in CODES:
        return [f"not an answer: {said}"]
    if reply.json()["code"] != InvalidRequest.code:
        return [f"not refused for the value: {said}"] if must_refuse else []
    named = named_fields(reply.json())
    is_named = dotted(place) in named or (or_beside and any(f.startswith(dotted(place[:-1])) for f in named))
    return [] if is_named else [f"not named: {said}"]


def test_every_field_of_every_kind_is_tried(api: TestClient) -> None:
    assert {each.name for kind in LAYER_KINDS.values() for each in fields(kind)} == set(LAYER_FIELDS)
    tried = {place[0] for body in REQUESTS.values() for place, _ in places(body)}
    assert tried == set(PlanBody.model_fields) - {"hf_config"}
    for body in REQUESTS.values():
        assert api.post("/v1/plans", json=body).status_code == 200, api.post("/v1/plans", json=body).text


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_number_that_is_none_is_refused_by_its_field(api: TestClient, request_name: str) -> None:
    body = REQUESTS[request_name]
    found = []
    for place, value in places(body):
        if isinstance(value, int | float) and not isinstance(value, bool):
            for wrong in NO_COUNTS:
                found += faults(api, changed(body, place, wrong), place, must_refuse=True)
    assert found == []


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_value_of_another_type_is_refused_by_its_field(api: TestClient, request_name: str) -> None:
    body = REQUESTS[request_name]
    found = []
    for place, value in places(body):
        wrongs: tuple[Any, ...] = ()
        if isinstance(value, bool):
            wrongs = (0, 1, "true", None, [], {})
        elif isinstance(value, str) and place[-1] != "kind":
            wrongs = (0, 7, "", "x" * 257, True, [], {}, 1.5)
        elif isinstance(value, list):
            wrongs = (0, "x", True, {}, 1.5)
        elif isinstance(value, dict) and place[-1] != "l":
            wrongs = (0, "x", True, [], 1.5)
        for wrong in wrongs:
            found += faults(api, changed(body, place, wrong), place, must_refuse=True)
    assert found == []


@pytest.mark.parametrize("request_name", REQUESTS)
def test_zero_null_and_nothing_are_taken_or_refused_by_their_field(
    api: TestClient, request_name: str
) -> None:
    body = REQUESTS[request_name]
    found = []
    for place, value in places(body):
        for wrong in (0, None, MISSING):
            is_item = isinstance(place[-1], int)
            if (
                place[-1] in ("kind", "cache_role", "l", "i")
                or (is_item and wrong is MISSING)
                or isinstance(value, bool)
            ):
                continue
            must_refuse = wrong != 0 and place[-1] in ("dtype", "num_kv_heads", "shapes", "dtypes", "method")
            body_of = changed(body, place, wrong)
            found += faults(api, body_of, place, must_refuse=must_refuse, or_beside=True)
    assert found == []


@pytest.mark.parametrize("request_name", REQUESTS)
def test_an_unknown_field_is_refused_by_its_name(api: TestClient, request_name: str) -> None:
    body = REQUESTS[request_name]
    inside: list[Place] = [(), *(place for place, value in places(body) if isinstance(value, dict))]
    found = []
    for place in inside:
        if place[-1:] != ("layers",):
            where = (*place, "surprise")
            found += faults(api, changed(body, where, 1), where, must_refuse=True)
    assert found == []


@pytest.mark.parametrize("kind", [None, 7, "", "attention", "Mamba", [], {}, MISSING])
def test_a_kind_that_is_none_is_refused(api: TestClient, kind: Any) -> None:
    place = ("workers", 0, "layers", "l", "kind")
    assert faults(api, changed(make_request(), place, kind), place, must_refuse=True) == []


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        (("workers", 0, "available_memory_bytes"), 2**30, "workers.0.total_memory_bytes"),
        (("workers", 0, "total_memory_bytes"), MISSING, "workers.0.available_memory_bytes"),
        (("workers", 0, "layers"), MISSING, "workers.0.layers"),
        (("workers", 0, "layers"), None, "workers.0.layers"),
        (("max_model_len",), None, "max_model_len"),
        (("hf_config",), {"model_type": "llama"}, "hf_config"),
        (("hf_config",), 7, "hf_config"),
        (("hf_config",), [], "hf_config"),
        (("parallel", "pipeline"), 2, "parallel.pipeline_partition"),
        (("parallel", "num_hidden_layers"), 7, "parallel.pipeline_partition"),
        (("workers", 0, "layers", "l", "dtype"), "int4", "workers.0.layers.l.dtype"),
        (("workers", 0, "layers", "l", "page_size_padded"), 1, "workers.0.layers.l.page_size_padded"),
        (("workers", 0, "layers", "l", "tokens_per_state"), 3, "workers.0.layers.l.tokens_per_state"),
        (("workers", 0, "layers", "l", "kv_quant_mode"), "nvfp5", "workers.0.layers.l.kv_quant_mode"),
        (("hisparse",), {"host_pool_bytes": 7}, "hisparse"),
        (("workers",), [], "workers"),
    ],
)
def test_values_that_contradict_each_other_are_refused_by_field(
    api: TestClient, place: Place, value: Any, named: str
) -> None:
    reply = api.post("/v1/plans", json=changed(make_request(), place, value))
    assert reply.status_code == 422, reply.text
    if reply.json()["code"] == InvalidRequest.code:
        assert any(field.startswith(named) for field in named_fields(reply.json())), reply.text


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "null",
        "7",
        "[]",
        "[" * 100_000,
        '{"hf_config":' + '{"a":' * 100_000,
        '{"hf_config":' + '{"a":' * 200 + "1" + "}" * 200 + "}",
        '{"workers":' + "[" * 200 + "]" * 200 + "}",
        '{"max_model_len":' + "9" * 100_000 + "}",
        '{"workers":"\\ud800"}',
        '{"workers":[{"available_memory_bytes":1,"layers":{"\\u0000":7}}],"max_model_len":1}',
        '{"max_model_len":1,"max_model_len":2}',
        '{"workers":[{"available_memory_bytes":NaN}],"max_model_len":Infinity}',
    ],
    ids=range(13),
)
def test_a_body_that_is_no_request_is_answered_422(api: TestClient, raw: str) -> None:
    reply = api.post("/v1/plans", content=raw, headers={"Content-Type": "application/json"})
    assert reply.status_code == 422, reply.text[:200]
    assert reply.json()["code"] == InvalidRequest.code
    assert reply.json()["errors"]


BIG = 2**48
MAX_NUMBER = 2**63 - 1
"""Beyond, readers of JSON lose digits or refuse."""

MAX_ANSWER_BYTES = 64 * 2**20

HANG_S = 60
"""Of one processor's time: no figure of speed, only what a runaway loop would pass."""

FULL: dict[str, Any] = {
    "kind": "full_attention",
    "block_size": 16,
    "num_kv_heads": 1,
    "head_size": 1,
    "dtype": "uint8",
}
WINDOW = {**FULL, "kind": "sliding_window", "sliding_window": 8}
MLA = {**FULL, "kind": "mla_attention"}
INDEXER = {**MLA, "tokens_per_state": 2}
STATE = {"kind": "mamba", "block_size": 16, "shapes": [[8]], "dtypes": ["uint8"]}
HIDDEN = {**FULL, "kind": "hidden_state"}
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 128,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "hidden_size": 8192,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
PRIME = 2**47 - 115
"""A prime; blocks of so many tokens have no smaller ones that divide them."""


def coprimes(count: int) -> list[int]:
    """Numbers of 47 bits of which no two have a divisor in common."""
    found: list[int] = []
    candidate = 2**47 - 1
    while len(found) < count:
        if all(math.gcd(candidate, known) == 1 for known in found):
            found.append(candidate)
        candidate -= 2
    return found


def on_one_rank(layers: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {
        "workers": [{"available_memory_bytes": BIG, "layers": layers}],
        "max_model_len": 1000,
        **options,
    }


def on_ranks(ranks: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    workers = [{"available_memory_bytes": BIG, "layers": layers} for layers in ranks]
    return {"workers": workers, "max_model_len": 1000, **options}


def windows(count: int, **options: Any) -> dict[str, Any]:
    """As many groups as layers."""
    return {f"l.{i}": {**WINDOW, "sliding_window": i + 1, **options} for i in range(count)}


ABSURD: dict[str, Callable[[], dict[str, Any]]] = {
    "a block of 2**48 tokens": lambda: on_one_rank({"l": {**FULL, "block_size": BIG}}, max_model_len=BIG),
    "a request of 2**48 tokens": lambda: on_one_rank({"l": FULL}, max_model_len=BIG),
    "2**48 blocks": lambda: on_one_rank({"l": FULL}, max_model_len=BIG, num_blocks_override=BIG),
    "2**48 blocks of 2**144 bytes": lambda: on_one_rank(
        {"l": {**FULL, "block_size": BIG, "num_kv_heads": BIG, "head_size": BIG}}, num_blocks_override=BIG
    ),
    "a page of 2**144 bytes": lambda: on_one_rank(
        {"l": {**FULL, "block_size": BIG, "num_kv_heads": BIG, "head_size": BIG}}
    ),
    "a state of 2**388 bytes": lambda: on_one_rank(
        {"l": {**STATE, "shapes": [[BIG] * 8] * 16, "dtypes": ["float64"] * 16}}
    ),
    "a scheduler block of many primes": lambda: on_one_rank(
        {
            name: {**layer, "block_size": size}
            for (name, layer), size in zip(windows(300).items(), coprimes(300), strict=True)
        },
        layout="BLHNC",
        num_blocks_override=1_000_000,
    ),
    "alignments of many primes": lambda: on_one_rank(
        {
            f"l.{i}": {**FULL, "head_size": i + 1, "block_stride_alignment": n}
            for i, n in enumerate(coprimes(400))
        }
    ),
    "4096 ranks that share a layer": lambda: on_ranks(
        [{"l": FULL}] * 4096, parallel={"tensor": 4096, "pipeline": 4096}
    ),
    "4096 ranks of 16 layers of their own": lambda: on_ranks(
        [{f"l{rank}.{i}": FULL for i in range(16)} for rank in range(4096)]
    ),
    "4096 ranks, 16 windows each": lambda: on_ranks(
        [{f"l{rank}.{i}": layer for i, layer in enumerate(windows(16).values())} for rank in range(4096)]
    ),
    "4096 ranks that share slots": lambda: on_ranks(
        [{f"l{r}.{i}": layer for i, layer in enumerate((MLA, INDEXER, STATE, STATE))} for r in range(4096)]
    ),
    "1000 page sizes of which 4095 ranks have none": lambda: on_ranks(
        [{f"l{i}": {**FULL, "head_size": i + 1} for i in range(1000)}, *([{}] * 4095)]
    ),
    "65,536 ranks of a known model": lambda: {
        "workers": [{"available_memory_bytes": BIG}],
        "hf_config": LLAMA,
        "parallel": {"tensor": 4096, "pipeline": 16},
    },
    "4096 ranks of a known model": lambda: {
        "workers": [{"available_memory_bytes": BIG}],
        "hf_config": LLAMA,
        "parallel": {"tensor": 4096},
    },
    "10**9 layers of a known model": lambda: {
        "workers": [{"available_memory_bytes": BIG}],
        "hf_config": {**LLAMA, "num_hidden_layers": 10**9},
    },
    "65,536 layers": lambda: on_one_rank({f"l.{i}": FULL for i in range(65_536)}),
    "10**5 layers": lambda: on_one_rank({f"l.{i}": FULL for i in range(10**5)}),
    "5000 windows": lambda: on_one_rank(windows(5000)),
    "5000 windows side by side": lambda: on_one_rank(
        {**windows(5000), "f": {**FULL, "head_size": 3}}, layout="BLHNC"
    ),
    "65,536 windows": lambda: on_one_rank(windows(65_536)),
    "5000 page sizes beside a window": lambda: on_one_rank(
        {**{f"l.{i}": {**FULL, "head_size": i + 1} for i in range(5000)}, "w": WINDOW}
    ),
    "a pattern of 20,000 repeats beside 2000 windows": lambda: on_one_rank(
        {
            **{f"l.{i}": {**MLA, "head_size": 1 + i % 2} for i in range(20_000)},
            **{f"w.{i}": {**WINDOW, "sliding_window": i % 2000 + 1} for i in range(30_000)},
        },
        layout="BLHNC",
    ),
    "hidden states beside blocks of a prime": lambda: on_one_rank(
        {
            "l": {**FULL, "block_size": PRIME, "head_size": 100},
            "w": {**WINDOW, "block_size": PRIME, "head_size": 100},
            "h": {**HIDDEN, "head_size": 201},
        }
    ),
    "20,000 states in one slot": lambda: on_one_rank(
        {"l.0": MLA, "l.1": INDEXER, **{f"l.{i + 2}": STATE for i in range(20_000)}}
    ),
    "4096 stages of 30,000 layers": lambda: on_one_rank(
        {f"l.{i}": (MLA, INDEXER, STATE)[i % 3] for i in range(30_000)}, parallel={"pipeline": 4096}
    ),
    "a layer's number of 200 digits": lambda: on_one_rank(
        {f"l.{'9' * 200}": MLA, "l.1": INDEXER, "l.2": STATE}, parallel={"pipeline": 7}
    ),
    "a partition of a million stages": lambda: on_one_rank(
        {"l": FULL}, parallel={"pipeline": 4096, "pipeline_partition": [1] * 1_000_000}
    ),
    "5000 hot buffers": lambda: on_one_rank(
        {
            "i": {**MLA, "cache_role": "indexer"},
            **{f"l.{i}": {**MLA, "is_index_group_leader": True} for i in range(5000)},
        },
        layout="BLHNC",
        hisparse={"host_pool_bytes": BIG, "index_topk": 8},
    ),
    "a hot buffer of 2**96 tokens": lambda: on_one_rank(
        {"l": MLA, "i": {**MLA, "cache_role": "indexer"}},
        layout="BLHNC",
        hisparse={"host_pool_bytes": BIG, "index_topk": BIG, "max_decode_query_len": BIG},
    ),
    "a memory_utilization of nearly nothing": lambda: {
        **on_one_rank({}),
        "workers": [{"total_memory_bytes": BIG, "memory_utilization": 5e-324, "layers": {"l": FULL}}],
    },
}
"""Small enough to be sent, and made to take long or to grow."""


@contextmanager
def processor_time(limit_s: float) -> Iterator[None]:
    """Fails when more than ``limit_s`` of this process's time goes by inside."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signals are handled
        pytest.fail(f"took more than {limit_s} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def answer(body: bytes) -> str:
    """What the route does with ``body``, in this thread; a refusal as JSON as well."""
    try:
        return plan_reply(plan(PlanBody.model_validate_json(body).request())).model_dump_json()
    except ValueError as error:
        if type(error).__name__ != "ValidationError":
            raise
        return "{}"
    except BlockyardError as refusal:
        return json.dumps({**refusal.figures, "detail": refusal.detail})


@pytest.mark.parametrize("what", ABSURD)
def test_the_absurd_is_answered_or_refused_soon(what: str) -> None:
    body = json.dumps(ABSURD[what]()).encode()
    assert len(body) < 32 * 2**20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with processor_time(HANG_S):
        said = answer(body)
    assert len(said) < MAX_ANSWER_BYTES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 * 2**20


@pytest.mark.parametrize(
    "what",
    [
        "a block of 2**48 tokens",
        "a request of 2**48 tokens",
        "2**48 blocks",
        "2**48 blocks of 2**144 bytes",
        "a page of 2**144 bytes",
        "a state of 2**388 bytes",
        "a scheduler block of many primes",
        "alignments of many primes",
    ],
)
def test_no_number_of_an_answer_is_beyond_64_bits(what: str) -> None:
    said = answer(json.dumps(ABSURD[what]()).encode())
    assert max(int(digits[:4000]) for digits in re.findall(r"\d+", said)) <= MAX_NUMBER
