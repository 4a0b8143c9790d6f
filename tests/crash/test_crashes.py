import secrets
from pathlib import Path

import pytest

from crash.calls import READS, Verb
from crash.harness import CrashRun
from crash.killing import Moment
from rounds import NIGHTLY

NUM_KILLS = 200 if NIGHTLY else 10
SYNC = ["process", "full"] if NIGHTLY else ["process"]
"""What appends are made to survive: written in another way for each."""


@pytest.mark.parametrize("with_tenants", [False, True], ids=["", "tenants"])
@pytest.mark.parametrize("sync", SYNC)
def test_whatever_was_answered_is_still_so_after_every_kill(
    sync: str, with_tenants: bool, tmp_path: Path
) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
    crashes = CrashRun(tmp_path, "--sync", sync, seed=seed, with_tenants=with_tenants)
    crashes.run(num_kills=NUM_KILLS, must_happen=list(Moment))
    print("\n".join(f"{count:7} {what}" for what, count in sorted(crashes.coverage.items())))
    must_happen = [
        *Moment,
        *(f"{verb} answered" for verb in Verb if verb not in READS),
        "answered in a later try",
        "calls left open by a kill",
        "refused for want of blocks",
        "refused after a wait",
    ]
    assert [what for what in must_happen if not crashes.coverage[what]] == []
