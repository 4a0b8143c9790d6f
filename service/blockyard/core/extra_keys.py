"""What a block's KV depends on besides its tokens, and the keys that bring it into the block's hash.

A block's extra keys are a tuple, or None where there are none, in this order: the LoRA adapter, each
multi-modal feature that reaches into the block, the cache salt (first block only, as every later hash
inherits it), the digest of the block's prompt embeddings.

    source        tagged                                  bare
    LoRA          ("lora", name, path)                    name
    feature       ("mm", identifier, offset in block)     (identifier, offset in block)
    salt          ("cache_salt", salt)                    salt
    embeddings    ("prompt_embeds", SHA-256 of the rows)  SHA-256 of the rows

The offset is negative where the feature began in an earlier block. Events carry the bare keys.
"""

import hashlib
import math
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, TypeAlias

from blockyard.core.errors import InvalidRequest

ExtraKeys: TypeAlias = tuple[Any, ...]
"""One block's keys: strings, bytes and tuples of strings and integers."""

MAX_TOKEN_OFFSET: Final = 2**31 - 1
"""Features end at or before this token."""


class ExtraKeyForm(StrEnum):
    """How extra keys enter the hash; a pool has one form."""

    TAGGED = "tagged"
    """Each key names its source: engines of today."""
    BARE = "bare"
    """Values alone: earlier engines. Two sources with equal values, or a name's two paths, look the same."""


