"""A server with limits as tight as well-behaved callers allow, and its pools."""

SERVED = "/v1/pools/served"
"""Of the well-behaved."""
POOL = "/v1/pools/attacked"
"""Of the others."""
POOL_CONFIG = {"num_blocks": 20_001, "block_size": 16, "events": True}
LEASE_MS = 1_500
HEAD_BYTES = 4_096
MAX_BODY_BYTES = 262_144
MAX_HASHES = 20_000
IDLE_S = 5
OPTIONS = (
    *("--log-level", "error"),
    *("--max-connections", "256"),
    *("--max-head-bytes", str(HEAD_BYTES)),
    *("--head-timeout-s", "2"),
    *("--max-body-bytes", str(MAX_BODY_BYTES)),
    *("--body-timeout-s", "2"),
    *("--request-timeout-s", "3"),
    *("--idle-timeout-s", str(IDLE_S)),
    *("--max-hashes-per-call", str(MAX_HASHES)),
    *("--max-subscribers", "16"),
    *("--snapshot-commands", "50000"),
)
