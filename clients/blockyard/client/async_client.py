"""The asynchronous client: `blockyard.client.client` with ``await``, on one event loop.

async with AsyncClient("http://127.0.0.1:8484") as client:
    pool = await client.create_pool("llama", num_blocks=1024, block_size=16)
    async with pool.lease("scheduler-0") as lease:
        await lease.allocate("request-1", 100)
"""

import ssl
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

import httpx

from blockyard.client.async_lean import AsyncLeanTransport
from blockyard.client.call import Call
from blockyard.client.lean import goes_lean
from blockyard.client.lease import AsyncLease
from blockyard.client.lease_protocol import LeaseCalls
from blockyard.client.lease_state import LeaseState
from blockyard.client.methods import awaitable
from blockyard.client.origins import origins_of
from blockyard.client.pool_options import PoolOptions
from blockyard.client.protocol import PoolCalls, ServerCalls
from blockyard.client.retry import RetryPolicy
from blockyard.client.routes import Routes
from blockyard.client.sender import AsyncSender
from blockyard.client.tls import Tls, context_for
from blockyard.client.transport import AsyncHttpxTransport, AsyncTransport
from blockyard.client.wire import Form
from blockyard.core.hash_chain import Hasher

T = TypeVar("T")


class OpeningLease:
    """A lease about to be taken: ``await`` it, or enter it with ``async with``, which releases it."""

    def __init__(self, take: Callable[[], Awaitable[AsyncLease]]) -> None:
        self._take = take
        self._lease: AsyncLease | None = None

    def __await__(self) -> Generator[Any, Any, AsyncLease]:
        return self._take().__await__()

    async def __aenter__(self) -> AsyncLease:
        self._lease = await self._take()
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            await self._lease.__aexit__(kind, error, trace)


class AsyncPool:
    """One pool of a server, from `AsyncClient.pool`. Making one asks nothing."""

    def __init__(self, sender: AsyncSender, name: str, form: Form) -> None:
        self._sender = sender
        self._calls = PoolCalls(name, form)

    describe = awaitable(PoolCalls.describe)
    delete = awaitable(PoolCalls.delete)
    stats = awaitable(PoolCalls.stats)
    audit = awaitable(PoolCalls.audit)
    event_snapshot = awaitable(PoolCalls.event_snapshot)
    reset_prefix_cache = awaitable(PoolCalls.reset_prefix_cache)
    lookup = awaitable(PoolCalls.lookup)
    sequence = awaitable(PoolCalls.sequence)
    cached_prefixes = awaitable(PoolCalls.cached_prefixes)
    pin = awaitable(PoolCalls.pin)
    pins = awaitable(PoolCalls.pins)
    renew_pin = awaitable(PoolCalls.renew_pin)
    unpin = awaitable(PoolCalls.unpin)
    tenants = awaitable(PoolCalls.tenants)
    tenant = awaitable(PoolCalls.tenant)
    set_quota = awaitable(PoolCalls.set_quota)
    remove_quota = awaitable(PoolCalls.remove_quota)
    workers = awaitable(PoolCalls.workers)
    register_worker = awaitable(PoolCalls.register_worker)
    heartbeat = awaitable(PoolCalls.heartbeat)
    remove_worker = awaitable(PoolCalls.remove_worker)

    @property
    def name(self) -> str:
        """The pool's name."""
        return self._calls.name

    def __repr__(self) -> str:
        return f"<AsyncPool {self.name!r} at {self._sender.routes}>"

    def lease(self, holder: str, ttl_ms: int = 10_000, *, renew: bool = True) -> OpeningLease:
        """Take a lease: ``await pool.lease(...)`` or ``async with pool.lease(...) as lease``.

        Args:
            holder: Who takes it, for people who watch.
            ttl_ms: How long it stands without a call or a renewal, above 0.
            renew: Renew it from a background task. Without, the caller's calls have to come often enough.

        Raises:
            PoolNotFound: There is no such pool.
            RuntimeError: The client is closed.
        """

        async def take() -> AsyncLease:
            sent_s = time.monotonic()
            granted = await self._send(self._calls.create_lease(holder, ttl_ms))
            calls = LeaseCalls(self.name, granted.lease_id, granted.epoch, self._calls.form)
            state = LeaseState(granted, sent_s)
            return AsyncLease(self._sender, calls, state, renew=renew)

        return OpeningLease(take)

    async def hasher(self, seed: str | None = None) -> Hasher:
        """As `Pool.hasher`."""
        return (await self.describe()).hasher(seed)

    async def _send(self, call: Call[T]) -> T:
        return await self._sender.send(call)


