"""Calls and replies as pure values: nothing is sent."""

import json
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import ormsgpack
import pytest

from blockyard.client import (
    NO_RETRY,
    Admission,
    Admitted,
    EventsConfig,
    ExtraKeyForm,
    Form,
    GroupConfig,
    HashAlgorithm,
    HashForm,
    InsufficientBlocks,
    InvalidRequest,
    LeaseId,
    OtherRefusal,
    QuotaExceeded,
    Refused,
    Response,
    SequenceHandle,
    SequenceId,
    StaleEpoch,
    StepCommit,
    StepExtend,
    UnexpectedReply,
)
from blockyard.client.call import Call
from blockyard.client.delivery import Delivery, Surroundings
from blockyard.client.errors import read_problem
from blockyard.client.lease_protocol import LeaseCalls
from blockyard.client.protocol import PoolCalls, ServerCalls
from blockyard.client.routes import Routes
from blockyard.core.errors import ERRORS
from blockyard.core.extra_keys import Extras, Lora, MultiModalFeature, PromptEmbeds
from client.sent_steps import plain_step

HASHES = [b"\x01" * 16, b"\xab" * 16]


def lease_calls(form: Form = Form.MSGPACK) -> LeaseCalls:
    return LeaseCalls("llama", LeaseId("lease-1"), 3, form)


def body_of(call: Call[Any]) -> Any:
    if call.form is Form.MSGPACK:
        return ormsgpack.unpackb(call.body, option=ormsgpack.OPT_NON_STR_KEYS)
    return json.loads(call.body)


def ok(document: object) -> Response:
    return Response(200, {"content-type": "application/json"}, json.dumps(document).encode())


def refusal(status: int, document: object) -> Response:
    return Response(status, {"content-type": "application/problem+json"}, json.dumps(document).encode())


@pytest.mark.parametrize("name", ["a b/c", "", "-a", ".", "a\n", "\u00e9", "a" * 129])
def test_a_name_that_no_pool_can_have_is_refused_before_anything_is_sent(name: str) -> None:
    for build in (lambda: ServerCalls().create_pool(name, num_blocks=8), lambda: PoolCalls(name)):
        with pytest.raises(InvalidRequest, match="letters, digits"):
            build()


@pytest.mark.parametrize("name", ["a", "7", "Llama-3.1_8b", "a" * 128])
def test_a_name_that_a_pool_can_have_stands_in_paths(name: str) -> None:
    assert PoolCalls(name).stats().path == f"/v1/pools/{name}/stats"


def test_a_sequence_id_is_percent_encoded_in_paths() -> None:
    assert PoolCalls("p").sequence("r?1").path == "/v1/pools/p/sequences/r%3F1"


def test_creating_a_pool_sends_only_what_was_given() -> None:
    call = ServerCalls().create_pool("p", num_blocks=8, block_size=4, publish="on_allocate")
    assert (call.method, call.path) == ("PUT", "/v1/pools/p")
    assert body_of(call) == {"num_blocks": 8, "block_size": 4, "publish": "on_allocate"}


def test_groups_travel_without_their_empty_fields() -> None:
    group = GroupConfig(kind="sliding_window", block_size=4, sliding_window=8)
    plain = {"kind": "sliding_window", "block_size": 4, "sliding_window": 8}
    body = body_of(ServerCalls().create_pool("p", num_blocks=8, groups=[group, plain]))
    assert body == {"num_blocks": 8, "groups": [plain, plain]}


def test_options_of_further_kinds_travel_by_their_names() -> None:
    state = GroupConfig(kind="mamba", block_size=4, mamba_cache_mode="align", num_speculative_blocks=2)
    host = GroupConfig(kind="mla_attention", block_size=4, is_host_resident=True)
    call = ServerCalls().create_pool(
        "p", num_blocks=8, num_host_blocks=16, groups=[state, host], prefix_cache_retention_interval=0
    )
    assert body_of(call) == {
        "num_blocks": 8,
        "num_host_blocks": 16,
        "groups": [
            {"kind": "mamba", "block_size": 4, "mamba_cache_mode": "align", "num_speculative_blocks": 2},
            {"kind": "mla_attention", "block_size": 4, "is_host_resident": True},
        ],
        "prefix_cache_retention_interval": 0,
    }


