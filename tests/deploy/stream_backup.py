"""A backup of all streams and its restore, by the calls of JetStream that ``nats account backup`` makes."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

CHUNK_BYTES = 65_536
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class StreamBackup:
    """One stream: what it is, what it had, and its data as the server packed them."""

    config: dict[str, Any]
    state: dict[str, Any]
    packed: bytes


async def back_up(client: Client) -> dict[str, StreamBackup]:
    """All streams by their names; buckets of keys and of objects are streams, too."""
    found = await _ask(client, "STREAM.NAMES", {})
    return {name: await _back_up_stream(client, name) for name in found["streams"] or ()}


async def restore(client: Client, backup: dict[str, StreamBackup]) -> None:
    """Into servers that have none of the streams."""
    for name, stream in backup.items():
        told = {"config": stream.config, "state": stream.state}
        begun = await _ask(client, f"STREAM.RESTORE.{name}", told)
        for begin in range(0, len(stream.packed), CHUNK_BYTES):
            chunk = stream.packed[begin : begin + CHUNK_BYTES]
            await client.request(begun["deliver_subject"], chunk, timeout=TIMEOUT_S)
        ended = await client.request(begun["deliver_subject"], b"", timeout=TIMEOUT_S)
        _checked(json.loads(ended.data))


async def _back_up_stream(client: Client, name: str) -> StreamBackup:
    packed, is_whole = bytearray(), asyncio.Event()

    async def take(message: Msg) -> None:
        packed.extend(message.data)
        if not message.data:
            is_whole.set()
        elif message.reply:
            await client.publish(message.reply)  # the server sends on

    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=take)
    told = {"deliver_subject": inbox, "chunk_size": CHUNK_BYTES}
    begun = await _ask(client, f"STREAM.SNAPSHOT.{name}", told)
    await asyncio.wait_for(is_whole.wait(), TIMEOUT_S)
    return StreamBackup(begun["config"], begun["state"], bytes(packed))


async def _ask(client: Client, what: str, told: dict[str, Any]) -> dict[str, Any]:
    reply = await client.request(f"$JS.API.{what}", json.dumps(told).encode(), timeout=TIMEOUT_S)
    return _checked(json.loads(reply.data))


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    assert "error" not in found, found["error"]
    return found
