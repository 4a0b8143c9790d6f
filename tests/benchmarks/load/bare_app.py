"""The least that an ASGI application can do: reads the body and sends as many bytes as it is told.

python tests/benchmarks/load/bare_app.py REPLY_BYTES

It is served by uvicorn with uvloop and httptools, without logs, as the ceiling for any application there.
Prints a line with its port once it listens.
"""

import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class BareApp:
    """Answers everything with the same bytes."""

    def __init__(self, num_bytes: int) -> None:
        length = str(num_bytes).encode()
        headers = [(b"content-type", b"application/msgpack"), (b"content-length", length)]
        self._start = {"type": "http.response.start", "status": 200, "headers": headers}
        self._body = {"type": "http.response.body", "body": b"x" * num_bytes}

    async def __call__(self, _scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await send(self._start)
        await send(self._body)


def main() -> int:
    """Serve until killed."""
    app = BareApp(int(sys.argv[1]))
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        uvicorn.Server(config).run([listening])
    return 0


if __name__ == "__main__":
    sys.exit(main())
