"""Running the server: one process, one event loop, a clean end."""

import gc
import resource
import signal
import socket
from types import FrameType

import structlog
import uvicorn

from blockyard.server import logs
from blockyard.server.app import create_app
from blockyard.server.http_protocol import BoundedHttpProtocol
from blockyard.server.settings import Settings

log = structlog.get_logger("blockyard.server")

KEEP_ALIVE_S = 120
"""How long an idle connection stays open: a scheduler between two bursts need not connect again."""


class _Server(uvicorn.Server):
    """Says where it listens once it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            gc.freeze()  # what is here by now stays: collections need not look at it again
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            print(f"blockyard is ready at {url}", flush=True)  # noqa: T201 - for whoever started it
            log.info("ready", url=url)


def serve(settings: Settings, sockets: list[socket.socket]) -> int:
    """Serve until SIGTERM or SIGINT, let requests in flight end, and return the exit status.

    Args:
        settings: The server's; its address is that of ``sockets``.
        sockets: Listen already; closed at the end.
    """
    logs.configure(settings.log_level, settings.log_format)
    _raise_file_limit()
    config = uvicorn.Config(
        create_app(settings),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
        http=BoundedHttpProtocol,
        ws="none",
    )
    server = _Server(config)
    # uvicorn raises the signal that ended it once more, for whoever was to handle it before: nobody.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ignore)
    server.run(sockets=sockets)
    if not server.started:
        return 1
    log.info("stopped")
    return 0


def _raise_file_limit() -> None:
    """A connection is an open file: allow as many as this process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _ignore(_signum: int, _frame: FrameType | None) -> None:
    pass
