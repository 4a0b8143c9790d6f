"""What the tests of the core share: recorded cases, comparable forms, and a hash for token ids."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol

from core.naive_pool import NaivePool

from blockyard.core.commands import Command
from blockyard.core.config import GroupConfig, PoolConfig, Publish
from blockyard.core.errors import BlockyardError, InvalidRequest
from blockyard.core.extra_keys import Extras
from blockyard.core.ids import BlockHash, SequenceId
from blockyard.core.replies import Found, Reply, SequenceState

DATA = Path(__file__).parents[1] / "data"

PLAIN_KINDS = {"full_attention", "sliding_window", "chunked_local_attention"}
"""The kinds that the naive pool knows."""

GROUP_FIELDS = {"kind", "block_size", "sliding_window", "attention_chunk_size"}


class Allocator(Protocol):
    """What the real pool and the naive one have in common."""

    def apply(self, command: Command, now_ms: int) -> Reply: ...

    def lookup(
        self, *, num_tokens: int, block_hashes: Sequence[BlockHash] = (), token_ids: Sequence[int] = ()
    ) -> Found: ...

    def sequence(self, sequence_id: SequenceId) -> SequenceState: ...


@dataclass(frozen=True)
class RecordedCase:
    """A pool and the calls that were made to it, each with what was answered."""

    name: str
    config: PoolConfig
    operations: list[dict[str, Any]]


def recorded_cases(file: str) -> list[RecordedCase]:
    """The cases of ``file`` whose groups are of plain kinds and whose pools keep every full block."""
    cases = json.loads((DATA / file).read_text())
    return [
        RecordedCase(case["name"], _config(case["pool"]), case["ops"])
        for case in cases
        if "prefix_cache_retention_interval" not in case["pool"]
        and all(
            group["kind"] in PLAIN_KINDS and group.keys() <= GROUP_FIELDS for group in case["pool"]["groups"]
        )
    ]


def _config(pool: dict[str, Any]) -> PoolConfig:
    groups = tuple(GroupConfig(**group) for group in pool["groups"])
    return PoolConfig(**{**pool, "groups": groups, "publish": Publish(pool["publish"])})


def make_naive_pool(config: PoolConfig) -> NaivePool:
    """A naive pool that hashes token ids as the configuration says, always from the first one on."""
    hasher = config.hasher()

    def hash_tokens(token_ids: Sequence[int]) -> list[BlockHash]:
        _, hashes = hasher.start(Extras()).append(token_ids)
        return list(hashes)

    return NaivePool(config, hash_tokens)


def outcome(allocator: Allocator, command: Command, now_ms: int) -> Reply | BlockyardError:
    """The reply to ``command``, or the error that it was refused with."""
    try:
        return allocator.apply(command, now_ms)
    except BlockyardError as error:
        return error


def plain(value: Any) -> Any:
    """``value`` with its dataclasses as dictionaries and its sequences as lists, so that equal is equal.

    Of an error its code and figures count; sentences, and the fields that an invalid request names, do not.
    """
    if isinstance(value, BlockyardError):
        return {"code": value.code, **({} if isinstance(value, InvalidRequest) else value.figures)}
    if is_dataclass(value):
        return {"": type(value).__name__} | {
            field.name: plain(getattr(value, field.name)) for field in fields(value)
        }
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
