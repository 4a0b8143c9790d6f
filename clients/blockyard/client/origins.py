"""Servers as scheme, host and port: those that a client is given, and the one that a redirect names."""

from collections.abc import Sequence
from urllib.parse import urlsplit


def origin_of(url: str) -> str:
    """The server that ``url`` names, as scheme, host and port.

    Raises:
        ValueError: It is not an HTTP URL, or has more than these.
    """
    parts = urlsplit(url)
    is_plain = parts.path in ("", "/") and not (parts.query or parts.fragment or "@" in parts.netloc)
    try:
        has_port = parts.port != 0
    except ValueError:
        has_port = False
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain or not has_port:
        raise ValueError(f"not the URL of a server, http://host:port: {url!r}")
    return f"{parts.scheme}://{parts.netloc}"


def origins_of(url: str | Sequence[str]) -> tuple[str, ...]:
    """The servers that ``url`` names, each once, in their order: one, or several with commas between them.

    Raises:
        ValueError: It names none, or something else.
    """
    urls = url.split(",") if isinstance(url, str) else url
    origins = tuple(dict.fromkeys(origin_of(one.strip()) for one in urls))
    if not origins:
        raise ValueError("no server is named: give at least one URL, http://host:port")
    return origins


def origin_for(location: str | None, target: str) -> str | None:
    """The server at which ``location`` asks for ``target`` and for nothing else; None if it does not.

    Args:
        location: The header of a redirect; None where it had none.
        target: Path and query that were asked for.
    """
    if location is None or not location.endswith(target):
        return None
    origin = location.removesuffix(target)
    try:
        return origin if origin_of(origin) == origin else None
    except ValueError:
        return None
