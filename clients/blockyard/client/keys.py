"""Idempotency keys: a random prefix that no other process has, and a number that counts on.

Drawing random bytes for each key would be a system call a call.
"""

import itertools
import os
import secrets


class Keys:
    """Gives keys, never one twice. Thread-safe; after a fork, `renew` them in the child."""

    __slots__ = ("_numbers", "_prefix")

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin a new prefix."""
        self._prefix = secrets.token_hex(12)
        self._numbers = itertools.count()

    def draw(self) -> str:
        """The next key."""
        return f"{self._prefix}-{next(self._numbers)}"


_KEYS = Keys()
if hasattr(os, "register_at_fork"):  # else there are no forks
    os.register_at_fork(after_in_child=_KEYS.renew)
new_key = _KEYS.draw
