"""README's table of every setting, made from `Settings`.

python tests/settings_table.py

writes it anew into README.md, between the lines that begin and end it.
"""

import sys
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from blockyard.server.settings import Settings, rule_of

README = Path(__file__).resolve().parent.parent / "README.md"
COMMAND = "python tests/settings_table.py"
HEADER = ("option of `blockyard serve`", "variable", "default", "what")


def settings_table() -> list[str]:
    """Its lines: a header, and a row for each field, in their order."""
    rows = [HEADER, ("---",) * len(HEADER), *map(_row, fields(Settings))]
    return [f"| {' | '.join(cells)} |" for cells in rows]


def table_in(text: str) -> list[str]:
    """The lines of the table that stands in ``text``."""
    begin, end, lines = _find(text)
    return lines[begin:end]


def with_table(text: str) -> str:
    """``text`` with the table in place of the one in it."""
    begin, end, lines = _find(text)
    return "\n".join((*lines[:begin], *settings_table(), *lines[end:]))


def _find(text: str) -> tuple[int, int, list[str]]:
    """Where the table begins and ends among the lines of ``text``, and these."""
    lines = text.split("\n")
    begin = end = lines.index(settings_table()[0])
    while lines[end].startswith("|"):
        end += 1
    return begin, end, lines


def _row(known: Field[Any]) -> tuple[str, ...]:
    rule = rule_of(known)
    sentence = rule.sentence.replace("|", "\\|")
    if rule.choices:
        sentence += f" One of {', '.join(f'`{choice}`' for choice in rule.choices)}."
    default = "" if known.default in (False, "") else f"`{known.default}`"
    return f"`--{known.name.replace('_', '-')}`", f"`BLOCKYARD_{known.name.upper()}`", default, sentence


def main() -> int:
    """Write it anew."""
    README.write_text(with_table(README.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
