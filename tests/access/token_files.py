"""Token files for tests, written as the command line writes them, and read by real servers."""

from pathlib import Path

from blockyard.server.access.principal import Scope
from blockyard.server.access.token_edit import edit_tokens
from blockyard.server.access.token_file import make_token


def add_token(path: Path, *scopes: str, tenant: str = "", pools: tuple[str, ...] = ("*",)) -> str:
    """A new token in the file at ``path``, which is made if it is missing."""
    token, entry = make_token(
        tenant=tenant, scopes=[Scope(scope) for scope in scopes], pools=list(pools), note=""
    )
    edit_tokens(path, lambda entries: [*entries, entry])
    return token


def revoke_token(path: Path, token: str) -> None:
    """Take ``token`` out of the file."""
    edit_tokens(path, lambda entries: [entry for entry in entries if entry.id != id_of(token)])


def id_of(token: str) -> str:
    """What names ``token`` without its secret."""
    return token.split("_")[1]


def secret_of(token: str) -> str:
    """What nobody but its bearer knows."""
    return token.split("_")[2]


def bearing(token: str | None) -> dict[str, str]:
    """The header that shows ``token``, if there is one."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def sending(token: str) -> list[tuple[bytes, bytes]]:
    """The headers of a request that shows ``token``, as a server sees them."""
    return [(b"authorization", f"Bearer {token}".encode())]