def test_prompt_and_encoder_travel_only_where_they_say_more_than_the_tokens() -> None:
    def sent(num_prompt_tokens: int | None, num_encoder_tokens: int) -> list[dict[str, Any]]:
        counts = {"num_prompt_tokens": num_prompt_tokens, "num_encoder_tokens": num_encoder_tokens}
        admission = Admission(sequence_id=SequenceId("s"), num_tokens=8, **counts)  # type: ignore[arg-type]
        single = body_of(lease_calls().allocate("s", 8, **counts))  # type: ignore[arg-type]
        bodies = [single, body_of(lease_calls().step(admit=[admission]))["admit"][0]]
        return [{name: body[name] for name in counts if name in body} for body in bodies]

    assert sent(None, 0) == sent(8, 0) == [{}, {}]
    assert sent(5, 7) == [{"num_prompt_tokens": 5, "num_encoder_tokens": 7}] * 2


def test_the_demand_to_end_at_a_state_travels_only_where_it_is_made() -> None:
    def sent(end_at_state: bool) -> list[Any]:
        admission = Admission(sequence_id=SequenceId("s"), num_tokens=8, end_at_state=end_at_state)
        single = body_of(lease_calls().allocate("s", 8, end_at_state=end_at_state))
        step = body_of(lease_calls().step(admit=[admission]))
        return [body.get("end_at_state") for body in (single, step["admit"][0])]

    assert (sent(False), sent(True)) == ([None, None], [True, True])


def test_algorithms_and_forms_may_be_given_by_name() -> None:
    for algorithm, form in (("sha256", "bare"), (HashAlgorithm.SHA256, ExtraKeyForm.BARE)):
        pool = ServerCalls().create_pool("p", num_blocks=8, hash_algorithm=algorithm, extra_key_form=form)
        assert body_of(pool) == {"num_blocks": 8, "hash_algorithm": "sha256", "extra_key_form": "bare"}
        hashed = ServerCalls().hash(range(4), algorithm=algorithm, block_size=4, extra_key_form=form)
        assert (body_of(hashed)["algorithm"], body_of(hashed)["extra_key_form"]) == ("sha256", "bare")


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("ids", [range(8), tuple(range(8)), array("q", range(8)), deque(range(8))])
def test_any_sequence_of_token_ids_travels_as_a_list(form: Form, ids: Sequence[int]) -> None:
    calls, one = lease_calls(form), SequenceHandle(1)
    step = calls.step(
        commit=StepCommit(sequences=deque([one]), num_computed_tokens=range(8, 9)),
        free=deque([one]),
        extend=StepExtend(sequences=deque([one]), num_tokens=array("q", [8]), token_ids={one: ids}),
        admit=[Admission(sequence_id=SequenceId("s"), num_tokens=8, token_ids=ids)],
    )
    body = body_of(step)
    told = [
        body_of(calls.allocate("s", 8, token_ids=ids))["token_ids"],
        body_of(calls.commit("s", 8, token_ids=ids))["token_ids"],
        body_of(PoolCalls("p", form).lookup(8, token_ids=ids))["token_ids"],
        body_of(ServerCalls(form).hash(ids, algorithm="sha256", block_size=4))["token_ids"],
        *body["extend"]["token_ids"].values(),
        body["admit"][0]["token_ids"],
    ]
    assert told == [list(range(8))] * 6
    if form is Form.MSGPACK:
        body = plain_step(step.body)
    assert (body["free"], body["commit"]["num_computed_tokens"]) == ({"sequences": [1]}, [8])


@pytest.mark.parametrize("wrong", [-1, 2**63, True, 1.5])
def test_a_token_id_that_cannot_be_is_refused_by_its_place_before_anything_is_sent(wrong: Any) -> None:
    ids, one = [1, wrong], SequenceHandle(7)
    bad, good = (
        Admission(sequence_id=SequenceId("s"), num_tokens=8, token_ids=given) for given in (ids, [1])
    )
    calls: dict[str, Callable[[], object]] = {
        "token_ids": lambda: lease_calls().allocate("s", 8, token_ids=ids),
        "admit.1.token_ids": lambda: lease_calls().step(admit=[good, bad]),
        "extend.token_ids.7.token_ids": lambda: lease_calls().step(
            extend=StepExtend(sequences=[one], num_tokens=[8], token_ids={one: ids})
        ),
        "event_token_ids": lambda: lease_calls().commit("s", 8, event_token_ids=ids),
        "admit.0.event_token_ids": lambda: lease_calls().step(
            admit=[Admission(sequence_id=SequenceId("s"), num_tokens=8, event_token_ids=ids)]
        ),
        "extend.event_token_ids.7.event_token_ids": lambda: lease_calls().step(
            extend=StepExtend(sequences=[one], num_tokens=[8], event_token_ids={one: ids})
        ),
    }
    for field, build in calls.items():
        with pytest.raises(InvalidRequest) as caught:
            build()
        assert [error["field"] for error in caught.value.figures["errors"]] == [field]


