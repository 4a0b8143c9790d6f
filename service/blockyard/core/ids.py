"""The kinds of identifier that a pool deals in, told apart by type."""

from typing import Final, NewType, TypeAlias

BlockId: TypeAlias = int
"""Index of a block, 0 to ``num_blocks - 1``. An alias, since block ids live in vectors of plain integers."""

BlockHash: TypeAlias = bytes
"""Fingerprint of a block's tokens and of everything before them."""

GroupIndex: TypeAlias = int
"""Position of a group in its pool's configuration, from 0."""

LeaseId = NewType("LeaseId", str)
SequenceId = NewType("SequenceId", str)
"""A scheduler's own name for a sequence, unique among those of its tenant in a pool."""

SequenceHandle = NewType("SequenceHandle", int)
"""The pool's short name for a live sequence; never used twice in a pool's life."""

PinId = NewType("PinId", str)

WorkerId = NewType("WorkerId", str)
"""A worker's own name, unique in its pool."""

TenantId = NewType("TenantId", str)
"""A team's name, `NO_TENANT` or 1 to 64 letters, digits, ``.``, ``_`` and ``-``."""

NO_TENANT: Final = TenantId("")
"""Whose everything is where nobody says whose it is."""

NO_TENANT_ALONE: Final = TenantId("*")
"""No tenant's name: what `NO_TENANT` alone is to find, in a pool that shares the rest with all."""

NULL_BLOCK: Final = 0
"""Stands in a block table where a block was dropped. Never handed out, never counted as held."""
