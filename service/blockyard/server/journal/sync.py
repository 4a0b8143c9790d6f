"""What a journal's appends survive."""

from enum import StrEnum


class Sync(StrEnum):
    """What an append survives."""

    PROCESS = "process"
    """The end of the process."""
    FULL = "full"
    """The loss of power as well."""
