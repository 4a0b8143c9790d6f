"""The synchronous client: a server or a cluster, its pools, and a pool's leases, under which blocks are held.

with Client("http://127.0.0.1:8484") as client:
    pool = client.create_pool("llama", num_blocks=1024, block_size=16)
    with pool.lease("scheduler-0") as lease:
        lease.allocate("request-1", 100)
"""

import ssl
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Self, TypeVar, Unpack

import httpx

from blockyard.client.call import Call
from blockyard.client.lean import LeanTransport, goes_lean
from blockyard.client.lease import Lease
from blockyard.client.lease_protocol import LeaseCalls
from blockyard.client.lease_state import LeaseState
from blockyard.client.methods import blocking
from blockyard.client.origins import origins_of
from blockyard.client.pool_options import PoolOptions
from blockyard.client.protocol import PoolCalls, ServerCalls
from blockyard.client.retry import RetryPolicy
from blockyard.client.routes import Routes
from blockyard.client.sender import Sender
from blockyard.client.tls import Tls, context_for
from blockyard.client.transport import HttpxTransport, Transport
from blockyard.client.wire import Form
from blockyard.core.hash_chain import Hasher

T = TypeVar("T")


class Pool:
    """One pool of a server, from `Client.pool`. Making one asks nothing. Thread-safe."""

    def __init__(self, sender: Sender, name: str, form: Form) -> None:
        self._sender = sender
        self._calls = PoolCalls(name, form)

    describe = blocking(PoolCalls.describe)
    delete = blocking(PoolCalls.delete)
    stats = blocking(PoolCalls.stats)
    audit = blocking(PoolCalls.audit)
    event_snapshot = blocking(PoolCalls.event_snapshot)
    reset_prefix_cache = blocking(PoolCalls.reset_prefix_cache)
    lookup = blocking(PoolCalls.lookup)
    sequence = blocking(PoolCalls.sequence)
    cached_prefixes = blocking(PoolCalls.cached_prefixes)
    pin = blocking(PoolCalls.pin)
    pins = blocking(PoolCalls.pins)
    renew_pin = blocking(PoolCalls.renew_pin)
    unpin = blocking(PoolCalls.unpin)
    tenants = blocking(PoolCalls.tenants)
    tenant = blocking(PoolCalls.tenant)
    set_quota = blocking(PoolCalls.set_quota)
    remove_quota = blocking(PoolCalls.remove_quota)
    workers = blocking(PoolCalls.workers)
    register_worker = blocking(PoolCalls.register_worker)
    heartbeat = blocking(PoolCalls.heartbeat)
    remove_worker = blocking(PoolCalls.remove_worker)

    @property
    def name(self) -> str:
        """The pool's name."""
        return self._calls.name

    def __repr__(self) -> str:
        return f"<Pool {self.name!r} at {self._sender.routes}>"

    def lease(self, holder: str, ttl_ms: int = 10_000, *, renew: bool = True) -> Lease:
        """Take a lease.

        Args:
            holder: Who takes it, for people who watch.
            ttl_ms: How long it stands without a call or a renewal, above 0. What it holds becomes free as
                long after its holder has died.
            renew: Renew it from a background thread. Without, the caller's calls have to come often enough.

        Raises:
            PoolNotFound: There is no such pool.
            RuntimeError: The client is closed.
        """
        sent_s = time.monotonic()
        granted = self._send(self._calls.create_lease(holder, ttl_ms))
        calls = LeaseCalls(self.name, granted.lease_id, granted.epoch, self._calls.form)
        return Lease(self._sender, calls, LeaseState(granted, sent_s), renew=renew)

    def hasher(self, seed: str | None = None) -> Hasher:
        """What this pool's clients hash with, so that token ids need not travel.

        Args:
            seed: The secret seed, for the algorithms that need one.
        """
        return self.describe().hasher(seed)

    def _send(self, call: Call[T]) -> T:
        return self._sender.send(call)


class Client:
    """A client of one server, or of one cluster. Thread-safe.

    In a cluster a call for a pool goes to the node that has answered for it, else to one of those given,
    which says where. Where a node is gone, the next of those given is asked, under the same idempotency key.

    Args:
        url: ``http://host:port``, or ``https://``; of nodes of one cluster several, as a sequence or with
            commas between them.
        timeout_s: Of one try of a call, beside its ``wait_ms``.
        retries: How often a call is tried; default: six times at a single server, and for 30 s in a cluster.
            `Client.health` and `Client.ready` try once.
        transport: ``lean``: connections of its own, the fast way, and the default where there is no proxy.
            ``httpx``: all that httpx does. Or an object, closed with the client.
        form: Of bodies on the hot routes.
        token: Shown with every request: to the servers of ``url``, and to those that they say own a pool.
            What began with ``https://`` is not redirected to ``http://``.
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
        transport: Literal["lean", "httpx"] | Transport | None = None,
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
        self._sender = Sender(transport, Routes(origins), retries, timeout_s, token)

    health = blocking(ServerCalls.health)
    cluster = blocking(ServerCalls.cluster)
    ready = blocking(ServerCalls.ready)
    hash = blocking(ServerCalls.hash)
    pools = blocking(ServerCalls.pools)

    def create_pool(
        self, name: str, *, num_blocks: int | None = None, **options: Unpack[PoolOptions]
    ) -> Pool:
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
        self._send(self._calls.create_pool(name, num_blocks=num_blocks, **options))
        return self.pool(name)

    def pool(self, name: str) -> Pool:
        """The pool of this name, whether it exists or not.

        Raises:
            InvalidRequest: No pool can have this name; see `create_pool`.
        """
        return Pool(self._sender, name, self._calls.form)

    def __repr__(self) -> str:
        return f"<Client of {self._sender.routes}>"

    def close(self) -> None:
        """Close all connections and end the renewal of leases, which then expire unless released before.

        Calls then raise RuntimeError.
        """
        self._sender.close()

    def _send(self, call: Call[T]) -> T:
        return self._sender.send(call)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _transport(
    origins: Sequence[str], wanted: Literal["lean", "httpx"] | None, tls: ssl.SSLContext | None
) -> Transport:
    """What carries requests to ``origins``."""
    if goes_lean(origins, wanted):
        return LeanTransport(tls)
    if tls is None:
        return HttpxTransport()
    return HttpxTransport(httpx.Client(verify=tls))
