"""Block hashes: a fingerprint of a block's tokens, its extra keys, and all that stands before it.

Each hash covers its parent's, so equal hashes mean equal prefixes. Hashes depend on values alone: never
on which objects hold them, on the process, or on how a sequence was cut into calls.

`HashAlgorithm.BLAKE2B` is blockyard's own. Every hash is BLAKE2b with a 32-byte digest, no key, no salt,
and a 16-byte personalization that says what is hashed:

    personalization     input
    "blockyard/1 root"  seed, UTF-8
    "blockyard/1 tok4"  parent (32 bytes), each token id as 4 bytes little-endian
    "blockyard/1 tok8"  parent (32 bytes), each token id as 8 bytes little-endian
    "blockyard/1 key4"  as tok4, then the extra keys, then their length in bytes as 8 bytes little-endian
    "blockyard/1 key8"  as tok8, then the same

A block is tok8 or key8 if one of its ids is 2^32 or above, and only then. It is key4 or key8 if it has
extra keys, and only then; these are the tagged ones, as CBOR in its deterministic encoding (RFC 8949, 4.2.1).

The other four are those of engines in the field: (parent, token ids, extra keys or None) as a pickle of
protocol 5 or as deterministic CBOR, hashed with SHA-256 or XXH3-128; the root is the seed, serialised and
hashed alike. A pickle refers back to a string that it holds already when both are one object. What an
engine's strings are is taken to be what decoding a request gives: one object per value, save for tags and
for strings of at most one Latin-1 character, of which CPython has each only once.
"""

import hashlib
import marshal
import pickle  # nosec B403  # only made, never read
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice, repeat
from struct import Struct
from typing import Any, Final

import cbor2
import xxhash

from blockyard.core.errors import InvalidRequest
from blockyard.core.extra_keys import ExtraKeys, check_text
from blockyard.core.ids import BlockHash

MAX_TOKEN_ID: Final = 2**63 - 1
DEFAULT_SEED: Final = "vllm-none-hash"
"""The seed of engines in the field, for the SHA-256 family."""
DEFAULT_BLAKE2B_SEED: Final = "blockyard"

_TAGS: Final = {tag: tag for tag in ("lora", "mm", "cache_salt", "prompt_embeds")}
_CBOR_NULL: Final = b"\xf6"
_ENCODE_CHUNK_TOKENS: Final = 2048
"""Tokens serialised at a time: enough to spread a call's cost, and still in the processor's cache."""


class HashAlgorithm(StrEnum):
    """How a block is hashed."""

    SHA256 = "sha256"
    """SHA-256 of a pickle."""
    SHA256_CBOR = "sha256_cbor"
    """SHA-256 of CBOR."""
    XXHASH = "xxhash"
    """XXH3-128 of a pickle: fast, and anyone who knows the seed can make two blocks collide."""
    XXHASH_CBOR = "xxhash_cbor"
    """XXH3-128 of CBOR: the same."""
    BLAKE2B = "blake2b"
    """blockyard's own: BLAKE2b-256 of raw token ids."""

    @property
    def default_seed(self) -> str | None:
        """The seed that stands in for none; None where a secret one has to be given."""
        if self is HashAlgorithm.BLAKE2B:
            return DEFAULT_BLAKE2B_SEED
        return None if _is_xxh3(self) else DEFAULT_SEED

    @property
    def digest_size_bytes(self) -> int:
        """Length of every hash."""
        return 16 if _is_xxh3(self) else 32


def root_hash(algorithm: HashAlgorithm, seed: str | None = None) -> BlockHash:
    """The parent of a first block, made from ``seed`` or, with None, from the algorithm's default.

    Raises InvalidRequest where the algorithm needs a secret seed and none is given.
    """
    used = algorithm.default_seed if seed is None else seed
    if not used and algorithm.default_seed is None:
        raise InvalidRequest.of("seed", f"{algorithm} is not collision resistant: give a secret seed")
    assert used is not None
    check_text("seed", used)
    if algorithm is HashAlgorithm.BLAKE2B:
        return _blake2b("root", used.encode()).digest()
    serialised = pickle.dumps(used, 5) if _is_pickle(algorithm) else cbor_of(used)
    return xxhash.xxh3_128_digest(serialised) if _is_xxh3(algorithm) else hashlib.sha256(serialised).digest()


