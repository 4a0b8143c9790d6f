"""What a server can be told: each field an option of ``blockyard serve`` and a ``BLOCKYARD_*`` variable."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A server's settings.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        max_body_bytes: Largest request body.
        max_pools: Most pools at a time.
        max_pool_blocks: Most blocks of one pool.
        max_requests_in_flight: Requests worked on at a time; more are answered ``overloaded``.
        shutdown_timeout_s: How long requests in flight may take once the server is told to stop.
        log_level: ``debug`` (each request), ``info``, ``warning`` or ``error``.
        log_format: ``json`` for machines or ``console`` for people.
    """

    host: str = "127.0.0.1"
    port: int = 8484
    max_body_bytes: int = 32 * 1024 * 1024
    max_pools: int = 1_024
    max_pool_blocks: int = 8_388_608
    max_requests_in_flight: int = 4_096
    shutdown_timeout_s: int = 30
    log_level: str = "info"
    log_format: str = "json"
