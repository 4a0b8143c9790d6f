"""plotly.js, the dashboard's charts, out of the Python package that ships it.

The package itself is not imported: that takes longer than the server's whole start.
"""

import gzip
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

EXTRA = "blockyard[dashboard]"
"""What to install for charts."""

_STYLE_ID = re.compile(rb'getElementById\("([0-9a-f]{40,})"\)')
"""Before a part of the script adds a <style>, it looks whether one of this id is there already."""

COMPRESSION_LEVEL = 6


@dataclass(frozen=True, slots=True)
class Script:
    """The library's script.

    Attributes:
        compressed: It, with gzip: a third of its megabytes.
        style_ids: Of the <style> elements that it adds as soon as it runs.
    """

    compressed: bytes
    style_ids: list[str]


@dataclass(frozen=True, slots=True)
class Charts:
    """The library's script at ``path``, of the package's ``version``."""

    path: Path
    version: str

    def read(self) -> Script:
        """The script; compressing it takes some tenths of a second."""
        script = self.path.read_bytes()
        return Script(
            compressed=gzip.compress(script, COMPRESSION_LEVEL, mtime=0),
            style_ids=sorted({found.decode() for found in _STYLE_ID.findall(script)}),
        )


def find_charts(package: str = "plotly") -> Charts | None:
    """The script that ``package`` ships; None where it is not installed, or ships none."""
    try:
        found = distribution(package)
    except PackageNotFoundError:
        return None
    path = Path(str(found.locate_file(f"{package}/package_data/plotly.min.js")))
    return Charts(path, found.version) if path.is_file() else None