def hash_blocks(
    algorithm: HashAlgorithm,
    token_ids: Sequence[int],
    *,
    block_size: int,
    parent: BlockHash,
    extra_keys: Iterable[ExtraKeys | None] | None = None,
) -> list[BlockHash]:
    """The hashes of consecutive full blocks.

    Args:
        algorithm: The same for a whole chain.
        token_ids: Checked by `check_token_ids`; a whole number of blocks.
        block_size: Tokens in a block, from 1.
        parent: The hash of the block before, or the root.
        extra_keys: For each block its keys or None, tagged where the algorithm is blake2b, and at least as
            many as there are blocks; None where no block has any.
    """
    num_blocks = len(token_ids) // block_size
    assert num_blocks * block_size == len(token_ids)
    if algorithm is HashAlgorithm.BLAKE2B and extra_keys is None:
        return _hash_raw(token_ids, block_size, parent)
    keys = repeat(None, num_blocks) if extra_keys is None else islice(extra_keys, num_blocks)
    if algorithm is HashAlgorithm.BLAKE2B:
        return _hash_raw_blocks(token_ids, block_size, parent, keys)
    chain = _hash_pickles if _is_pickle(algorithm) else _hash_cbor
    return chain(token_ids, block_size, parent, keys, is_xxh3=_is_xxh3(algorithm))


def check_token_ids(token_ids: Iterable[int], field: str = "token_ids") -> list[int] | tuple[int, ...]:
    """``token_ids`` as a list or tuple: plain integers from 0 to 2^63 - 1. Raises InvalidRequest."""
    try:
        ids = token_ids if isinstance(token_ids, (list, tuple)) else list(token_ids)
    except TypeError:
        raise InvalidRequest.of(field, "has to be a list of integers") from None
    if are_plain_int32(ids):
        return ids
    if not set(map(type, ids)) <= {int}:
        raise InvalidRequest.of(field, "every id has to be a plain integer, not a bool, float or other type")
    if ids and not 0 <= min(ids) <= max(ids) <= MAX_TOKEN_ID:
        raise InvalidRequest.of(field, f"every id has to be from 0 to {MAX_TOKEN_ID}")
    return ids


def cbor_of(value: Any) -> bytes:
    """``value`` in CBOR's deterministic encoding."""
    return cbor2.dumps(value, canonical=True)


def with_own_strings(keys: ExtraKeys) -> ExtraKeys:
    """Equal keys that pickle by value: each string a new object, save those that CPython has only once."""
    shared: dict[str, str] = {}

    def own(value: Any, *, is_tag: bool = False) -> Any:
        if isinstance(value, tuple):
            # Bare features are (identifier, offset); any other tuple begins with a tag.
            is_tagged = len(value) != 2 or not isinstance(value[1], int)
            return tuple(own(part, is_tag=is_tagged and at == 0) for at, part in enumerate(value))
        if not isinstance(value, str):
            return value
        if is_tag:
            return _TAGS[value]
        return (
            shared.setdefault(value, value)
            if value < "\u0100" and len(value) <= 1
            else value.encode().decode()
        )

    return tuple(map(own, keys))


def _hash_pickles(
    ids: Sequence[int], block_size: int, parent: bytes, keys: Iterable[ExtraKeys | None], *, is_xxh3: bool
) -> list[BlockHash]:
    hashes: list[BlockHash] = []
    append, dumps, sha256, xxh3 = hashes.append, pickle.dumps, hashlib.sha256, xxhash.xxh3_128_digest
    last: ExtraKeys | None = None
    owned: ExtraKeys | None = None
    for block, extra in zip(_blocks(ids, block_size), keys, strict=True):
        if extra is not last:
            last, owned = extra, None if extra is None else with_own_strings(extra)
        data = dumps((parent, block, owned), 5)
        parent = xxh3(data) if is_xxh3 else sha256(data).digest()
        append(parent)
    return hashes


def _hash_cbor(
    ids: Sequence[int], block_size: int, parent: bytes, keys: Iterable[ExtraKeys | None], *, is_xxh3: bool
) -> list[BlockHash]:
    # array(3) { bytes(16 or 32), array(block_size) { ids }, extra keys }
    head = b"\x83" + cbor_of(parent)[: -len(parent)]
    middle = cbor_of([0] * block_size)[:-block_size]
    hashes: list[BlockHash] = []
    append, sha256, xxh3 = hashes.append, hashlib.sha256, xxhash.xxh3_128_digest
    last, tail = None, _CBOR_NULL
    for encoded, extra in zip(_encode_cbor_blocks(ids, block_size), keys, strict=True):
        if extra is not last:
            last, tail = extra, cbor_of(extra)
        data = head + parent + middle + encoded + tail
        parent = xxh3(data) if is_xxh3 else sha256(data).digest()
        append(parent)
    return hashes


