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
"""A scheduler's own name for a sequence, unique in its pool."""

SequenceHandle = NewType("SequenceHandle", int)
"""The pool's short name for a live sequence; never used twice in a pool's life."""

WorkerId = NewType("WorkerId", str)
"""A worker's own name, unique in its pool."""

NULL_BLOCK: Final = 0
"""Stands in a block table where a block was dropped. Never handed out, never counted as held."""
