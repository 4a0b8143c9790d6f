"""Parts of request bodies as plain data: values of `blockyard.core` the way they travel.

What has its default is left out. Any sequence (a range, an array) becomes a list, and token ids are checked
before they are sent. Block hashes stay bytes: the encoder writes them as its form demands.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from blockyard.client.step_columns import as_column
from blockyard.client.wire import Form
from blockyard.core.commands import Admission, StepCommit, StepExtend
from blockyard.core.errors import InvalidRequest
from blockyard.core.extra_keys import Extras, PromptEmbeds
from blockyard.core.hashing import check_token_ids
from blockyard.core.ids import BlockHash, SequenceHandle

_NONE: Sequence[int] = ()
"""The default where token ids can be given: there is one empty tuple, which need not be looked at."""


def extras_body(extras: Extras | None) -> dict[str, Any]:
    """What a sequence's KV depends on beside its tokens, and what is not empty of it."""
    if extras is None:
        return {}
    body: dict[str, Any] = {}
    if extras.mm_features:
        body["mm_features"] = [asdict(feature) for feature in extras.mm_features]
    if extras.lora is not None:
        body["lora"] = asdict(extras.lora)
    if extras.cache_salt is not None:
        body["cache_salt"] = extras.cache_salt
    if extras.prompt_embeds is not None:
        body["prompt_embeds_float32"] = _rows(extras.prompt_embeds)
    return body


def _rows(embeds: PromptEmbeds) -> list[list[float]]:
    values = [value for (value,) in struct.iter_unpack("<f", embeds.data)]
    width = embeds.hidden_size
    return [values[start : start + width] for start in range(0, len(values), width or 1)]


def content_body(
    block_hashes: Sequence[BlockHash],
    token_ids: Sequence[int],
    extras: Extras | None,
    event_token_ids: Sequence[int] = (),
    *,
    tenant_only: bool = False,
) -> dict[str, Any]:
    """What is new of a sequence's content: hashes, or tokens with what else they depend on.

    ``event_token_ids``: what the hashes stand for, where the pool's events are told of it. ``tenant_only``:
    nobody else is to find it.

    Raises:
        InvalidRequest: One of the token ids cannot be.
    """
    body = extras_body(extras)
    if hashes := list(block_hashes):
        body["block_hashes"] = hashes
    if token_ids is not _NONE and (ids := check_token_ids(token_ids)):
        body["token_ids"] = ids
    if event_token_ids is not _NONE and (ids := check_token_ids(event_token_ids, "event_token_ids")):
        body["event_token_ids"] = ids
    if tenant_only:
        body["tenant_only"] = True
    return body


def admission_body(admission: Admission) -> dict[str, Any]:
    """An admission, in ``allocate`` or in a step."""
    body: dict[str, Any] = {"sequence_id": admission.sequence_id, "num_tokens": admission.num_tokens}
    if admission.max_new_tokens is not None:
        body["max_new_tokens"] = admission.max_new_tokens
    if admission.end_at_state:
        body["end_at_state"] = True
    if admission.num_lookahead_tokens:
        body["num_lookahead_tokens"] = admission.num_lookahead_tokens
    if admission.full_sequence_must_fit:
        body["full_sequence_must_fit"] = True
    if admission.skip_prefix_cache:
        body["skip_prefix_cache"] = True
    if admission.num_prompt_tokens not in (None, admission.num_tokens):
        body["num_prompt_tokens"] = admission.num_prompt_tokens
    if admission.num_encoder_tokens:
        body["num_encoder_tokens"] = admission.num_encoder_tokens
    content = admission.block_hashes, admission.token_ids, admission.extras, admission.event_token_ids
    body.update(content_body(*content, tenant_only=admission.tenant_only))
    return body


def admissions_body(admissions: Sequence[Admission]) -> list[dict[str, Any]] | None:
    """A step's admissions; None for none.

    Raises:
        InvalidRequest: As `content_body`, named by its position.
    """
    bodies = []
    for position, admission in enumerate(admissions):
        try:
            bodies.append(admission_body(admission))
        except InvalidRequest as error:
            raise error.inside(f"admit.{position}") from None
    return bodies or None


def commit_body(commit: StepCommit, form: Form) -> dict[str, Any] | None:
    """A step's commits, for a body in this form; None for none."""
    if not commit.sequences:
        return None
    return {
        "sequences": as_column(commit.sequences, form),
        "num_computed_tokens": as_column(commit.num_computed_tokens, form),
    }


def extend_body(extend: StepExtend, form: Form) -> dict[str, Any] | None:
    """A step's extensions, for a body in this form; None for none. The reply is to list changes alone.

    Raises:
        InvalidRequest: As `content_body`, named by its handle.
    """
    if not extend.sequences:
        return None
    body: dict[str, Any] = {
        "sequences": as_column(extend.sequences, form),
        "num_tokens": as_column(extend.num_tokens, form),
        "only_changes": True,
    }
    if extend.num_computed_tokens is not None:
        body["num_computed_tokens"] = as_column(extend.num_computed_tokens, form)
    if extend.num_lookahead_tokens:
        body["num_lookahead_tokens"] = extend.num_lookahead_tokens
    if extend.block_hashes:
        body["block_hashes"] = {handle: list(hashes) for handle, hashes in extend.block_hashes.items()}
    if extend.token_ids:
        body["token_ids"] = _ids_by_handle("token_ids", extend.token_ids)
    if extend.event_token_ids:
        body["event_token_ids"] = _ids_by_handle("event_token_ids", extend.event_token_ids)
    return body


def _ids_by_handle(
    field: str, column: Mapping[SequenceHandle, Sequence[int]]
) -> dict[SequenceHandle, Sequence[int]]:
    checked: dict[SequenceHandle, Sequence[int]] = {}
    for handle, token_ids in column.items():
        try:
            checked[handle] = check_token_ids(token_ids, field)
        except InvalidRequest as error:
            raise error.inside(f"extend.{field}.{handle}") from None
    return checked
