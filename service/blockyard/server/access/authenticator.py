"""From a request's token to who bears it; the tokens are those of a file, as it is by now.

A file that cannot be read any more changes nothing: the tokens that were known stay so.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog

from blockyard.core.errors import Unauthorized
from blockyard.server.access.principal import ANYONE, Principal
from blockyard.server.access.token_file import PREFIX, Stamp, TokenDocument, TokenFile, TokenFileError

log = structlog.get_logger("blockyard.access")

LOOK_S = 1.0
"""Between two looks at the file."""

_PREFIX = PREFIX.encode()


class _Known(NamedTuple):
    """``digest``: SHA-256 of the token's secret."""

    digest: bytes
    principal: Principal


_UNKNOWN = _Known(bytes(32), ANYONE)
"""Whom the token of an unknown id is compared with, so that it takes as long. No secret has this digest."""


class Authenticator:
    """Knows the tokens of ``file``; without one everyone is `ANYONE`.

    Raises:
        TokenFileError: The file cannot be read.
    """

    def __init__(self, file: TokenFile | None) -> None:
        self._file = file
        self._known: dict[bytes, _Known] = {}
        self._stamp: Stamp | None = None
        if file is not None:
            self._stamp = file.stamp()
            self._take(file.read())

    def principal(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        """Who sends ``headers``, by their lower-case names.

        Raises:
            Unauthorized: No token is shown, or one that is not known, or several: whoever stands in between
                may have looked at another one.
        """
        if self._file is None:
            return ANYONE
        shown = [value for name, value in headers if name == b"authorization"]
        if not shown:
            raise Unauthorized("send a token: Authorization: Bearer byd_...; 'blockyard token add' makes one")
        if len(shown) > 1:
            raise Unauthorized("send one token: there are several Authorization headers")
        scheme, _, token = shown[0].partition(b" ")
        prefix, _, rest = token.strip().partition(b"_")
        identity, _, secret = rest.partition(b"_")
        known = self._known.get(identity, _UNKNOWN)
        is_right = hmac.compare_digest(hashlib.sha256(secret).digest(), known.digest)
        if not is_right or known is _UNKNOWN or prefix != _PREFIX or scheme.lower() != b"bearer":
            raise Unauthorized("this token is not known, or not any more: 'blockyard token add' makes one")
        return known.principal

    def knows(self, principal: Principal) -> bool:
        """Whether ``principal``, who was known once, still is, with the same rights."""
        if self._file is None:
            return principal is ANYONE
        known = self._known.get(principal.token_id.encode())
        return known is not None and known.principal is principal

    async def follow(self, on_change: Callable[[], None], every_s: float = LOOK_S) -> None:
        """Look at the file for ever, take in what it becomes, and call ``on_change`` after each time."""
        file = self._file
        while file is not None:
            await asyncio.sleep(every_s)
            try:
                found = await asyncio.to_thread(self._look, file)
            except TokenFileError as error:
                log.error("the token file cannot be used; tokens stay as they were", reason=str(error))  # noqa: TRY400 - no traceback: it is all in the sentence
                continue
            except Exception:  # whatever it is: a token that is revoked next is to be noticed
                log.exception("the token file could not be looked at")
                continue
            if found is not None:
                self._take(found)
                log.info("tokens read", path=str(file.path), num_tokens=len(self._known))
                on_change()

    def _look(self, file: TokenFile) -> TokenDocument | None:
        """What stands in the file if it has changed since it was read last, or was tried to be.

        Raises:
            TokenFileError: It has, and cannot be read.
        """
        stamp = file.stamp()
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        return file.read()

    def _take(self, document: TokenDocument) -> None:
        """Know these tokens from now on; whose entry is the same is the same principal."""
        before, self._known = self._known, {}
        for entry in document.tokens:
            known = _Known(bytes.fromhex(entry.sha256), entry.principal)
            old = before.get(entry.id.encode())
            self._known[entry.id.encode()] = old if old is not None and old == known else known
