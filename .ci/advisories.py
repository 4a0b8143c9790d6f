"""Asks pip-audit whether what is installed in a folder has known weaknesses; with any it ends with status 1.

    python .ci/advisories.py .venv/lib/python3.11/site-packages

Where the service of advisories cannot be reached, or knows nothing of a package, that is said, and fails
nothing: nobody is to believe that it was looked at.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

IGNORED: Mapping[str, str] = {}
"""Why an advisory, by its id, is no matter here: what of the package we do not use."""

OURS = "blockyard"
UNREACHABLE = re.compile(r"connect|resolve|timed? ?out", re.IGNORECASE)
"""In the last line of pip-audit, where it made no report."""


def verdict(dependencies: Sequence[Mapping[str, Any]]) -> tuple[bool, list[str]]:
    """Whether a report of ``dependencies`` is good enough, and what there is to say about it."""
    others = [each for each in dependencies if each["name"] != OURS]
    if not others:
        return False, ["there is no package to audit"]
    skipped = [str(each["name"]) for each in others if "skip_reason" in each]
    num_audited = len(others) - len(skipped)
    found = [
        f"{each['name']} {each['version']}: {weakness['id']}, {_remedy(weakness)}"
        for each in others
        for weakness in each.get("vulns", ())
    ]
    lines = [f"{num_audited} packages audited, {len(found)} weaknesses found", *found]
    if num_audited == 0:
        lines = [f"NOTHING WAS AUDITED: the service, if it was reached, knows none of {len(others)} packages"]
    elif skipped:
        lines.append(f"not audited, for the service does not know them: {', '.join(skipped)}")
    return not found, lines


def _remedy(weakness: Mapping[str, Any]) -> str:
    return f"fixed in {', '.join(weakness['fix_versions'])}" if weakness["fix_versions"] else "not fixed yet"


def audit(folder: str) -> tuple[bool, list[str]]:
    """The `verdict` on what is installed in ``folder``."""
    ignoring = [word for advisory in IGNORED for word in ("--ignore-vuln", advisory)]
    command = [sys.executable, "-m", "pip_audit", "--path", folder, "--format", "json", *ignoring]
    done = subprocess.run(  # noqa: S603 - a tool of our own environment
        [*command, "--progress-spinner", "off"], capture_output=True, text=True, check=False
    )
    if done.stdout.startswith("{"):
        return verdict(json.loads(done.stdout)["dependencies"])
    *_, last = done.stderr.splitlines() or [f"pip-audit ended with {done.returncode}"]
    if UNREACHABLE.search(last):
        return True, [f"NOTHING WAS AUDITED: {last}"]
    return False, [last]


if __name__ == "__main__":
    is_good, said = audit(sys.argv[1])
    print("\n".join(said))  # noqa: T201 - for who reads the run
    sys.exit(not is_good)
