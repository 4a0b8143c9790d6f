"""What CI says about known weaknesses of what a server install brings."""

import runpy
from pathlib import Path
from typing import Any

PROGRAM = runpy.run_path(str(Path(__file__).resolve().parent.parent / ".ci/advisories.py"))

SOUND = {"name": "click", "version": "8.1.7", "vulns": []}
UNKNOWN = {"name": "librt", "skip_reason": "Dependency not found on PyPI and could not be audited"}
OWN = {"name": "blockyard", "skip_reason": "Dependency not found on PyPI and could not be audited"}


def weak(*fix_versions: str) -> dict[str, Any]:
    found = {"id": "PYSEC-1", "fix_versions": [*fix_versions], "aliases": [], "description": "bad"}
    return {"name": "jinja2", "version": "2.4.1", "vulns": [found]}


def verdict(*dependencies: dict[str, Any]) -> tuple[bool, list[str]]:
    judged: tuple[bool, list[str]] = PROGRAM["verdict"](dependencies)
    return judged


def test_packages_without_weaknesses_pass() -> None:
    assert verdict(SOUND, OWN) == (True, ["1 packages audited, 0 weaknesses found"])


def test_a_known_weakness_fails_and_is_named_with_its_remedy() -> None:
    assert verdict(SOUND, weak("2.7", "2.8"), UNKNOWN) == (
        False,
        [
            "2 packages audited, 1 weaknesses found",
            "jinja2 2.4.1: PYSEC-1, fixed in 2.7, 2.8",
            "not audited, for the service does not know them: librt",
        ],
    )
    assert verdict(weak()) == (
        False,
        ["1 packages audited, 1 weaknesses found", "jinja2 2.4.1: PYSEC-1, not fixed yet"],
    )


def test_where_nothing_was_audited_that_is_said() -> None:
    is_good, said = verdict(UNKNOWN, OWN)
    assert is_good
    assert said == ["NOTHING WAS AUDITED: the service, if it was reached, knows none of 1 packages"]


def test_a_folder_without_packages_is_a_mistake() -> None:
    assert verdict(OWN) == (False, ["there is no package to audit"])


def test_every_advisory_that_is_ignored_has_a_reason() -> None:
    assert [advisory for advisory, reason in PROGRAM["IGNORED"].items() if not reason.strip()] == []