def test_what_events_are_told_travels_beside_the_hashes_and_only_if_there_is_any() -> None:
    calls, one, two = lease_calls(), SequenceHandle(1), SequenceHandle(2)

    def sent(ids: Sequence[int]) -> list[Any]:
        admission = Admission(
            sequence_id=SequenceId("s"), num_tokens=8, block_hashes=HASHES, event_token_ids=ids
        )
        extend = StepExtend(
            sequences=[one, two],
            num_tokens=[8, 8],
            block_hashes={one: HASHES},
            event_token_ids={one: ids} if ids else {},
        )
        step = body_of(calls.step(extend=extend, admit=[admission]))
        return [
            body_of(calls.allocate("s", 8, block_hashes=HASHES, event_token_ids=ids)),
            body_of(calls.commit("s", 8, block_hashes=HASHES, event_token_ids=ids)),
            step["admit"][0],
            step["extend"],
        ]

    bodies = sent(range(8))
    told = [body.pop("event_token_ids") for body in bodies]
    assert told == [list(range(8))] * 3 + [{1: list(range(8))}]
    assert bodies == sent(())


def test_how_a_pool_publishes_travels_without_its_defaults() -> None:
    def sent(**options: Any) -> Any:
        return body_of(ServerCalls().create_pool("p", num_blocks=8, **options)).get("events", "left out")

    assert [sent(), sent(events=True), sent(events=False)] == ["left out", True, False]
    assert sent(events=EventsConfig()) == {}
    assert sent(events=EventsConfig(needs_token_ids=True, hash_form=HashForm.BYTES)) == {
        "needs_token_ids": True,
        "hash_form": "bytes",
    }
    assert sent(events={"rank": 3, "topic": None}) == {"rank": 3}


def test_a_single_id_is_no_list_of_ids_to_free() -> None:
    with pytest.raises(TypeError, match=r"\['chat-1'\]"):
        lease_calls().free("chat-1")


def test_block_hashes_are_raw_bytes_in_msgpack() -> None:
    assert body_of(PoolCalls("p").lookup(40, block_hashes=HASHES)) == {
        "num_tokens": 40,
        "block_hashes": HASHES,
    }


def test_block_hashes_are_lower_case_hex_in_json() -> None:
    body = body_of(PoolCalls("p", Form.JSON).lookup(40, block_hashes=HASHES))
    assert body == {"num_tokens": 40, "block_hashes": ["01" * 16, "ab" * 16]}


def test_extras_travel_beside_the_tokens() -> None:
    extras = Extras(
        mm_features=(MultiModalFeature(1, 2, "image"),),
        lora=Lora("fr", "/fr"),
        cache_salt="tenant",
        prompt_embeds=PromptEmbeds.from_rows([[0.5, 1.0], [2.0, -1.0]]),
    )
    assert body_of(PoolCalls("p").lookup(4, token_ids=[1, 2, 3, 4], extras=extras)) == {
        "num_tokens": 4,
        "token_ids": [1, 2, 3, 4],
        "mm_features": [{"offset": 1, "length": 2, "identifier": "image"}],
        "lora": {"name": "fr", "path": "/fr"},
        "cache_salt": "tenant",
        "prompt_embeds_float32": [[0.5, 1.0], [2.0, -1.0]],
    }


def test_a_lease_sends_its_id_and_epoch_with_each_change() -> None:
    calls = lease_calls()
    changes: list[Call[Any]] = [
        calls.allocate("s", 10),
        calls.commit("s", 10),
        calls.fork("s", ["t"]),
        calls.free(["s"]),
        calls.step(),
        calls.allocate_blocks(2),
        calls.free_blocks([1]),
    ]
    for call in changes:
        body = body_of(call)
        assert (body["lease_id"], body["epoch"]) == ("lease-1", 3)


