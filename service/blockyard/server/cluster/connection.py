"""The connection to NATS: made again for ever, to whichever server answers."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog
from nats.aio.client import Client
from nats.errors import ConnectionClosedError
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NotFoundError

from blockyard.server.settings import Settings

if TYPE_CHECKING:
    from nats.js import JetStreamContext

log = structlog.get_logger("blockyard.cluster")

PING_S = 1
"""A server that two pings have not reached is left for another."""
RECONNECT_S = 0.1
REQUEST_S = 2.0
"""How long an answer of JetStream's is waited for."""
RETRY_S = 0.1
SAY_EVERY_S = 5.0

WRONG_LAST_SEQUENCE = (10071, 10164)
"""Codes of a publish that was refused, since others had published before."""

PASSING = (NatsError, APIError, OSError, asyncio.TimeoutError)
"""What goes wrong while servers come and go: the same may succeed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsAccess:
    """How NATS is reached.

    Attributes:
        servers: URLs.
        credentials: File of a user's credentials; empty for none.
        ca_cert: Authorities in PEM that have signed the servers' certificates; empty: those of the system.
    """

    servers: tuple[str, ...]
    credentials: str = ""
    ca_cert: str = ""

    @classmethod
    def of(cls, settings: Settings) -> "NatsAccess":
        """As ``settings`` have it. Raises OSError: a file of theirs cannot be read."""
        access = cls(
            servers=tuple(url.strip() for url in settings.cluster.split(",")),
            credentials=settings.cluster_credentials,
            ca_cert=settings.cluster_ca,
        )
        access._options()
        return access

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self.credentials:
            Path(self.credentials).read_bytes()
            options["user_credentials"] = self.credentials
        if self.ca_cert:
            options["tls"] = ssl.create_default_context(cafile=self.ca_cert)
        return options

    async def connect(self, name: str, on_return: Callable[[], None] = lambda: None) -> "Connection":
        """Connected, as soon as a server answers.

        Args:
            name: For whoever looks at the servers' lists of connections.
            on_return: Called whenever the connection was lost and is there again.
        """
        client, over = Client(), asyncio.Event()

        async def lost() -> None:
            if not client.is_closed:
                log.warning("the connection to NATS is lost")

        async def returned() -> None:
            log.info("connected to NATS again", url=_shown(client))
            on_return()

        async def ended() -> None:
            over.set()

        async def failed(error: Exception) -> None:
            log.debug("NATS", error=repr(error))

        await persist(
            lambda: client.connect(
                list(self.servers),
                name=name,
                error_cb=failed,
                closed_cb=ended,
                disconnected_cb=lost,
                reconnected_cb=returned,
                connect_timeout=2,
                reconnect_time_wait=RECONNECT_S,  # type: ignore[arg-type]  # it sleeps so long
                max_reconnect_attempts=-1,
                ping_interval=PING_S,
                **self._options(),
            ),
            "NATS cannot be reached",
        )
        over.clear()  # of a try that failed
        return Connection(client, over)


class Connection:
    """One, for all of a node.

    Attributes:
        client: For what is not JetStream's.
        jetstream: For the rest.

    Args:
        client: Connected.
        over: Set once it is not, and will not be again.
    """

    def __init__(self, client: Client, over: asyncio.Event) -> None:
        self.client = client
        self._over = over
        self.jetstream: JetStreamContext = client.jetstream(timeout=REQUEST_S)

    @property
    def is_connected(self) -> bool:
        """Whether a server answers, as far as is known."""
        return self.client.is_connected

    async def ended(self) -> None:
        """Until a server has sent the client away for good, as one does whose users have changed.

        Raises:
            ConnectionError: That has happened.
        """
        await self._over.wait()
        raise ConnectionError(f"NATS has ended the connection: {self.client.last_error!r}")

    async def close(self) -> None:
        """The end."""
        try:
            await asyncio.wait_for(self.client.close(), REQUEST_S)
        except PASSING as error:
            log.debug("NATS", error=repr(error))


Try: TypeAlias = Callable[[], Awaitable[Any]]


async def persist(attempt: Try, complaint: str) -> Any:
    """What ``attempt`` returns, in the end: it is repeated for as long as what goes wrong may pass.

    Args:
        attempt: Makes what is awaited. May be repeated, whether or not an earlier one was carried out.
        complaint: For the log, while it goes on.
    """
    loop = asyncio.get_running_loop()
    said_s = loop.time() - SAY_EVERY_S + 1.0
    while True:
        try:
            return await attempt()
        except (NotFoundError, ConnectionClosedError):  # neither passes
            raise
        except PASSING as error:
            if loop.time() - said_s >= SAY_EVERY_S:
                said_s = loop.time()
                log.warning("what failed is tried again", failed=complaint, error=repr(error))
            await asyncio.sleep(RETRY_S)


def is_outrun(error: APIError) -> bool:
    """Whether a publish was refused since another has come before."""
    return error.err_code in WRONG_LAST_SEQUENCE


def _shown(client: Client) -> str | None:
    url = client.connected_url
    return None if url is None else url.netloc.rpartition("@")[2]
