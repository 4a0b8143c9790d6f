"""Where events may be published without a key: only where nobody comes who may not read them.

A file of ``ipc://`` has permissions. A loopback address has none, so that any process of this machine can
follow there: that is refused where callers have to say who they are. At any other address it is whoever
reaches this machine.
"""

from ipaddress import ip_address

ABSTRACT = "@"
"""Begins a name of ``ipc://`` that is no file, and has no permissions."""
LOOPBACK_NAMES = ("localhost", "lo")
"""Beside addresses: ZeroMQ takes a name of an interface as well."""


def check_event_endpoint(
    option: str, endpoint: str, *, has_curve: bool, is_authenticating: bool, is_insecure: bool
) -> None:
    """Refuse to publish at ``endpoint`` where that would tell events to anyone.

    Args:
        option: Its name, for people.
        endpoint: As ZeroMQ takes it, such as ``tcp://0.0.0.0:5557``; empty for none.
        has_curve: Whether followers need a key that is listed.
        is_authenticating: Whether callers of the server need a token, or a certificate.
        is_insecure: Whether it was said that whoever comes is trusted.

    Raises:
        ValueError: It would; the text says what to do.
    """
    transport, _, address = endpoint.partition("://")
    if not endpoint:
        return
    if transport not in ("tcp", "ipc"):
        raise ValueError(f"{option} {endpoint} is neither at tcp:// nor at ipc://")
    if has_curve or is_insecure or (transport == "ipc" and not address.startswith(ABSTRACT)):
        return
    ways = "Give --event-curve-key and --event-curve-clients (see blockyard curve-key), or an ipc:// file"
    if transport == "tcp" and not _is_loopback(address):
        raise ValueError(
            f"{option} {endpoint} would tell events to whoever reaches this machine. "
            f"{ways}, or one at 127.0.0.1, or else --insecure"
        )
    if is_authenticating:
        raise ValueError(
            f"{option} {endpoint} would tell events to every process of this machine, whoever runs it. "
            f"{ways}, or else --insecure"
        )


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # *, or an interface
        return False
