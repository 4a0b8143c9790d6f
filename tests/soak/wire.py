"""Raw HTTP for callers that do not keep to it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

ANSWER_S = 30.0
"""However the server is treated, an answer or the connection's end comes within this."""
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Line:
    """One connection, over which anything can be sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """All of ``data``, unless the server has hung up."""
        with suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def trickle(self, data: bytes, pause_s: float) -> tuple[int, str]:
        """Send a byte at a time, until the server answers or hangs up: see `answer`."""
        answering = asyncio.create_task(self.answer())
        for byte in data:
            if answering.done():
                break
            await self.send(bytes([byte]))
            await asyncio.sleep(pause_s)
        return await answering

    async def answer(self) -> tuple[int, str]:
        """Status and code of the next answer, the code empty for success; 0 where the server hung up."""
        try:
            async with asyncio.timeout(ANSWER_S):
                head = await self._reader.readuntil(b"\r\n\r\n")
                status, length = _STATUS.match(head), _LENGTH.search(head)
                assert status, head
                body = await self._reader.readexactly(int(length[1]) if length else 0)
        except (ConnectionError, asyncio.IncompleteReadError):
            return 0, "hung_up"
        return int(status[1]), "" if int(status[1]) < 400 else str(json.loads(body)["code"])

    async def document(self) -> Any:
        """The body of the next answer; an empty one where the server hung up."""
        try:
            async with asyncio.timeout(ANSWER_S):
                head = await self._reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                assert length, head
                return json.loads(await self._reader.readexactly(int(length[1])))
        except (ConnectionError, asyncio.IncompleteReadError):
            return {}

    async def read_some(self) -> bytes:
        """What has come, or comes next; empty at the end."""
        with suppress(ConnectionError):
            async with asyncio.timeout(ANSWER_S):
                return await self._reader.read(1_000)
        return b""

    def abort(self) -> None:
        """Hang up at once, with whatever is on its way."""
        self._writer.transport.abort()


@asynccontextmanager
async def line(port: int, receive_bytes: int = 65_536) -> AsyncIterator[Line]:
    """A connection to the server at ``port``, which is hung up at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=receive_bytes)
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()


def request(method: str, path: str, body: Any = None, *, length: int | None = None) -> bytes:
    """A request; ``length`` is what it says of its body, if not the truth."""
    raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(raw) if length is None else length}\r\n\r\n".encode() + raw