def key_of(call: Call[Any]) -> str | None:
    """The key that the call is sent under, as its headers have it."""
    world = Surroundings(now_s=lambda: 0.0, draw=lambda: 0.0, new_key=lambda: "key", headers=dict)
    request = Delivery(call, Routes(["http://home:1"]), NO_RETRY, world).request
    return request.headers.get("Idempotency-Key")


@pytest.mark.parametrize(
    "call",
    [
        lease_calls().allocate("s", 1),
        lease_calls().commit("s", 1),
        lease_calls().fork("s", ["t"]),
        lease_calls().free(["s"]),
        lease_calls().step(),
        lease_calls().allocate_blocks(1),
        lease_calls().free_blocks([1]),
        lease_calls().renew(),
        PoolCalls("p").create_lease("me", 5),
        PoolCalls("p").reset_prefix_cache(),
    ],
    ids=lambda call: call.path.rpartition("/v1/pools/")[2],
)
def test_every_post_that_changes_a_pool_carries_an_idempotency_key(call: Call[Any]) -> None:
    assert call.method == "POST"
    assert key_of(call) == "key"


@pytest.mark.parametrize(
    "call",
    [
        PoolCalls("p").lookup(1),
        PoolCalls("p").stats(),
        PoolCalls("p").sequence("s"),
        PoolCalls("p").delete(),
        lease_calls().release(),
        ServerCalls().create_pool("p", num_blocks=8, block_size=4),
        ServerCalls().hash([1], algorithm="sha256", block_size=1),
    ],
    ids=lambda call: f"{call.method} {call.path}",
)
def test_what_can_be_repeated_as_it_is_carries_no_key(call: Call[Any]) -> None:
    assert key_of(call) is None


def test_a_numbered_step_needs_no_key_and_one_without_a_number_sends_none() -> None:
    assert key_of(lease_calls().step(step_id=7)) is None
    assert body_of(lease_calls().step(step_id=7))["step_id"] == 7
    assert "step_id" not in body_of(lease_calls().step())


def test_an_allocation_leaves_defaults_out() -> None:
    assert body_of(lease_calls().allocate("s", 10)) == {
        "lease_id": "lease-1",
        "epoch": 3,
        "sequence_id": "s",
        "num_tokens": 10,
    }


def test_a_step_is_columnar() -> None:
    one, two = SequenceHandle(1), SequenceHandle(2)
    call = lease_calls().step(
        commit=StepCommit(sequences=[one], num_computed_tokens=[16]),
        free=[two],
        extend=StepExtend(sequences=[one], num_tokens=[17], block_hashes={one: HASHES[:1]}),
        admit=[Admission(sequence_id=SequenceId("s"), num_tokens=5, max_new_tokens=4)],
        step_id=1,
    )
    assert plain_step(call.body) == {
        "lease_id": "lease-1",
        "epoch": 3,
        "step_id": 1,
        "commit": {"sequences": [1], "num_computed_tokens": [16]},
        "free": {"sequences": [2]},
        "extend": {
            "sequences": [1],
            "num_tokens": [17],
            "block_hashes": {1: HASHES[:1]},
            "only_changes": True,
        },
        "admit": [{"sequence_id": "s", "num_tokens": 5, "max_new_tokens": 4}],
    }


def test_a_description_without_a_field_that_servers_always_send_is_refused() -> None:
    complete = {
        "pool": "p",
        "epoch": 1,
        "num_blocks": 8,
        "groups": [],
        "scheduler_block_size": 4,
        "hash_block_size": 4,
        "hash_algorithm": "sha256",
        "extra_key_form": "tagged",
        "publish": "on_commit",
        "eviction": "lru",
        "enable_prefix_caching": True,
        "max_in_flight_tokens": 1,
        "watermark_blocks": 0,
        "worker_timeout_ms": 5_000,
        "needs_all_workers": True,
        "max_replies": 256,
        "share_across_tenants": False,
    }
    assert PoolCalls("p").describe().read(ok(complete)).max_model_len is None
    for field in complete:
        with pytest.raises(UnexpectedReply, match=field):
            PoolCalls("p").describe().read(ok({k: v for k, v in complete.items() if k != field}))


def test_an_option_that_a_pool_does_not_have_is_told_by_name() -> None:
    with pytest.raises(TypeError, match="no option form"):
        ServerCalls().create_pool("p", num_blocks=8, form="json")  # type: ignore[call-arg]


