"""Bodies of the calls about a pool's content: what may stand in them, and which command they become."""

import re
from typing import Annotated, Any, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from blockyard.core import commands as ask
from blockyard.core.extra_keys import ExtraKeyForm, Extras, Lora, MultiModalFeature, PromptEmbeds
from blockyard.core.forks import MAX_FORKS
from blockyard.core.hash_chain import Hasher
from blockyard.core.hashing import HashAlgorithm, are_plain_int32
from blockyard.core.ids import LeaseId, SequenceHandle, SequenceId, TenantId
from blockyard.core.packing import unpack_column
from blockyard.server.body import Body, Count, Name, PositiveCount
from blockyard.server.settings import MAX_TOKENS, MAX_WAIT_MS

Handle = Annotated[int, Field(ge=0, le=2**63 - 1)]
TokenId = Annotated[int, Field(ge=0, le=2**63 - 1)]
BlockHashField = Annotated[
    bytes,
    Field(min_length=1, max_length=64),
    WithJsonSchema({"type": "string", "pattern": "^([0-9a-f]{2}){1,64}$"}),
]


def _read_column(column: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """A column of integers: packed or, at C speed as well where they are below 2^31, plain ones."""
    if type(column) is bytes and len(column) % 4 == 0:  # never in JSON
        return unpack_column(column)
    return column if type(column) is list and are_plain_int32(column) else read(column)


def _read_positive_column(column: Any, read: ValidatorFunctionWrapHandler) -> Any:
    values = _read_column(column, read)
    return read(values) if 0 in values else values


_HANDLE_KEY = "^(0|[1-9][0-9]{0,18})$"
_is_handle_key = re.compile(_HANDLE_KEY[:-1] + r"\Z").match


def _read_handle_key(key: Any, info: ValidationInfo) -> Any:
    """In JSON, names are strings. One handle is one string: else the second of two would pass for both."""
    if info.mode != "json":
        return key
    if not _is_handle_key(key):
        raise ValueError("has to be a handle: decimal digits, without a sign or leading zeros")
    return int(key)


HandleKey = Annotated[
    Handle, BeforeValidator(_read_handle_key), WithJsonSchema({"type": "string", "pattern": _HANDLE_KEY})
]
V = TypeVar("V")
ByHandle = Annotated[dict[HandleKey, V], Field(json_schema_extra={"additionalProperties": False})]

Handles = Annotated[list[Handle], Field(fail_fast=True), WrapValidator(_read_column)]
Counts = Annotated[list[Count], Field(fail_fast=True), WrapValidator(_read_column)]
PositiveCounts = Annotated[list[PositiveCount], Field(fail_fast=True), WrapValidator(_read_positive_column)]

TtlMs = Annotated[int, Field(ge=1, le=7 * 24 * 3600 * 1000, description="Time that it lasts unless renewed.")]

BlockHashes = Annotated[list[BlockHashField], Field(max_length=MAX_TOKENS, fail_fast=True)]
TokenIds = Annotated[list[TokenId], Field(max_length=MAX_TOKENS, fail_fast=True)]


class PoolBody(Body):
    """A body about a pool."""

    epoch: Count | None = Field(None, description="The pool's epoch as the caller knows it.")

    @property
    def num_hashes(self) -> int:
        """Block hashes, token ids and embeddings in all its lists."""
        return 0


class LeaseBody(PoolBody):
    """A body under a lease, which the call renews."""

    lease_id: Annotated[str, Field(min_length=1, max_length=128)]

    def base(self, tenant: TenantId) -> dict[str, Any]:
        """The fields that all commands of ``tenant`` under a lease share."""
        return {"tenant": tenant, "lease_id": LeaseId(self.lease_id), "epoch": self.epoch}


class MmFeature(Body):
    """A multimodal item in the prompt."""

    offset: Count = Field(description="Position of its first token.")
    length: PositiveCount = Field(description="Tokens that it takes up.")
    identifier: Name = Field(description="What it is, such as a hash of its content.")


class LoraAdapter(Body):
    """The adapter that the tokens are computed with."""

    name: Name
    path: Annotated[str, Field(max_length=4096)]


class ExtrasBody(Body):
    """What the KV of tokens depends on beside the tokens."""

    mm_features: list[MmFeature] = Field(default_factory=list, max_length=16_384)
    lora: LoraAdapter | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    prompt_embeds_float32: Annotated[list[list[float]], Field(max_length=MAX_TOKENS)] | None = None

    def extras(self) -> Extras | None:
        """The extra keys, or None if none is given."""
        if (
            not self.mm_features
            and self.lora is None
            and self.cache_salt is None
            and self.prompt_embeds_float32 is None
        ):
            return None
        return Extras(
            mm_features=tuple(MultiModalFeature(f.offset, f.length, f.identifier) for f in self.mm_features),
            lora=None if self.lora is None else Lora(self.lora.name, self.lora.path),
            cache_salt=self.cache_salt,
            prompt_embeds=None
            if self.prompt_embeds_float32 is None
            else PromptEmbeds.from_rows(self.prompt_embeds_float32),
        )


class ContentBody(ExtrasBody):
    """A prompt's content: block hashes, or the tokens themselves and all that their KV depends on."""

    block_hashes: BlockHashes = Field(
        default_factory=list, description="Hashes not sent before, one a hash block."
    )
    token_ids: TokenIds = Field(
        default_factory=list, description="Instead of hashes: tokens not sent before."
    )
    tenant_only: bool = Field(
        False,
        description="Nobody else is to find this content, also where the pool shares it across tenants. To "
        "be said where a cache salt is hashed in; beside cache_salt it goes without saying.",
    )

    @property
    def num_hashes(self) -> int:
        """As `PoolBody.num_hashes`."""
        return len(self.block_hashes) + len(self.token_ids) + len(self.prompt_embeds_float32 or ())


EventTokenIds = Annotated[
    list[TokenId],
    Field(
        max_length=MAX_TOKENS,
        fail_fast=True,
        description="Beside hashes: the tokens not sent before, for the pool's events alone. All that the "
        "hashes stand for, or none.",
    ),
]


class HashBody(ExtrasBody):
    """Tokens to hash."""

    algorithm: Annotated[HashAlgorithm, Field(strict=False)]
    seed: str | None = Field(None, description="None: the algorithm's default seed, where it has one.")
    block_size: PositiveCount
    extra_key_form: Annotated[ExtraKeyForm, Field(strict=False)] = ExtraKeyForm.TAGGED
    token_ids: TokenIds

    @property
    def num_hashes(self) -> int:
        """As `PoolBody.num_hashes`."""
        return len(self.token_ids) + len(self.prompt_embeds_float32 or ())

    def hasher(self) -> Hasher:
        """The hasher that the body asks for.

        Raises:
            InvalidRequest: The algorithm needs a secret seed and none is given.
        """
        return Hasher(
            algorithm=self.algorithm,
            block_size=self.block_size,
            seed=self.seed,
            extra_key_form=self.extra_key_form,
        )


class CreateLease(PoolBody):
    """A lease to open."""

    holder: Name = Field(description="Who holds it, for people: a host and a process, say.")
    ttl_ms: TtlMs


class LookupBody(ContentBody, PoolBody):
    """A prompt to look up."""

    num_tokens: PositiveCount


class AdmissionBody(ContentBody):
    """A sequence that needs blocks."""

    sequence_id: Name
    num_tokens: PositiveCount = Field(description="Tokens that the sequence has in all.")
    max_new_tokens: PositiveCount | None = Field(None, description="At most so many of them get slots now.")
    end_at_state: bool = Field(
        False,
        description="Give slots to fewer where they then end at a recurrent state that others can find. "
        "In pools without such states it changes nothing.",
    )
    num_lookahead_tokens: Count = Field(0, description="Slots beyond, for speculated tokens.")
    full_sequence_must_fit: bool = Field(False, description="Refuse unless all num_tokens would fit.")
    num_prompt_tokens: PositiveCount | None = Field(
        None, description="Of a new sequence: its prompt's tokens; default: all that it has."
    )
    num_encoder_tokens: Count | None = Field(
        None, description="Of a new sequence: its encoder input's tokens; default: none."
    )
    skip_prefix_cache: bool = False
    event_token_ids: EventTokenIds = Field(default_factory=list)

    @property
    def num_hashes(self) -> int:
        """As `PoolBody.num_hashes`."""
        return super().num_hashes + len(self.event_token_ids)

    def admission(self) -> ask.Admission:
        """The same for the core."""
        return ask.Admission(
            sequence_id=SequenceId(self.sequence_id),
            num_tokens=self.num_tokens,
            max_new_tokens=self.max_new_tokens,
            end_at_state=self.end_at_state,
            num_lookahead_tokens=self.num_lookahead_tokens,
            block_hashes=self.block_hashes,
            token_ids=self.token_ids,
            event_token_ids=self.event_token_ids,
            extras=self.extras(),
            tenant_only=self.tenant_only,
            full_sequence_must_fit=self.full_sequence_must_fit,
            skip_prefix_cache=self.skip_prefix_cache,
            num_prompt_tokens=self.num_prompt_tokens,
            num_encoder_tokens=self.num_encoder_tokens or 0,
        )


class WaitingBody(LeaseBody):
    """A body of a call that may wait."""

    wait_ms: Annotated[Count, Field(le=MAX_WAIT_MS)] = Field(
        0,
        description="Where there are too few blocks, wait so long for them instead of being refused at once: "
        "first come, first served within a tenant, and by weight across tenants.",
    )


class AllocateBody(AdmissionBody, WaitingBody):
    """Blocks for a new sequence, or more for one that the lease holds."""

    num_computed_tokens: Count | None = Field(
        None,
        description="Tokens computed, where speculated ones were rejected; default: what the server counts.",
    )

    def command(self, tenant: TenantId) -> ask.Allocate:
        """The command of ``tenant``."""
        return ask.Allocate(
            **self.base(tenant),
            admission=self.admission(),
            num_computed_tokens=self.num_computed_tokens,
            is_waiting=self.wait_ms > 0,
        )


class CommitBody(LeaseBody):
    """Tokens whose KV is written."""

    sequence_id: Name
    num_computed_tokens: Count = Field(
        description="Where recurrent layers keep states for others: as many as some chunk ended with."
    )
    block_hashes: BlockHashes = Field(default_factory=list)
    token_ids: TokenIds = Field(default_factory=list)
    event_token_ids: EventTokenIds = Field(default_factory=list)

    @property
    def num_hashes(self) -> int:
        """As `PoolBody.num_hashes`."""
        return len(self.block_hashes) + len(self.token_ids) + len(self.event_token_ids)

    def command(self, tenant: TenantId) -> ask.Commit:
        """The command of ``tenant``."""
        return ask.Commit(
            **self.base(tenant),
            sequence_id=SequenceId(self.sequence_id),
            num_computed_tokens=self.num_computed_tokens,
            block_hashes=self.block_hashes,
            token_ids=self.token_ids,
            event_token_ids=self.event_token_ids,
        )


class ForkBody(LeaseBody):
    """A sequence to fork, and the names of its forks."""

    sequence_id: Name
    new_sequence_ids: Annotated[list[Name], Field(min_length=1, max_length=MAX_FORKS, fail_fast=True)]
    block_hashes: BlockHashes = Field(
        default_factory=list,
        description="Hashes of the sequence's tokens not sent before: those of its full blocks cannot be "
        "sent later, as they are its forks' as well.",
    )
    token_ids: TokenIds = Field(default_factory=list)
    event_token_ids: EventTokenIds = Field(default_factory=list)

    @property
    def num_hashes(self) -> int:
        """As `PoolBody.num_hashes`."""
        return len(self.block_hashes) + len(self.token_ids) + len(self.event_token_ids)

    def command(self, tenant: TenantId) -> ask.Fork:
        """The command of ``tenant``."""
        return ask.Fork(
            **self.base(tenant),
            sequence_id=SequenceId(self.sequence_id),
            new_sequence_ids=[SequenceId(name) for name in self.new_sequence_ids],
            block_hashes=self.block_hashes,
            token_ids=self.token_ids,
            event_token_ids=self.event_token_ids,
        )


class FreeBody(LeaseBody):
    """Sequences to free."""

    sequence_ids: Annotated[list[Name], Field(fail_fast=True)]

    def command(self, tenant: TenantId) -> ask.Free:
        """The command of ``tenant``."""
        return ask.Free(**self.base(tenant), sequence_ids=[SequenceId(name) for name in self.sequence_ids])


class StepCommitBody(Body):
    """Columns: sequences by handle, and how many of their tokens are written.

    In msgpack a column may be packed: as bytes, each value as four of them, little-endian.
    """

    sequences: Handles
    num_computed_tokens: Counts


class StepFreeBody(Body):
    """Sequences to free, by handle."""

    sequences: Handles


class StepExtendBody(Body):
    """Columns, as in `commit`: sequences by handle, and the tokens that each has to have slots for."""

    sequences: Handles
    num_tokens: PositiveCounts
    num_computed_tokens: Counts | None = Field(
        None,
        description="Tokens computed, where speculated ones were rejected; default: what the server counts.",
    )
    num_lookahead_tokens: Count = 0
    block_hashes: ByHandle[BlockHashes] = Field(default_factory=dict)
    token_ids: ByHandle[TokenIds] = Field(default_factory=dict)
    event_token_ids: ByHandle[EventTokenIds] = Field(default_factory=dict)
    only_changes: bool = Field(
        False,
        description="List in the reply those sequences alone whose block tables grew, or could not. All "
        "others got their slots; `unlisted` is what their tables got: an empty list a group.",
    )

    @property
    def num_hashes(self) -> int:
        """As `PoolBody.num_hashes`."""
        told = (self.block_hashes, self.token_ids, self.event_token_ids)
        return sum(len(part) for parts in told for part in parts.values())


class StepBody(LeaseBody):
    """One scheduler step: commit, then free, then extend, then admit."""

    step_id: Count | None = Field(
        None, description="Rises from step to step; the last one repeated gets its reply again."
    )
    commit: StepCommitBody | None = None
    free: StepFreeBody | None = None
    extend: StepExtendBody | None = None
    admit: list[AdmissionBody] = Field(default_factory=list)

    @property
    def num_hashes(self) -> int:
        """As `PoolBody.num_hashes`."""
        extend = self.extend.num_hashes if self.extend else 0
        return extend + sum(admission.num_hashes for admission in self.admit)

    def command(self, tenant: TenantId) -> ask.Step:
        """The command of ``tenant``. Handles are plain integers on the wire, and pass as they are."""
        commit, free, extend = self.commit, self.free, self.extend
        return ask.Step(
            **self.base(tenant),
            step_id=self.step_id,
            commit=ask.StepCommit(
                sequences=_handles(commit.sequences), num_computed_tokens=commit.num_computed_tokens
            )
            if commit
            else ask.StepCommit(),
            free=_handles(free.sequences) if free else (),
            extend=ask.StepExtend(
                sequences=_handles(extend.sequences),
                num_tokens=extend.num_tokens,
                num_computed_tokens=extend.num_computed_tokens,
                num_lookahead_tokens=extend.num_lookahead_tokens,
                block_hashes={SequenceHandle(key): value for key, value in extend.block_hashes.items()},
                token_ids={SequenceHandle(key): value for key, value in extend.token_ids.items()},
                event_token_ids={SequenceHandle(key): value for key, value in extend.event_token_ids.items()},
                only_changes=extend.only_changes,
            )
            if extend
            else ask.StepExtend(),
            admit=[admission.admission() for admission in self.admit],
        )


class AllocateBlocksBody(WaitingBody):
    """Blocks to hold without a sequence."""

    num_blocks: PositiveCount

    def command(self, tenant: TenantId) -> ask.AllocateBlocks:
        """The command of ``tenant``."""
        return ask.AllocateBlocks(
            **self.base(tenant), num_blocks=self.num_blocks, is_waiting=self.wait_ms > 0
        )


class FreeBlocksBody(LeaseBody):
    """Blocks to give back."""

    block_ids: Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(fail_fast=True)]

    def command(self, tenant: TenantId) -> ask.FreeBlocks:
        """The command of ``tenant``."""
        return ask.FreeBlocks(**self.base(tenant), block_ids=self.block_ids)


def _handles(column: list[int]) -> list[SequenceHandle]:
    return column  # type: ignore[return-value]  # a NewType of int: no need to copy the column
