"""Running the server: one process, one event loop, a clean end."""

import asyncio
import contextlib
import os
import resource
import signal
import socket
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn

from blockyard.server import logs
from blockyard.server.access.exposure import warn_of_exposure
from blockyard.server.access.tls import tls_context
from blockyard.server.app import Server, create_app
from blockyard.server.cluster.errors import ClusterUnavailable
from blockyard.server.collector import young_collections
from blockyard.server.durable import Durable
from blockyard.server.events.errors import EventsUnavailable
from blockyard.server.http_protocol import NUM_SPARE_CONNECTIONS, HttpProtocol
from blockyard.server.journal.errors import JournalError
from blockyard.server.settings import Settings

if TYPE_CHECKING:
    from blockyard.server.cluster.cluster import MakeCluster
    from blockyard.server.events.sockets import EventSockets
    from blockyard.server.tracing.tracing import Tracing

log = structlog.get_logger("blockyard.server")

RESERVED_FILES = 256
"""Files that are open beside connections: the journal's, sockets for events, and some to spare."""

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  # nosec B104  # to be told from others

LAST_ANSWERS_S = 0.1
"""How long a process that must end gives its last answers to be sent."""


class _Server(uvicorn.Server):
    """Says where it listens once it does, and ``app`` is ready.

    TLS is agreed on within ``head_timeout_s``.
    """

    def __init__(self, config: uvicorn.Config, app: Server, head_timeout_s: int) -> None:
        super().__init__(config)
        self._app = app
        self._head_timeout_s = head_timeout_s
        self._announcing: asyncio.Task[None] | None = None
        self._collecting = contextlib.ExitStack()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])  # what listens is made here, for the sake of one argument
        if self.started:
            self.servers = [await self._listening(listening) for listening in sockets or ()]
            self._announcing = asyncio.create_task(self._announce())

    async def _listening(self, listening: socket.socket) -> asyncio.Server:
        config = self.config

        def make_protocol() -> asyncio.Protocol:
            return HttpProtocol(config=config, server_state=self.server_state, app_state=self.lifespan.state)

        return await asyncio.get_running_loop().create_server(
            make_protocol,
            sock=listening,
            backlog=config.backlog,
            ssl=config.ssl,
            ssl_handshake_timeout=self._head_timeout_s if config.ssl else None,
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._app.leave()
        streams = self._app.streams
        self._app.end_long_requests()  # else it would wait for them
        await asyncio.sleep(LAST_ANSWERS_S)
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            if cycle is not None and streams.has(cycle.scope):
                connection.transport.abort()  # it does not read, and its end cannot be sent
        ending = asyncio.create_task(self._end_tls())
        await super().shutdown(sockets=sockets)
        ending.cancel()
        self._collecting.close()

    async def _end_tls(self) -> None:
        """Break off connections that have nothing to send, and whose peers do not answer the end of TLS.

        Idle ones do not read: each would be waited for half a minute.
        """
        before: set[Any] = set()
        while True:
            await asyncio.sleep(LAST_ANSWERS_S)
            closing = {each for each in self.server_state.connections if _is_closing_tls(each.transport)}
            for connection in closing & before:
                connection.transport.abort()
            before = closing

    async def _announce(self) -> None:
        await self._app.readiness.wait()
        self._collecting.enter_context(young_collections())
        url = _url(_address(self.servers[0].sockets[0]), is_tls=self.config.is_ssl)
        print(f"blockyard is ready at {url}", flush=True)  # noqa: T201 - for whoever started it
        log.info("ready", url=url, **self._app.describe())


def _is_closing_tls(transport: asyncio.Transport) -> bool:
    is_tls = transport.get_extra_info("sslcontext") is not None
    return is_tls and transport.is_closing() and not transport.get_write_buffer_size()


def _topic_address(listening: socket.socket) -> str:
    """Host and port for topics: this machine's name where the server listens on all its addresses."""
    host, port = listening.getsockname()[:2]
    return f"{socket.gethostname()}:{port}" if host in EVERYWHERE else _address(listening)


def _address(listening: socket.socket) -> str:
    """Host and port, as they stand in a URL."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _url(address: str, *, is_tls: bool) -> str:
    return f"{'https' if is_tls else 'http'}://{address}"


def serve(settings: Settings, sockets: list[socket.socket]) -> int:
    """Serve until SIGTERM or SIGINT, let requests in flight end, and return the exit status.

    Args:
        settings: The server's; its address is that of ``sockets``.
        sockets: Listen already; closed at the end.

    Raises:
        JournalError: The data directory is another's, or cannot be read.
        EventsUnavailable: The sockets for events cannot be had.
        ClusterUnavailable: The packages for a cluster are not installed, or a file for it cannot be used.
        ModuleNotFoundError: Traces are to be sent, and the packages for it are not installed.
        TokenFileError: The file of tokens cannot be read.
        TlsError: A file for TLS cannot be used.
    """
    logs.configure(settings.log_level, settings.log_format)
    warn_of_exposure(settings)
    settings = _within_file_limit(settings)
    with contextlib.ExitStack() as ending:
        tracing = ending.enter_context(_tracing()) if settings.traces else None
        event_sockets = ending.enter_context(_event_sockets(settings)) if settings.event_endpoint else None
        is_local = not (settings.volatile or settings.cluster)
        durable = ending.enter_context(Durable(settings)) if is_local else None
        make_cluster = _cluster(settings, sockets[0]) if settings.cluster else None
        return _serve(settings, sockets, durable, event_sockets, tracing, make_cluster)


def _event_sockets(settings: Settings) -> "EventSockets":
    """The sockets that ``settings`` ask for. Raises EventsUnavailable."""
    try:
        from blockyard.server.events.curve import Curve  # noqa: PLC0415 - an extra
        from blockyard.server.events.sockets import EventSockets  # noqa: PLC0415
    except ModuleNotFoundError as error:
        hint = "pip install 'blockyard[server,events]'"
        raise EventsUnavailable(f"--event-endpoint needs ZeroMQ: {hint}") from error
    curve = None
    if settings.event_curve_key:
        curve = Curve.read(Path(settings.event_curve_key), Path(settings.event_curve_clients))
    return EventSockets(settings.event_endpoint, settings.event_replay_endpoint, curve)


def _cluster(settings: Settings, listening: socket.socket) -> "MakeCluster":
    """The part in a cluster that ``settings`` ask for. Raises ClusterUnavailable."""
    try:
        from blockyard.server.cluster.cluster import cluster_of  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        hint = "pip install 'blockyard[cluster]'"
        raise ClusterUnavailable(f"--cluster needs the client of NATS: {hint}") from error
    try:
        return cluster_of(
            settings, _url(_topic_address(listening), is_tls=bool(settings.tls_cert)), socket.gethostname()
        )
    except (OSError, ValueError) as error:
        files = "--cluster-credentials, --cluster-ca or --proxy-ca"
        raise ClusterUnavailable(f"a file of {files} cannot be used: {error}") from error


def _serve(
    settings: Settings,
    sockets: list[socket.socket],
    durable: Durable | None,
    event_sockets: "EventSockets | None",
    tracing: "Tracing | None",
    make_cluster: "MakeCluster | None",
) -> int:
    failures: list[JournalError] = []

    def end(error: JournalError) -> None:
        """A start that failed ends as usual; a journal that cannot be written ends the process at once."""
        failures.append(error)
        if app.readiness.has_begun:
            loop = asyncio.get_running_loop()
            loop.call_later(LAST_ANSWERS_S, os._exit, os.EX_IOERR)
        else:
            server.should_exit = True

    app = create_app(
        settings,
        durable,
        end,
        sockets=event_sockets,
        topic_address=_topic_address(sockets[0]),
        tracing=tracing,
        make_cluster=make_cluster,
    )
    tls = tls_context(settings, settings.max_connections + NUM_SPARE_CONNECTIONS)
    config = uvicorn.Config(
        app,
        ssl_context_factory=None if tls is None else lambda _, __: tls,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
        http=HttpProtocol,
        ws="none",
    )
    server = _Server(config, app, settings.head_timeout_s)
    # uvicorn raises the signal that ended it once more, for whoever was to handle it before: nobody.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ignore)
    server.run(sockets=sockets)
    if failures:
        raise failures[0]
    if not server.started:
        return 1
    log.info("stopped")
    return 0


def _tracing() -> "Tracing":
    """Traces: only those who want them need the packages, and wait for them."""
    from blockyard.server.tracing.tracing import Tracing  # noqa: PLC0415

    return Tracing()


def _within_file_limit(settings: Settings) -> Settings:
    """``settings`` with no more connections than there can be: each is an open file.

    The process is allowed as many files as it may have.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most == resource.RLIM_INFINITY or settings.max_connections <= most - RESERVED_FILES:
        return settings
    max_connections = max(1, most - RESERVED_FILES)
    log.warning("fewer connections, since fewer files may be open", max_connections=max_connections)
    return replace(settings, max_connections=max_connections)


def _ignore(_signum: int, _frame: FrameType | None) -> None:
    pass
