"""TLS of a client: whom it trusts, and what it shows of itself."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Files in PEM.

    Attributes:
        ca_cert: Authorities that may have signed the server's certificate; None: those that httpx trusts.
        client_cert: The client's own certificate, for a server that asks for one.
        client_key: Its private key; None where it stands in the same file.
    """

    ca_cert: Path | str | None = None
    client_cert: Path | str | None = None
    client_key: Path | str | None = None

    def context(self) -> ssl.SSLContext:
        """TLS with these.

        Raises:
            ValueError: A file is missing, or is not what it should be.
        """
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("client_key goes with client_cert, which is not given")
        for path in (self.ca_cert, self.client_cert, self.client_key):
            if path is not None:
                _check_readable(Path(path))
        try:
            context = httpx.create_ssl_context() if self.ca_cert is None else _trusting(Path(self.ca_cert))
            if self.client_cert is not None:
                context.load_cert_chain(self.client_cert, self.client_key, _no_password)
        except ssl.SSLError as error:
            given = (self.ca_cert, self.client_cert, self.client_key)
            named = ", ".join(str(path) for path in given if path is not None)
            raise ValueError(
                f"{named}: no certificates in PEM, or one without its own key ({error.reason or error})"
            ) from error
        return context


Tls: TypeAlias = ssl.SSLContext | TlsFiles


def context_for(origins: Sequence[str], tls: Tls | None) -> ssl.SSLContext | None:
    """The TLS to speak to ``origins`` with: ``tls``, or what httpx trusts; None if all are ``http://``.

    Raises:
        ValueError: ``tls`` is given for ``http://`` alone, or cannot be used.
    """
    if all(origin.startswith("http:") for origin in origins):
        if tls is not None:
            raise ValueError(f"tls goes with https://, and not with {', '.join(origins)}")
        return None
    if isinstance(tls, ssl.SSLContext):
        return tls
    return (tls or TlsFiles()).context()


def is_refusal(error: BaseException | None) -> bool:
    """Whether ``error``, or what it came from, says that TLS failed for good: with a certificate, say."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            passing = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
            return not isinstance(error, passing)
        error = error.__cause__ or error.__context__
    return False


def _trusting(ca_cert: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_cert)


def _check_readable(path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    """In place of a question at the terminal."""
    raise ValueError("the client's key is encrypted: give one that is not, or an SSLContext")
