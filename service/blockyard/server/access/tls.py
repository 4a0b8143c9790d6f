"""TLS of a server, from the files that its settings name."""

import ssl
from collections.abc import Callable
from pathlib import Path

from blockyard.server.settings import Settings


class TlsError(Exception):
    """A file for TLS cannot be used."""


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """TLS 1.2 or later by ``settings``, which may ask for callers' certificates too; None: no TLS.

    Raises:
        TlsError: A file is missing, or is not what it should be.
    """
    if not settings.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
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
