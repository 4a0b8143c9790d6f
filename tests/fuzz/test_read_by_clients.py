"""What a client reads from a server, or what stands in its place: only the client's own errors come of it."""

import json
from contextlib import suppress
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.client.errors import UnexpectedReply
from blockyard.client.http1 import ResponseReader
from blockyard.client.kv_events import InvalidEvents, KvBatch, KvSnapshot
from blockyard.client.lease_protocol import LeaseCalls
from blockyard.client.protocol import ServerCalls
from blockyard.client.wire import Response
from blockyard.core.errors import BlockyardError
from blockyard.core.ids import LeaseId
from fuzz.mutations import damaged, faulty, fuzzed

RESPONSES = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\ntrailer: x\r\n\r\n",
)
HEAD = {"stream_id": "s", "sequence_number": 7, "ts": 1.5, "rank": None}
EVENTS: list[Any] = [
    {
        "type": "BlockStored",
        "block_hashes": ["00ff", "11"],
        "parent_block_hash": None,
        "token_ids": [1, 2],
        "block_size": 1,
        "medium": "GPU",
        "group_idx": 0,
        "extra_keys": [None, ["a"]],
    },
    ["BlockRemoved", ["00ff"], "GPU"],
    {"type": "AllBlocksCleared"},
]
STEPPED = {
    "epoch": 1,
    "step_id": 4,
    "extend": {"sequences": [1], "block_ids": [[[5]]], "insufficient": [2], "unlisted": [[]]},
    "copies": [[1, 2]],
    "admit": [
        {"sequence": 3, "num_cached_tokens": 0, "num_new_tokens": 16, "block_ids": [[6]]},
        {"code": "insufficient_blocks", "detail": "too few", "num_required_blocks": 3},
    ],
    "num_free_blocks": 9,
    "replaced": [[1, 0, 2, 5]],
}
PROBLEM = {
    "type": "urn:blockyard:error:stale_epoch",
    "title": "t",
    "status": 409,
    "detail": "d",
    "code": "stale_epoch",
    "epoch": 2,
}


@fuzzed
@given(st.data())
def test_an_http_response_is_read_or_refused(data: st.DataObject) -> None:
    sent = data.draw(st.one_of(st.binary(max_size=100), st.sampled_from(RESPONSES).flatmap(damaged)))
    parts = data.draw(st.lists(st.integers(1, 40), max_size=10))
    found = ResponseReader(max_body_bytes=1_000)
    try:
        for size in [*parts, len(sent)]:
            part, sent = sent[:size], sent[size:]
            if part and (response := found.feed(part)) is not None:
                assert 200 <= response.status <= 599
                assert len(response.body) <= 1_000
                break
    except UnexpectedReply:
        pass


def frames(events: Any) -> list[bytes]:
    payload = ormsgpack.packb([1.5, events, 0], option=ormsgpack.OPT_NON_STR_KEYS)
    return [b"topic", (7).to_bytes(8, "big"), payload]


def test_events_are_the_same_in_both_forms() -> None:
    from_json = KvBatch.from_json({**HEAD, "rank": 0, "events": EVENTS})
    packed = [{**EVENTS[0], "stream_id": "s"}, *EVENTS[1:]]
    assert KvBatch.from_frames(frames(packed)) == from_json


@fuzzed
@given(st.one_of(st.lists(st.binary(max_size=60), max_size=4), damaged(frames(EVENTS)[2])))
def test_a_message_is_a_batch_or_refused(drawn: list[bytes] | bytes) -> None:
    message = drawn if isinstance(drawn, list) else [b"topic", b"\0" * 8, drawn]
    with suppress(InvalidEvents):
        KvBatch.from_frames(message)


@fuzzed
@given(faulty({**HEAD, "topic": "t", "events": EVENTS}, binary=True))
def test_a_faulty_snapshot_is_refused_or_can_be_followed(document: Any) -> None:
    try:
        snapshot = KvSnapshot.from_document(document)
    except InvalidEvents:
        return
    assert isinstance(snapshot.number, int)
    for event in snapshot.events:
        for block_hash in getattr(event, "block_hashes", ()):
            hash(block_hash)  # routers index by it


READERS = {
    "stepped": (STEPPED, LeaseCalls("p", LeaseId("l"), 1).step().read),
    "pools": ({"pools": []}, ServerCalls().pools().read),
}


@pytest.mark.parametrize("name", READERS)
def test_a_reply_is_read_or_refused(name: str) -> None:
    document, read = READERS[name]
    as_json, packed = json.dumps(document).encode(), ormsgpack.packb(document)

    @fuzzed
    @given(st.data())
    def each(data: st.DataObject) -> None:
        form = data.draw(st.sampled_from(["json", "msgpack"]))
        status = data.draw(st.sampled_from([200, 201, 307, 404, 409, 500, 503]))
        told = data.draw(st.sampled_from([document, PROBLEM]))
        body = data.draw(
            st.one_of(
                st.binary(max_size=60),
                damaged(as_json if form == "json" else packed),
                faulty(told).map(lambda found: json.dumps(found).encode()),
            )
        )
        with suppress(BlockyardError):
            read(Response(status, {"content-type": f"application/{form}"}, body))

    each()


def test_a_reply_that_nests_without_end_is_refused() -> None:
    with pytest.raises(UnexpectedReply):
        ServerCalls().pools().read(Response(200, {"content-type": "application/json"}, b"[" * 100_000))
