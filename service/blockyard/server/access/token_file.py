"""The file of tokens: a JSON document with one entry a token, and of its secret only a hash.

{"tokens": [{"id": "3f9c...", "tenant": "acme", "scopes": ["allocate"], "pools": ["acme-*"],
             "sha256": "9b74...", "created": "2026-01-31T12:00:00Z", "note": "scheduler 1"}]}
"""

import hashlib
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from blockyard.core.ids import TenantId
from blockyard.server.access.principal import ALL_POOLS, Principal, Scope
from blockyard.server.body import TENANT_PATTERN

PREFIX = "byd"
"""What tokens begin with, so that scanners of secrets know them."""
ID_BYTES = 6
SECRET_BYTES = 32


def id_of(token: str) -> str:
    """What names ``token``, which may be that alone already: without its secret."""
    prefix, _, rest = token.strip().partition("_")
    return rest.partition("_")[0] if prefix == PREFIX else token


class TokenFileError(Exception):
    """The file cannot be read, or is not one of tokens. Its text holds no value that stands in the file."""


class TokenEntry(BaseModel):
    """One token, without its secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    id: str = Field(pattern=r"^[0-9a-f]{4,64}$")
    tenant: str = Field("", pattern=f"^({TENANT_PATTERN})?$")
    scopes: list[Scope] = Field(min_length=1)
    pools: list[Annotated[str, Field(min_length=1, max_length=256)]] = Field(list(ALL_POOLS), min_length=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", repr=False)
    created: AwareDatetime
    note: str = Field("", max_length=256)

    @property
    def principal(self) -> Principal:
        """Who bears it."""
        return Principal(
            tenant=TenantId(self.tenant),
            scopes=frozenset(self.scopes),
            pools=tuple(self.pools),
            token_id=self.id,
        )


def _each_id_once(entries: list[TokenEntry]) -> list[TokenEntry]:
    if len({entry.id for entry in entries}) < len(entries):
        raise ValueError("an id stands twice")
    return entries


class TokenDocument(BaseModel):
    """All of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    tokens: Annotated[list[TokenEntry], AfterValidator(_each_id_once)] = []


class Stamp(NamedTuple):
    """By what a changed file is told, without reading it."""

    mtime_ns: int
    num_bytes: int
    inode: int


class TokenFile:
    """The file at ``path``, to be read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def stamp(self) -> Stamp | None:
        """Of the file as it is; None where there is none to be seen."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return Stamp(found.st_mtime_ns, found.st_size, found.st_ino)

    @property
    def is_open_to_others(self) -> bool:
        """Whether others than its owner may read it."""
        try:
            return bool(self.path.stat().st_mode & 0o077)
        except OSError:
            return False

    def read(self) -> TokenDocument:
        """What it holds.

        Raises:
            TokenFileError: It cannot be read, or is not one of tokens.
        """
        try:
            return TokenDocument.model_validate_json(self.path.read_bytes())
        except OSError as error:
            raise TokenFileError(f"the token file {self.path} cannot be read: {error.strerror}") from None
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(str(part) for part in found["loc"])
            at = f" at {where}" if where else ""
            raise TokenFileError(f"the token file {self.path} is not valid{at}: {found['msg']}") from None


def make_token(*, tenant: str, scopes: list[Scope], pools: list[str], note: str) -> tuple[str, TokenEntry]:
    """A new token, which is shown once, and its entry.

    Raises:
        ValidationError: A field cannot be so.
    """
    identity, secret = secrets.token_hex(ID_BYTES), secrets.token_hex(SECRET_BYTES)
    entry = TokenEntry(
        id=identity,
        tenant=tenant,
        scopes=scopes,
        pools=pools,
        sha256=hashlib.sha256(secret.encode()).hexdigest(),
        created=datetime.now(UTC).replace(microsecond=0),
        note=note,
    )
    return f"{PREFIX}_{identity}_{secret}", entry
