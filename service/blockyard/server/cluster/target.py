"""What a request asks for, as it is asked of another node."""

from urllib.parse import quote

from starlette.types import Scope


def target_of(scope: Scope) -> str:
    """Path and query of a request, as they travel."""
    raw = scope.get("raw_path")
    path = raw.decode("latin-1").partition("?")[0] if raw else quote(scope["path"])
    query = scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path
