"""Changing the file of tokens: whole or not at all, and one after the other."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from blockyard.server.access.token_file import TokenDocument, TokenEntry, TokenFile, TokenFileError

Edit = Callable[[list[TokenEntry]], list[TokenEntry]]


def edit_tokens(path: Path, edit: Edit) -> None:
    """Put what ``edit`` makes of the tokens at ``path`` in their place; a missing file has none.

    Others who edit wait; a server that reads meanwhile finds what was before, or what is after. Nobody but
    the file's owner may read it.

    Raises:
        TokenFileError: The file is not one of tokens, or cannot be written. It is unchanged then.
    """
    path = path.resolve()  # a link stays one
    try:
        with _locked(path):
            file = TokenFile(path)
            before = file.read().tokens if path.exists() else []
            _replace(path, TokenDocument(tokens=edit(before)))
    except OSError as error:
        raise TokenFileError(f"the token file {path} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The lock over the file at ``path``: on a file of its own beside it, as that one is replaced."""
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, document: TokenDocument) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(document.model_dump_json(indent=2).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                _give(file.fileno(), path)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _give(descriptor: int, path: Path) -> None:
    """Give a file to the owner of the one at ``path``, where we may: root edits for a server's user."""
    owner = path.stat()
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
