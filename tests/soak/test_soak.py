"""A server under hostile callers: it loses nothing, keeps nothing, and makes no mistake.

``python -m soak`` in ``tests`` says how long the calls of others take meanwhile.
"""

import secrets

from rounds import NIGHTLY
from soak.harness import SoakPlan, soak

PLAN = SoakPlan(
    calm_s=60.0 if NIGHTLY else 2.0,
    hostile_s=540.0 if NIGHTLY else 14.0,
    num_well_behaved=16 if NIGHTLY else 4,
    num_hostile=48 if NIGHTLY else 24,
    seed=secrets.randbelow(2**32),
)
MUST_HAPPEN = (
    "hung up in a head",
    "hung up in a body",
    "hung up in an answer",
    "hung up before an answer",
    "slow head 408 request_timeout",
    "slow body 408 request_timeout",
    "silent, hung up on",
    "large body 413 body_too_large",
    "large head 431 head_too_large",
    "garbage 400 bad_request",
    "no request 422 invalid_request",
    "many tokens 429 limit_exceeded",
    "pipelined 200",
    "freed twice 200",
    "freed twice 409 double_free",
    "left 200",
    "subscribed, not read",
    "connected, hung up",
)


def test_a_server_under_hostile_callers_loses_nothing_and_keeps_nothing() -> None:
    print(PLAN)
    result = soak(PLAN)
    print("\n".join(f"{count:7} {what}" for what, count in sorted(result.seen.items())))
    print(result.num_calls, result.statuses, result.rss_bytes)
    assert result.faults == []
    assert [what for what in MUST_HAPPEN if what not in result.seen] == []
    assert min(result.num_calls) > 0
