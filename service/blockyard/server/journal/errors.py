"""What can be wrong with a data directory: each says what to do about it.

JournalError
├── DataDirInUse      another server owns the directory
├── DamagedJournal    something is missing, or is not what was written
├── NewerJournal      a later version wrote it
└── AppendFailed      the disk is full, or fails: nothing may be acknowledged any more
"""


class JournalError(Exception):
    """A sentence for whoever runs the server: what is wrong, and what to do."""


class DataDirInUse(JournalError):
    """Another process owns the data directory."""


class DamagedJournal(JournalError):
    """A checksum does not fit, or a record or a snapshot is missing. Nothing was changed."""


class NewerJournal(JournalError):
    """Written in a format that this version does not know."""


class AppendFailed(JournalError):
    """Whether the last batch was written is not known."""


RESTORE = (
    "Restore the data directory from a backup; or move it away and start with an empty one: then every "
    "holder has to start again."
)
"""What to do about a journal that is damaged."""
