"""Batches on the wire: byte for byte what engines send, and readable by their consumers."""

import json
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

from blockyard.client.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    InvalidEvents,
    KvBatch,
)
from blockyard.core.hash_chain import external_int64
from blockyard.server.events.codec import EventCodec
from events.worked_batches import STREAM_ID, worked_payloads, worked_pools

DATA = Path(__file__).parents[1] / "data"
RECORDED = json.loads((DATA / "events.json").read_text())["cases"]
READ_BY_VLLM = json.loads((DATA / "events_read_by_vllm.json").read_text())["cases"]
NUMBER = (7).to_bytes(8, "big")


def plain(value: Any) -> Any:
    """Bytes as they stand in the recorded cases."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return {name: plain(part) for name, part in value.items()} if isinstance(value, dict) else value


def as_events(batch: KvBatch) -> list[dict[str, Any]]:
    """The batch as maps with the fields that hold no default."""
    found = []
    for event in batch.events:
        fields = {name: plain(getattr(event, name)) for name in event.__dataclass_fields__}
        found.append({"type": type(event).__name__, **fields})
    return found


@pytest.mark.parametrize("case", RECORDED, ids=[case["name"] for case in RECORDED])
def test_recorded_batches_are_read(case: dict[str, Any]) -> None:
    batch = KvBatch.from_frames([b"", NUMBER, bytes.fromhex(case["payload_hex"])])
    ts, events, rank = case["decoded"]
    assert (batch.number, batch.ts, batch.rank, batch.stream_id) == (7, ts, rank, None)
    for read, event in zip(as_events(batch), events, strict=True):
        told = {name: value for name, value in event.items() if name != "session_id"}
        assert {name: read[name] for name in told} == told
        assert all(value in (None, []) for name, value in read.items() if name not in told)


@pytest.mark.parametrize("case", READ_BY_VLLM, ids=[case["name"] for case in READ_BY_VLLM])
def test_what_vllms_decoder_read_is_still_what_we_send(case: dict[str, Any]) -> None:
    payload = dict(worked_payloads())[case["name"]]
    assert payload.hex() == case["payload_hex"]
    ts, events, rank = ormsgpack.unpackb(payload)
    read = case["read"]
    assert (read["ts"], read["data_parallel_rank"]) == (ts, rank)
    for seen, sent in zip(read["events"], events, strict=True):
        sent.pop("stream_id", None)
        assert {name: seen[name] for name in sent} == plain(sent)
        assert all(value is None for name, value in seen.items() if name not in sent)


def test_vllm_read_every_worked_batch_and_every_sort_of_event() -> None:
    assert [case["name"] for case in READ_BY_VLLM] == list(dict(worked_payloads()))
    kinds = {event["type"] for case in READ_BY_VLLM for event in case["read"]["events"]}
    assert kinds == {"BlockStored", "BlockRemoved", "AllBlocksCleared"}


def test_a_batch_is_laid_out_as_the_recorded_ones() -> None:
    """The same fields in the same order: only the stream's id is more."""
    payload = dict(worked_payloads())["stored, removed, cleared, 0"]
    recorded = bytes.fromhex(RECORDED[0]["payload_hex"])
    ours, theirs = ormsgpack.unpackb(payload), ormsgpack.unpackb(recorded)
    assert len(ours) == len(theirs) == 3
    assert list(ours[1][0]) == [*theirs[1][0], "stream_id"]


def test_only_the_first_event_of_a_batch_carries_the_streams_id() -> None:
    for _, payload in worked_payloads():
        _, events, _ = ormsgpack.unpackb(payload)
        assert [event.get("stream_id") for event in events] == [STREAM_ID] + [None] * (len(events) - 1)


def test_json_has_whole_hashes_in_hex_and_the_same_events() -> None:
    for _, worked in worked_pools():
        assert worked.pool.events is not None
        codec = EventCodec(worked.pool.config, STREAM_ID)
        for batch in worked.pool.events.take():
            read = KvBatch.from_json(json.loads(codec.json(batch)))
            sent = KvBatch.from_frames([b"", batch.number.to_bytes(8, "big"), codec.msgpack(batch)])
            assert (read.number, read.stream_id, read.ts, read.rank) == (
                (sent.number, sent.stream_id, sent.ts, sent.rank)
            )
            for in_json, in_msgpack in zip(read.events, sent.events, strict=True):
                assert type(in_json) is type(in_msgpack)
                if isinstance(in_json, BlockStored):
                    assert isinstance(in_msgpack, BlockStored)
                    assert in_json.token_ids == in_msgpack.token_ids
                if not isinstance(in_json, AllBlocksCleared):
                    assert not isinstance(in_msgpack, AllBlocksCleared)
                    whole = [bytes.fromhex(str(each)) for each in in_json.block_hashes]
                    assert list(in_msgpack.block_hashes) in (whole, list(map(external_int64, whole)))


def test_events_as_lists_are_read_too() -> None:
    events = [
        ["BlockStored", [1, 2], None, [5, 6], 1, None, "GPU"],
        ["BlockRemoved", [3], "GPU"],
        ["AllBlocksCleared"],
    ]
    batch = KvBatch.from_frames([b"", NUMBER, ormsgpack.packb([1.5, events])])
    assert list(batch.events) == [
        BlockStored(block_hashes=[1, 2], token_ids=[5, 6], block_size=1, medium="GPU"),
        BlockRemoved(block_hashes=[3], medium="GPU"),
        AllBlocksCleared(),
    ]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"", NUMBER],
        [b"", NUMBER, b"\xc1"],
        [b"", NUMBER, ormsgpack.packb({})],
        [b"", NUMBER, ormsgpack.packb([1.0, [{"type": "Wished"}]])],
        [b"", NUMBER, ormsgpack.packb([1.0, [{"type": "BlockStored"}]])],
        [b"", NUMBER, ormsgpack.packb([1.0, [5]])],
    ],
)
def test_what_is_no_batch_is_refused(frames: list[bytes]) -> None:
    with pytest.raises(InvalidEvents):
        KvBatch.from_frames(frames)