class AsyncClient:
    """A client of one server, or of one cluster, for one event loop.

    Args:
        url: As `Client`'s.
        timeout_s: Of one try of a call, beside its ``wait_ms``.
        retries: As `Client`'s.
        transport: As `Client`'s: ``lean``, ``httpx``, or an object, closed with the client.
        form: Of bodies on the hot routes.
        token: As `Client`'s.
        tls: Whom to trust, and what to show of oneself; default: what httpx trusts.

    Raises:
        ValueError: ``url`` is none of a server, ``token`` cannot be one, or ``tls`` cannot be used for it.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        timeout_s: float = 10.0,
        retries: RetryPolicy | None = None,
        transport: Literal["lean", "httpx"] | AsyncTransport | None = None,
        form: Form = Form.MSGPACK,
        token: str | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._calls = ServerCalls(form)
        origins = origins_of(url)
        if transport is None or isinstance(transport, str):
            transport = _transport(origins, transport, context_for(origins, tls))
        elif tls is not None:
            raise ValueError("tls goes with a transport of the client's own: give it to yours")
        self._sender = AsyncSender(transport, Routes(origins), retries, timeout_s, token)

    health = awaitable(ServerCalls.health)
    cluster = awaitable(ServerCalls.cluster)
    ready = awaitable(ServerCalls.ready)
    hash = awaitable(ServerCalls.hash)
    pools = awaitable(ServerCalls.pools)

    async def create_pool(
        self, name: str, *, num_blocks: int | None = None, **options: Unpack[PoolOptions]
    ) -> AsyncPool:
        """Create a pool, or find the one that was created under this name with the same arguments.

        Args:
            name: Of the pool: letters, digits, ``.``, ``_`` and ``-``, a letter or digit first, at most 128.
            num_blocks: Blocks, the null block included; at least 1. A plan's follow from its memory.
            options: ``block_size``, ``groups`` or ``plan``, and what else `PoolOptions` has.

        Raises:
            PoolExists: The name is taken by another configuration.
            InvalidRequest: The name cannot be, or sizes do not fit each other.
            TypeError: There is no such option.
        """
        await self._send(self._calls.create_pool(name, num_blocks=num_blocks, **options))
        return self.pool(name)

    def pool(self, name: str) -> AsyncPool:
        """The pool of this name, whether it exists or not.

        Raises:
            InvalidRequest: No pool can have this name; see `create_pool`.
        """
        return AsyncPool(self._sender, name, self._calls.form)

    def __repr__(self) -> str:
        return f"<AsyncClient of {self._sender.routes}>"

    async def close(self) -> None:
        """Close all connections and end the renewal of leases, which then expire unless released before.

        Calls then raise RuntimeError.
        """
        await self._sender.close()

    async def _send(self, call: Call[T]) -> T:
        return await self._sender.send(call)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _transport(
    origins: Sequence[str], wanted: Literal["lean", "httpx"] | None, tls: ssl.SSLContext | None
) -> AsyncTransport:
    """What carries requests to ``origins``."""
    if goes_lean(origins, wanted):
        return AsyncLeanTransport(tls)
    if tls is None:
        return AsyncHttpxTransport()
    return AsyncHttpxTransport(httpx.AsyncClient(verify=tls))
