"""Who reaches a server: what is refused before it starts, and what its log warns of."""

import socket
from ipaddress import ip_address
from pathlib import Path

import structlog

from blockyard.server.access.token_file import TokenFile
from blockyard.server.settings import Settings

log = structlog.get_logger("blockyard.access")


class Exposed(Exception):
    """Whoever reaches the address could do everything."""


def refuse_exposure(settings: Settings) -> None:
    """Refuse to serve an address that others reach, where nothing says who they are, unless that is wanted.

    Raises:
        Exposed: So it is.
    """
    is_asked = settings.token_file or settings.tls_client_ca or settings.insecure
    if not is_asked and not is_loopback(settings.host):
        raise Exposed(
            f"whoever reaches {settings.host} could use and delete every pool: give --token-file, which "
            "'blockyard token add' makes, or --tls-client-ca; or say --insecure"
        )


def warn_of_exposure(settings: Settings) -> None:
    """Log what makes tokens known to others than their bearers."""
    if not settings.token_file:
        return
    if not settings.tls_cert and not is_loopback(settings.host):
        log.warning("tokens travel unencrypted: give --tls-cert and --tls-key", host=settings.host)
    file = TokenFile(Path(settings.token_file))
    if file.is_open_to_others:
        log.warning("others than its owner may read the token file: chmod 600", path=settings.token_file)


def is_loopback(host: str) -> bool:
    """Whether no other machine reaches ``host``; also where it names no address at all."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return True  # it cannot be listened on
    return all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)