def _encode_cbor_blocks(ids: Sequence[int], block_size: int) -> Iterator[bytes]:
    """Each block's ids in CBOR, without the array's header.

    Many blocks are encoded in one call, with a separator after each, and cut there: a call for each block
    would take longer. The separator is a byte string, 0x49 and nine times 0xff. Ids have 0xff in operands
    only, of at most eight bytes, and the separator cannot overlap itself; so every cut is right.
    """
    separator = b"\xff" * 9
    step = max(1, _ENCODE_CHUNK_TOKENS // block_size) * block_size
    for at in range(0, len(ids), step):
        separated: list[Any] = []
        for block in _blocks(ids[at : at + step], block_size):
            separated += block
            separated.append(separator)
        # A list's length is encoded like an integer of that value, so the header is as long.
        header = len(cbor2.dumps(len(separated)))
        pieces = cbor2.dumps(separated)[header:].split(b"\x49" + separator)
        pieces.pop()
        yield from pieces


def _hash_raw(ids: Sequence[int], block_size: int, parent: bytes) -> list[BlockHash]:
    try:
        packed = array("I", ids)
    except OverflowError:
        return _hash_raw_blocks(ids, block_size, parent, repeat(None))
    assert packed.itemsize == 4
    if sys.byteorder == "big":
        packed.byteswap()
    raw = packed.tobytes()
    step = 4 * block_size
    hashes: list[BlockHash] = []
    append, begin = hashes.append, _blake2b("tok4").copy
    for at in range(0, len(raw), step):
        digest = begin()
        digest.update(parent + raw[at : at + step])
        parent = digest.digest()
        append(parent)
    return hashes


def _hash_raw_blocks(
    ids: Sequence[int], block_size: int, parent: bytes, keys: Iterable[ExtraKeys | None]
) -> list[BlockHash]:
    narrow, wide = Struct(f"<{block_size}I"), Struct(f"<{block_size}Q")
    begin = {kind: _blake2b(kind).copy for kind in ("tok4", "tok8", "key4", "key8")}
    hashes: list[BlockHash] = []
    last, prefix, tail = None, "tok", b""
    for block, extra in zip(_blocks(ids, block_size), keys, strict=False):
        if extra is not last:
            last, prefix, tail = extra, "tok", b""
            if extra is not None:
                encoded = cbor_of(extra)
                prefix, tail = "key", encoded + len(encoded).to_bytes(8, "little")
        is_narrow = max(block) < 2**32
        digest = begin[prefix + ("4" if is_narrow else "8")]()
        digest.update(parent + (narrow if is_narrow else wide).pack(*block) + tail)
        parent = digest.digest()
        hashes.append(parent)
    return hashes


def _blake2b(kind: str, data: bytes = b"") -> "hashlib.blake2b":
    return hashlib.blake2b(data, digest_size=32, person=f"blockyard/1 {kind}".encode())


def _blocks(ids: Sequence[int], block_size: int) -> Iterator[tuple[int, ...]]:
    return zip(*[iter(ids)] * block_size, strict=True)


def _is_xxh3(algorithm: HashAlgorithm) -> bool:
    return algorithm in (HashAlgorithm.XXHASH, HashAlgorithm.XXHASH_CBOR)


def _is_pickle(algorithm: HashAlgorithm) -> bool:
    return algorithm in (HashAlgorithm.SHA256, HashAlgorithm.XXHASH)


def are_plain_int32(ids: list[int] | tuple[int, ...]) -> bool:
    """Whether each of ``ids`` is known to be of type int and from 0 to 2^31 - 1, told at C speed.

    Version 2 of the marshal format begins with five bytes; then an int32 of type int, and nothing else,
    is "i" and four bytes little-endian. False does not mean that an id is wrong.
    """
    try:
        encoded = marshal.dumps(ids, 2)
    except ValueError:
        return False
    num_ids = len(ids)
    return (
        len(encoded) == 5 + 5 * num_ids and encoded[5::5].count(b"i") == num_ids and encoded[9::5].isascii()
    )
