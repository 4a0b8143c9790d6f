"""Server-sent events as a subscriber reads them, over the standard library's HTTP."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from access.token_files import bearing

TIMEOUT_S = 30


@dataclass(frozen=True)
class Message:
    """One message; ``data`` is decoded."""

    kind: str
    identity: str | None
    data: dict[str, Any]


def messages_in(text: bytes) -> list[Message]:
    """All messages of a whole stream, comments and other fields passed over."""
    return list(filter(None, map(_message, text.split(b"\n\n"))))


def _message(block: bytes) -> Message | None:
    lines = [line for line in block.decode().splitlines() if line and not line.startswith(":")]
    fields = dict(line.split(": ", 1) for line in lines)
    if "data" not in fields:
        return None
    return Message(fields.get("event", "message"), fields.get("id"), json.loads(fields["data"]))


@contextmanager
def subscribed(
    port: int, path: str, last_event_id: str | None = None, *, token: str | None = None
) -> Iterator[Iterator[Message]]:
    """The messages of a stream, each as it comes; they end where the stream does."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        last_read = {"Last-Event-ID": last_event_id} if last_event_id else {}
        connection.request("GET", path, headers={**last_read, **bearing(token)})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield _read(response)
    finally:
        connection.close()


def _read(response: http.client.HTTPResponse) -> Iterator[Message]:
    block = b""
    while line := response.readline():
        block += line
        if block.endswith(b"\n\n"):
            found = _message(block)
            block = b""
            if found is not None:
                yield found
