import secrets
from pathlib import Path

from cluster.faults import Fault
from cluster.run import ClusterRun
from crash.calls import READS, Verb
from rounds import NIGHTLY

NUM_FAULTS = 50 if NIGHTLY else 5
EVERY_TIME = [Fault.KILL_OWNER, Fault.PAUSE_OWNER, Fault.CUT_FROM_NATS]
"""The rest are drawn."""


def test_whatever_was_answered_is_still_so_after_every_fault(tmp_path: Path) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
    run = ClusterRun(tmp_path, seed=seed, first=EVERY_TIME)
    run.run(NUM_FAULTS, print)
    print("\n".join(run.figures.lines()))
    must_happen = [
        *EVERY_TIME,
        *(f"{verb} answered" for verb in Verb if verb not in {*READS, Verb.RELEASE}),
        "answered in a later try",
    ]
    assert [what for what in must_happen if not run.coverage[what]] == []
    assert sum(run.figures.num_faults.values()) == NUM_FAULTS
    assert len(run.figures.num_faults) >= min(NUM_FAULTS, 5)
