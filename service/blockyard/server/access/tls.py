"""TLS of a server, from the files that its settings name."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

from blockyard.server.settings import Settings


class TlsError(Exception):
    """A file for TLS cannot be used."""


class BoundedContext(ssl.SSLContext):
    """One that lets no more be open at a time, those included that have not shown yet who they are.

    Attributes:
        max_open: So many; None for no bound. Others are broken off before a byte is exchanged.
    """

    max_open: int | None = None

    def __init__(self, *_: Any) -> None:
        self._open: WeakSet[ssl.SSLObject] = WeakSet()

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """One more, as `ssl.SSLContext.wrap_bio`. Raises SSLError if that is one too many."""
        if self.max_open is not None and len(self._open) >= self.max_open:
            raise ssl.SSLError(f"{self.max_open} connections are open already")
        made = super().wrap_bio(*args, **kwargs)
        self._open.add(made)
        return made


def tls_context(settings: Settings, max_open: int | None = None) -> ssl.SSLContext | None:
    """TLS 1.2 or later by ``settings``, which may ask for callers' certificates too; None: no TLS.

    No more than ``max_open`` connections are open at a time.

    Raises:
        TlsError: A file is missing, or is not what it should be.
    """
    if not settings.tls_cert:
        return None
    context = BoundedContext(ssl.PROTOCOL_TLS_SERVER)
    context.max_open = max_open
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    for option in ("tls_cert", "tls_key"):
        _readable(option, getattr(settings, option))
    _using(
        f"--tls-cert {settings.tls_cert} and --tls-key {settings.tls_key} are no certificate and its key",
        lambda: context.load_cert_chain(settings.tls_cert, settings.tls_key, _no_password),
    )
    if settings.tls_client_ca:
        _readable("tls_client_ca", settings.tls_client_ca)
        _using(
            f"--tls-client-ca {settings.tls_client_ca} has no certificate in it",
            lambda: context.load_verify_locations(settings.tls_client_ca),
        )
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    """In place of a question at the terminal, which a server would wait at for ever."""
    raise TlsError("--tls-key is encrypted: give one that is not, readable by the server alone")


def _readable(option: str, path: str) -> None:
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise TlsError(f"--{option.replace('_', '-')} {path} cannot be read: {error.strerror}") from None


def _using(wrong: str, load: Callable[[], None]) -> None:
    try:
        load()
    except ssl.SSLError as error:
        raise TlsError(f"{wrong}: {error.reason or error}") from None
