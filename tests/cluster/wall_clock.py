"""A wall clock that can be set under a process while it runs; the steady clocks go on.

libfaketime, preloaded, reads from a file how far the wall clock is ahead, at most once a second.
"""

from pathlib import Path

LIBRARIES = [
    Path(f"/usr/lib/{machine}-linux-gnu/faketime/libfaketime.so.1") for machine in ("x86_64", "aarch64")
]
MISSING = "libfaketime is not installed (Debian's package libfaketime)"


class WallClock:
    """Kept in the file ``path``, right at first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(0)

    @staticmethod
    def is_possible() -> bool:
        """Whether the library is there."""
        return _library() is not None

    @property
    def prefix(self) -> tuple[str, ...]:
        """Words before the command line of a process that is to have it; none where it is not possible."""
        library = _library()
        if library is None:
            return ()
        return (
            "env",
            f"LD_PRELOAD={library}",
            f"FAKETIME_TIMESTAMP_FILE={self._path}",
            "DONT_FAKE_MONOTONIC=1",
            "FAKETIME_FORCE_MONOTONIC_FIX=0",  # it is for older C libraries, and others wait too long by it
            "FAKETIME_CACHE_DURATION=1",
            "NO_FAKE_STAT=1",
        )

    def set(self, ahead_s: int) -> None:
        """It jumps to where it is so many seconds ahead of the real one, or behind."""
        new = self._path.with_suffix(".new")
        new.write_text(f"{ahead_s:+d}\n")
        new.replace(self._path)


def _library() -> Path | None:
    return next((path for path in LIBRARIES if path.exists()), None)