@dataclass(frozen=True, slots=True)
class MultiModalFeature:
    """An image, clip or the like, in place of the tokens from ``offset`` to ``offset + length - 1``.

    ``offset`` is from 0, ``length`` from 1; ``identifier`` stands for the content. Raises InvalidRequest.
    """

    offset: int
    length: int
    identifier: str

    def __post_init__(self) -> None:
        if not _is_integer(self.offset) or self.offset < 0:
            raise InvalidRequest.of(
                "mm_features.offset", f"{self.offset!r} is not a token position: give 0 or more"
            )
        if not _is_integer(self.length) or self.length < 1:
            raise InvalidRequest.of(
                "mm_features.length", f"{self.length!r} is not a number of tokens: give 1 or more"
            )
        if self.end > MAX_TOKEN_OFFSET:
            raise InvalidRequest.of("mm_features", f"a feature ends at {self.end}, over {MAX_TOKEN_OFFSET}")
        check_text("mm_features.identifier", self.identifier)

    @property
    def end(self) -> int:
        """The first token position after it."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Lora:
    """An adapter: ``path`` tells apart what a name stood for at different times. Raises InvalidRequest."""

    name: str
    path: str

    def __post_init__(self) -> None:
        check_text("lora.name", self.name)
        check_text("lora.path", self.path)


@dataclass(frozen=True, slots=True)
class PromptEmbeds:
    """Embeddings in place of the prompt's tokens: row ``i`` is token ``i``.

    Attributes:
        hidden_size: Values in a row; 0 only where there is no row.
        data: The rows one after the other, each value a little-endian float32.

    Raises InvalidRequest where ``data`` is no whole number of rows or holds NaN or infinity.
    """

    hidden_size: int
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        row_bytes = 4 * self.hidden_size
        if len(self.data) % row_bytes if row_bytes > 0 else self.data:
            raise InvalidRequest.of("prompt_embeds", f"{len(self.data)} bytes are no whole number of rows")
        # Finite float32 values cannot add up to more than a float64 holds, so the sum tells of all of them.
        if not math.isfinite(sum(_float32_array(self.data))):
            raise InvalidRequest.of("prompt_embeds", "every value has to be a finite float32")

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[float]]) -> "PromptEmbeds":
        """``rows`` of equal length, values rounded to float32. Raises InvalidRequest."""
        hidden_size = len(rows[0]) if rows else 0
        if any(len(row) != hidden_size for row in rows) or (rows and not hidden_size):
            raise InvalidRequest.of("prompt_embeds", "all rows need the same number of values, at least one")
        values = array("f")
        try:
            for row in rows:
                values.extend(row)
        except (TypeError, OverflowError) as error:
            raise InvalidRequest.of("prompt_embeds", f"every value has to be a float32: {error}") from None
        if sys.byteorder == "big":
            values.byteswap()
        return cls(hidden_size, values.tobytes())

    def digest(self, start: int, end: int) -> bytes:
        """SHA-256 of rows ``start`` to ``end - 1``, as far as they exist: of nothing, past the last row."""
        row_bytes = 4 * self.hidden_size
        return hashlib.sha256(self.data[start * row_bytes : end * row_bytes]).digest()


@dataclass(frozen=True, slots=True)
class Extras:
    """All that a sequence's KV depends on besides its tokens.

    Attributes:
        mm_features: In any order; kept by offset. Two of them may not overlap.
        lora: The adapter, if any.
        cache_salt: Only sequences with the same salt share blocks. An empty one is none, as for engines.
        prompt_embeds: Embeddings of the prompt, if any.

    Raises InvalidRequest.
    """

    mm_features: tuple[MultiModalFeature, ...] = ()
    lora: Lora | None = None
    cache_salt: str | None = None
    prompt_embeds: PromptEmbeds | None = None

    def __post_init__(self) -> None:
        features = tuple(sorted(self.mm_features, key=attrgetter("offset")))
        for before, after in pairwise(features):
            if after.offset < before.end:
                raise InvalidRequest.of(
                    "mm_features",
                    f"the one at {after.offset} overlaps the one from {before.offset} to {before.end}",
                )
        object.__setattr__(self, "mm_features", features)
        object.__setattr__(self, "cache_salt", self.cache_salt or None)
        if self.cache_salt is not None:
            check_text("cache_salt", self.cache_salt)

    def to_state(self) -> dict[str, Any]:
        """The same as plain values, for a snapshot; `from_state` takes it back."""
        embeds = self.prompt_embeds
        return {
            "mm_features": [
                [feature.offset, feature.length, feature.identifier] for feature in self.mm_features
            ],
            "lora": None if self.lora is None else [self.lora.name, self.lora.path],
            "cache_salt": self.cache_salt,
            "prompt_embeds": None if embeds is None else [embeds.hidden_size, embeds.data],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Extras":
        """What `to_state` gave. Raises InvalidRequest."""
        lora, embeds = state["lora"], state["prompt_embeds"]
        return cls(
            mm_features=tuple(MultiModalFeature(*feature) for feature in state["mm_features"]),
            lora=None if lora is None else Lora(*lora),
            cache_salt=state["cache_salt"],
            prompt_embeds=None if embeds is None else PromptEmbeds(*embeds),
        )


NO_EXTRAS: Final = Extras()


def iter_extra_keys(
    extras: Extras, form: ExtraKeyForm, *, block_size: int, start: int
) -> Iterator[ExtraKeys | None]:
    """The keys of the block that begins at token ``start``, of the next one, and so on without end.

    Features before ``start`` are skipped by bisection; after that each feature is looked at once,
    and once more for each further block that it reaches into.
    """
    bare = form is ExtraKeyForm.BARE
    lora, salt, embeds, features = extras.lora, extras.cache_salt, extras.prompt_embeds, extras.mm_features
    constant: ExtraKeys = ()
    if lora is not None:
        constant = (lora.name if bare else ("lora", lora.name, lora.path),)
    at = bisect_right(features, start, key=attrgetter("end"))
    while True:
        end = start + block_size
        keys: list[Any] = [*constant]
        while at < len(features) and (feature := features[at]).offset < end:
            offset = feature.offset - start
            keys.append((feature.identifier, offset) if bare else ("mm", feature.identifier, offset))
            if feature.end > end:
                break
            at += 1
        if start == 0 and salt is not None:
            keys.append(salt if bare else ("cache_salt", salt))
        if embeds is not None:
            digest = embeds.digest(start, end)
            keys.append(digest if bare else ("prompt_embeds", digest))
        yield tuple(keys) or None
        start = end


def block_extra_keys(extras: Extras, form: ExtraKeyForm, *, block_size: int, block: int) -> ExtraKeys | None:
    """The keys of one block, counted from 0, or None."""
    return next(iter_extra_keys(extras, form, block_size=block_size, start=block * block_size))


def event_extra_keys(extras: Extras, *, block_size: int, start: int) -> Iterator[ExtraKeys | None]:
    """The keys as events carry them, whatever form is hashed: from token ``start`` on, without end."""
    return iter_extra_keys(extras, ExtraKeyForm.BARE, block_size=block_size, start=start)


def check_text(name: str, value: str) -> None:
    """Refuse a ``value`` that is no string or has no UTF-8 form (a lone surrogate). Raises InvalidRequest."""
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidRequest.of(name, "has to be valid Unicode text") from None


def _float32_array(data: bytes) -> "array[float]":
    values = array("f", data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