def test_unknown_reply_fields_are_ignored() -> None:
    reply = ok({"epoch": 1, "num_cached_tokens": 4, "block_ids": [[3]], "colour": "blue"})
    assert PoolCalls("p").lookup(9).read(reply).num_cached_tokens == 4


def test_msgpack_replies_are_read_by_their_content_type() -> None:
    body = ormsgpack.packb({"epoch": 1, "num_cached_tokens": 0, "block_ids": [[]]})
    assert (
        PoolCalls("p").lookup(9).read(Response(200, {"content-type": "application/msgpack"}, body)).epoch == 1
    )


def test_fields_that_are_none_may_be_left_out_of_a_reply() -> None:
    reply = {
        "epoch": 1,
        "sequence": 4,
        "num_new_tokens": 1,
        "block_ids": [[]],
        "copies": [],
        "num_free_blocks": 9,
    }
    assert lease_calls().allocate("s", 10).read(ok(reply)).num_cached_tokens is None


def test_admissions_of_a_step_are_told_apart_from_refusals() -> None:
    given = {"sequence": 4, "num_cached_tokens": 0, "num_new_tokens": 1, "block_ids": [[5]]}
    refused = {"code": "insufficient_blocks", "detail": "few", "num_required_blocks": 3, "num_free_blocks": 1}
    extend = {"sequences": [], "block_ids": [], "insufficient": [7]}
    document = {
        "epoch": 1,
        "extend": extend,
        "copies": [[1, 2]],
        "admit": [given, refused],
        "num_free_blocks": 1,
    }
    stepped = lease_calls().step().read(ok(document))
    assert stepped.admit == [
        Admitted(sequence=SequenceHandle(4), num_cached_tokens=0, num_new_tokens=1, block_ids=[[5]]),
        Refused(code="insufficient_blocks", detail="few", num_required_blocks=3, num_free_blocks=1),
    ]
    assert stepped.copies == [[1, 2]]
    assert stepped.extend.insufficient == [7]


def test_hashes_come_back_as_bytes() -> None:
    document = {
        "none_hash": "00ff",
        "block_hashes": ["0102"],
        "extra_keys": [None],
        "event_extra_keys": None,
        "external_int64": [258],
    }
    hashed = ServerCalls().hash([1, 2], algorithm="sha256", block_size=2).read(ok(document))
    assert (hashed.none_hash, hashed.block_hashes) == (b"\x00\xff", [b"\x01\x02"])


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_each_code_becomes_its_class_with_its_figures(error: type[Exception]) -> None:
    code = error.code  # type: ignore[attr-defined]
    read = read_problem(409, {"code": code, "detail": "why", "title": "t", "status": 409, "epoch": 7})
    assert type(read) is error
    assert (str(read), read.figures) == ("why", {"epoch": 7})


def test_an_unknown_code_is_carried_by_a_general_error() -> None:
    with pytest.raises(OtherRefusal, match="too many") as caught:
        PoolCalls("p").stats().read(
            refusal(429, {"code": "too_many_wishes", "detail": "too many", "num_wishes": 5})
        )
    assert caught.value.code == "too_many_wishes"
    assert caught.value.figures["num_wishes"] == 5


def test_a_quota_that_is_exceeded_is_a_kind_of_too_few_blocks() -> None:
    with pytest.raises(InsufficientBlocks) as caught:
        lease_calls().allocate_blocks(3).read(refusal(429, {"code": "quota_exceeded", "num_quota_blocks": 5}))
    assert isinstance(caught.value, QuotaExceeded)
    assert caught.value.figures["num_quota_blocks"] == 5


def test_what_is_one_tenants_alone_is_said_of_hashes_in_every_call() -> None:
    admission = Admission(sequence_id=SequenceId("a"), num_tokens=9, block_hashes=HASHES, tenant_only=True)
    step = body_of(lease_calls().step(admit=[admission]))
    assert step["admit"][0]["tenant_only"] is True
    assert (
        body_of(lease_calls().allocate("a", 9, block_hashes=HASHES, tenant_only=True))["tenant_only"] is True
    )
    assert body_of(PoolCalls("p").lookup(9, block_hashes=HASHES, tenant_only=True))["tenant_only"] is True
    assert "tenant_only" not in body_of(lease_calls().allocate("a", 9, block_hashes=HASHES))


