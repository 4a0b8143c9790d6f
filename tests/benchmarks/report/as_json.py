"""``--json`` of a benchmark: its figures for programs, in place of the table or beside it."""

import argparse
import json
from pathlib import Path
from typing import Any


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """``--json`` prints JSON in place of the table; ``--json FILE`` writes it there, beside the table."""
    parser.add_argument(
        "--json", nargs="?", const=True, metavar="FILE", help="in place of the table; to a file: beside it"
    )


def tell_as_json(where: str | bool | None, figures: Any) -> bool:
    """Write ``figures`` where ``--json`` says, if it is given; whether that was all that is wanted."""
    match where:
        case None:
            return False
        case True:
            print(json.dumps(figures))
            return True
    Path(str(where)).write_text(json.dumps(figures))
    return False
