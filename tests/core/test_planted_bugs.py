"""The machine finds what it is there to find."""

import pytest
from hypothesis import Phase, settings

from blockyard.core.compiled import is_compiled
from blockyard.core.pool import Pool
from core.drawn_pools import pool_configs
from core.pin_machine import PinMachine
from core.planted_bugs import (
    CORRUPTING_BUGS,
    PLANTED_BUGS,
    POOLS_OF_BUGS,
    SEEDS_OF_BUGS,
    WITH_PINS,
    WITH_WORKERS,
)
from core.pool_machine import SETTINGS, PoolMachine, run
from rounds import seeded

pytestmark = pytest.mark.skipif(
    is_compiled(), reason="bugs are planted by swapping classes, which compiled ones do not allow"
)

UNTIL_FOUND = settings(
    SETTINGS,
    max_examples=1_000,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


def drawing(machine: type[PoolMachine], bug: str) -> type[PoolMachine]:
    """``machine`` with draws that soon come upon ``bug``; as Hypothesis has them, where all do."""
    found: type[PoolMachine] = seeded(machine, SEEDS_OF_BUGS[bug]) if bug in SEEDS_OF_BUGS else machine
    return found


def machine_of(bug: str) -> type[PoolMachine]:
    """The one that does what shows ``bug``."""
    return PinMachine if bug in WITH_PINS else PoolMachine


@pytest.mark.parametrize("bug", PLANTED_BUGS)
def test_the_machine_finds_a_planted_bug(bug: str) -> None:
    class BrokenMachine(machine_of(bug)):  # type: ignore[misc]
        pools = POOLS_OF_BUGS.get(bug, pool_configs())
        has_workers = bug in WITH_WORKERS

        @staticmethod
        def plant(pool: Pool) -> None:
            PLANTED_BUGS[bug](pool)

    with pytest.raises(AssertionError):
        run(drawing(BrokenMachine, bug), UNTIL_FOUND)


@pytest.mark.parametrize("bug", CORRUPTING_BUGS)
def test_the_audit_alone_finds_books_that_do_not_add_up(bug: str) -> None:
    class AuditedMachine(machine_of(bug)):  # type: ignore[misc]
        compares = False
        pools = POOLS_OF_BUGS.get(bug, pool_configs())

        @staticmethod
        def plant(pool: Pool) -> None:
            PLANTED_BUGS[bug](pool)

    with pytest.raises(AssertionError, match="the audit found"):
        run(drawing(AuditedMachine, bug), UNTIL_FOUND)