@pytest.mark.parametrize(
    "build",
    [
        lambda wait_ms: lease_calls().allocate("a", 9, wait_ms=wait_ms),
        lambda wait_ms: lease_calls().allocate_blocks(9, wait_ms=wait_ms),
    ],
)
def test_a_call_that_waits_says_how_long_and_one_that_does_not_says_nothing(
    build: Callable[[int], Call[Any]],
) -> None:
    assert (body_of(build(1_500))["wait_ms"], build(1_500).wait_s) == (1_500, 1.5)
    assert ("wait_ms" in body_of(build(0)), build(0).wait_s) == (False, 0)
    with pytest.raises(InvalidRequest, match="wait_ms"):
        build(-1)


@pytest.mark.parametrize("name", ["", ".", "a/b", "a" * 65])
def test_a_name_that_no_tenant_can_have_is_refused_before_anything_is_sent(name: str) -> None:
    calls = PoolCalls("p")
    for build in (calls.tenant, calls.set_quota, calls.remove_quota):
        with pytest.raises(InvalidRequest, match="1 to 64 letters, digits"):
            build(name)


def test_a_problem_in_msgpack_is_read_too() -> None:
    body = ormsgpack.packb({"code": "stale_epoch", "detail": "moved", "epoch": 4})
    with pytest.raises(StaleEpoch) as caught:
        lease_calls().step().read(Response(409, {"content-type": "application/msgpack"}, body))
    assert caught.value.figures == {"epoch": 4}


def test_a_gateways_page_is_an_unexpected_reply_with_its_status() -> None:
    with pytest.raises(UnexpectedReply) as caught:
        PoolCalls("p").stats().read(Response(502, {"content-type": "text/html"}, b"<html>"))
    assert caught.value.figures == {"status": 502}


def test_a_reply_of_another_form_names_the_field() -> None:
    with pytest.raises(UnexpectedReply, match="num_cached_tokens"):
        PoolCalls("p").lookup(9).read(ok({"epoch": 1, "num_cached_tokens": "many", "block_ids": []}))


STEPPED: dict[str, Any] = {
    "epoch": 1,
    "step_id": 4,
    "extend": {"sequences": [5, 6], "block_ids": [[[1, 2], []], [[], [3]]], "insufficient": [7]},
    "copies": [],
    "admit": [],
    "num_free_blocks": 9,
}


@pytest.mark.parametrize(
    ("column", "value", "place"),
    [
        ("sequences", [5, "six"], "extend.sequences.1"),
        ("sequences", None, "extend.sequences"),
        ("block_ids", [[[1, 2], []], "none"], "extend.block_ids.1"),
        ("block_ids", [[[1, 2], {"3": 4}], [[], [3]]], "extend.block_ids.0.1"),
        ("block_ids", [[[1, 2], []], [[], [None]]], "extend.block_ids.1.1.0"),
        ("insufficient", {"7": 7}, "extend.insufficient"),
    ],
)
def test_a_step_with_an_odd_column_is_refused_by_its_place(column: str, value: Any, place: str) -> None:
    read = lease_calls().step().read
    assert read(ok(STEPPED)).extend.block_ids == STEPPED["extend"]["block_ids"]
    with pytest.raises(UnexpectedReply, match=f"the reply's {place}: "):
        read(ok({**STEPPED, "extend": {**STEPPED["extend"], column: value}}))


@pytest.mark.parametrize("extend", ["missing", None, [], {"sequences": []}])
def test_a_step_without_its_columns_is_refused_by_their_place(extend: Any) -> None:
    document = {name: value for name, value in STEPPED.items() if name != "extend"}
    with pytest.raises(UnexpectedReply, match=r"the reply's extend"):
        lease_calls().step().read(ok(document if extend == "missing" else {**document, "extend": extend}))


def test_insufficient_blocks_tells_the_need() -> None:
    with pytest.raises(InsufficientBlocks) as caught:
        lease_calls().allocate("s", 9).read(
            refusal(409, {"code": "insufficient_blocks", "num_required_blocks": 3, "num_free_blocks": 1})
        )
    assert caught.value.figures == {"num_required_blocks": 3, "num_free_blocks": 1}


def test_readiness_reads_503_as_no() -> None:
    assert ServerCalls().ready().read(refusal(503, {"code": "not_ready"})) is False
