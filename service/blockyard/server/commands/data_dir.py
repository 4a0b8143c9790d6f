"""Reading a data directory from the command line."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import click

from blockyard.server.journal.data_dir import DataDir
from blockyard.server.journal.errors import DataDirInUse, JournalError
from blockyard.server.journal.sqlite_journal import SqliteJournal

data_dir_type = click.Path(exists=True, file_okay=False, path_type=Path)


@contextmanager
def reading(path: Path, *, owned: bool) -> Iterator[SqliteJournal]:
    """The journal in ``path``, to be read; ``owned``: only while no server is running on it.

    Raises:
        click.ClickException: A server is, there is none, or it is damaged: status 1.
    """
    data_dir = DataDir(path)
    if not data_dir.journal.exists():
        raise click.ClickException(f"{path} has no journal: it is no data directory of a server's")
    try:
        with ExitStack() as stack:
            if owned:
                data_dir.lock()
                stack.callback(data_dir.unlock)
            yield stack.enter_context(closing(SqliteJournal(data_dir, read_only=True)))
    except DataDirInUse as error:
        raise click.ClickException(
            f"a server is running on {path}: ask it, with 'blockyard audit POOL', or stop it first"
        ) from error
    except JournalError as error:
        raise click.ClickException(str(error)) from error
