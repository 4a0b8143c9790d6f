"""plotly.js, the dashboard's charts, out of the Python package that ships it.

The package itself is not imported: that takes longer than the server's whole start.
"""

import asyncio
import gzip
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

EXTRA = "blockyard[dashboard]"
"""What to install for charts."""


@dataclass(frozen=True, slots=True)
class Charts:
    """The library's script at ``path``, of the package's ``version``."""

    path: Path
    version: str

    async def read(self) -> bytes:
        """The script, compressed with gzip: a third of its megabytes."""
        return await asyncio.to_thread(lambda: gzip.compress(self.path.read_bytes(), mtime=0))


def find_charts(package: str = "plotly") -> Charts | None:
    """The script that ``package`` ships; None where it is not installed, or ships none."""
    try:
        found = distribution(package)
    except PackageNotFoundError:
        return None
    path = Path(str(found.locate_file(f"{package}/package_data/plotly.min.js")))
    return Charts(path, found.version) if path.is_file() else None
