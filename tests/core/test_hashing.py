import hashlib
import json
import math
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cbor2
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.errors import InvalidRequest
from blockyard.core.extra_keys import (
    ExtraKeyForm,
    Extras,
    Lora,
    MultiModalFeature,
    PromptEmbeds,
    block_extra_keys,
)
from blockyard.core.hash_chain import (
    HashChain,
    HashedTokens,
    Hasher,
    coarser_view,
    external_int64,
    hash_key,
    hash_tokens,
    split_hash_key,
)
from blockyard.core.hashing import DEFAULT_SEED, HashAlgorithm, with_own_strings

SEED = "a-secret"
COMPATIBLE: dict[HashAlgorithm, Callable[[Any], bytes]] = {
    HashAlgorithm.SHA256: lambda value: hashlib.sha256(pickle.dumps(value, 5)).digest(),
    HashAlgorithm.SHA256_CBOR: lambda value: hashlib.sha256(cbor2.dumps(value, canonical=True)).digest(),
    HashAlgorithm.XXHASH: lambda value: xxhash.xxh3_128_digest(pickle.dumps(value, 5)),
    HashAlgorithm.XXHASH_CBOR: lambda value: xxhash.xxh3_128_digest(cbor2.dumps(value, canonical=True)),
}
every_algorithm = pytest.mark.parametrize("algorithm", HashAlgorithm)

# What was recorded for these while output grew has no LoRA key in the blocks of the output, although the
# sequence had an adapter from first to last (recordings in the tagged form do have it).
GROWN_WITHOUT_ADAPTER = {"sha256_cbor-default-101-lora-bare", "sha256-default-104-lora-bare"}


@cache
def recording() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "hashing.json").read_text())
    return recorded


CASES = [pytest.param(case, id=case["name"]) for case in recording()["cases"]]
GROWN_CASES = [
    pytest.param(case, id=case["name"]) for case in recording()["cases"] if "appended_token_ids" in case
]


def make_hasher(algorithm: HashAlgorithm = HashAlgorithm.SHA256, block_size: int = 4) -> Hasher:
    return Hasher(algorithm, block_size, SEED)


def recorded_hasher(case: dict[str, Any]) -> Hasher:
    form = ExtraKeyForm(case.get("extra_key_form", "tagged"))
    return Hasher(HashAlgorithm(case["algorithm"]), case["block_size"], case["seed"], form)


def recorded_extras(case: dict[str, Any]) -> Extras:
    rows = case.get("prompt_embeds_float32")
    return Extras(
        mm_features=tuple(MultiModalFeature(**feature) for feature in case.get("mm_features", ())),
        lora=Lora(**case["lora"]) if "lora" in case else None,
        cache_salt=case.get("cache_salt"),
        prompt_embeds=None if rows is None else PromptEmbeds.from_rows(rows),
    )


def as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return [as_json(part) for part in value] if isinstance(value, (list, tuple)) else value


def as_recorded(hashed: HashedTokens) -> dict[str, Any]:
    return {
        "none_hash": hashed.none_hash.hex(),
        "block_hashes": [block_hash.hex() for block_hash in hashed.block_hashes],
        "extra_keys": as_json(hashed.extra_keys),
        "event_extra_keys": as_json(hashed.event_extra_keys),
        "external_int64": hashed.external_int64,
    }


def fresh(text: str) -> str:
    """An equal string that is another object, where CPython can have two."""
    return text.encode().decode()


def refused_field(error: pytest.ExceptionInfo[InvalidRequest]) -> str:
    field: str = error.value.figures["errors"][0]["field"]
    return field


token_ids = st.one_of(
    st.integers(0, 300),
    st.integers(0, 2**63 - 1),
    st.sampled_from([23, 24, 65535, 65536, 2**31, 2**32 - 1, 2**32, 0x49FFFFFF, 2**56 - 1, 2**63 - 1]),
)
texts = st.text(st.characters(codec="utf-8"), max_size=4)


@st.composite
def some_extras(draw: st.DrawFn) -> Extras:
    features, at = [], 0
    for _ in range(draw(st.integers(0, 4))):
        offset, length = at + draw(st.integers(0, 6)), draw(st.integers(1, 9))
        features.append(MultiModalFeature(offset, length, draw(texts)))
        at = offset + length
    rows = draw(
        st.none()
        | st.lists(st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False)), max_size=9)
    )
    lora = draw(st.none() | st.builds(Lora, texts, texts))
    salt = draw(st.none() | texts)
    return Extras(tuple(features), lora, salt, None if rows is None else PromptEmbeds.from_rows(rows))


@pytest.mark.parametrize("case", CASES)
def test_recorded_prompts_give_every_recorded_value(case: dict[str, Any]) -> None:
    want = {name: value for name, value in case["expected"].items() if name != "block_hashes_after_append"}
    hashed = hash_tokens(recorded_hasher(case), case["token_ids"], recorded_extras(case))
    assert as_recorded(hashed) == want


@pytest.mark.parametrize("case", GROWN_CASES)
def test_recorded_growth_gives_the_recorded_hashes(case: dict[str, Any]) -> None:
    hasher = recorded_hasher(case)
    chain, hashes = hasher.start(recorded_extras(case)).append(case["token_ids"])
    if case["name"] in GROWN_WITHOUT_ADAPTER:
        chain = HashChain(hasher, Extras(), chain.num_blocks, chain.last_hash, chain.tail)
    _, more = chain.append(case["appended_token_ids"])
    assert [block_hash.hex() for block_hash in hashes + more] == case["expected"]["block_hashes_after_append"]


def test_the_default_seed_is_the_recorded_one() -> None:
    assert recording()["default_seed"] == DEFAULT_SEED


@pytest.mark.parametrize("algorithm", COMPATIBLE)
@given(ids=st.lists(token_ids, max_size=60), block_size=st.integers(1, 9), extras=some_extras())
def test_compatible_hashes_are_those_of_a_plain_loop(
    algorithm: HashAlgorithm, ids: list[int], block_size: int, extras: Extras
) -> None:
    hasher = make_hasher(algorithm, block_size)
    hashed = hash_tokens(hasher, ids, extras)
    parent, want = COMPATIBLE[algorithm](SEED), []
    for keys, start in zip(hashed.extra_keys, range(0, len(ids), block_size), strict=False):
        own = None if keys is None else with_own_strings(keys)
        parent = COMPATIBLE[algorithm]((parent, tuple(ids[start : start + block_size]), own))
        want.append(parent)
    assert hashed.block_hashes == want


@pytest.mark.parametrize("algorithm", COMPATIBLE)
@pytest.mark.parametrize("block_size", [16, 2048, 20_000])
def test_blocks_over_a_pickle_frame_and_chunks_of_many_blocks_are_hashed_alike(
    algorithm: HashAlgorithm, block_size: int
) -> None:
    ids = [token * 7919 % 150_000 for token in range(40_000)]
    parent, want = COMPATIBLE[algorithm](SEED), []
    for start in range(0, len(ids) - block_size + 1, block_size):
        parent = COMPATIBLE[algorithm]((parent, tuple(ids[start : start + block_size]), None))
        want.append(parent)
    assert hash_tokens(make_hasher(algorithm, block_size), ids).block_hashes == want


@every_algorithm
@given(
    ids=st.lists(token_ids, max_size=40), block_size=st.integers(1, 7), extras=some_extras(), data=st.data()
)
def test_any_cut_of_the_tokens_into_calls_gives_the_same_hashes(
    algorithm: HashAlgorithm, ids: list[int], block_size: int, extras: Extras, data: st.DataObject
) -> None:
    start = make_hasher(algorithm, block_size).start(extras)
    whole, at_once = start.append(ids)
    chain, hashes, left = start, [], list(ids)
    while left:
        size = data.draw(st.integers(1, len(left)))
        chain, more = chain.append(left[:size])
        hashes += more
        left = left[size:]
    assert (chain, hashes) == (whole, at_once)


@every_algorithm
@given(ids=st.lists(token_ids, max_size=20), more=st.lists(token_ids, max_size=20), extras=some_extras())
def test_a_chain_taken_back_from_a_snapshot_goes_on_as_if_nothing_had_happened(
    algorithm: HashAlgorithm, ids: list[int], more: list[int], extras: Extras
) -> None:
    chain, _ = make_hasher(algorithm).start(extras).append(ids)
    stored = cbor2.loads(cbor2.dumps(chain.to_state()))
    assert HashChain.from_state(stored, chain.hasher).append(more) == chain.append(more)


def test_appending_leaves_the_old_chain_as_it_was() -> None:
    chain, _ = make_hasher().start().append([1, 2])
    chain.append([3, 4, 5])
    assert (chain.num_tokens, chain.tail_token_ids) == (2, (1, 2))


def test_a_chain_knows_its_tail_and_its_length() -> None:
    chain, _ = make_hasher().start().append([1, 2, 3, 4, 2**63 - 1])
    assert (chain.num_blocks, chain.num_tokens, chain.tail_token_ids) == (1, 5, (2**63 - 1,))


def test_one_object_in_two_places_hashes_like_two_equal_objects() -> None:
    name = fresh("adapter")
    one = Extras((MultiModalFeature(0, 1, name), MultiModalFeature(1, 1, name)), Lora(name, name), name)
    features = (MultiModalFeature(0, 1, fresh(name)), MultiModalFeature(1, 1, fresh(name)))
    many = Extras(features, Lora(fresh(name), fresh(name)), fresh(name))
    assert hash_tokens(make_hasher(), range(8), one) == hash_tokens(make_hasher(), range(8), many)


def test_equal_strings_hash_as_an_engine_that_decoded_them_apart_hashes_them() -> None:
    root = COMPATIBLE[HashAlgorithm.SHA256](SEED)
    want = COMPATIBLE[HashAlgorithm.SHA256]((root, (1, 2, 3, 4), (("lora", fresh("same"), fresh("same")),)))
    assert hash_tokens(make_hasher(), [1, 2, 3, 4], Extras(lora=Lora("same", "same"))).block_hashes == [want]


@pytest.mark.parametrize("text", ["", "x", "\u00e9"])
def test_strings_that_python_has_once_are_referred_back_to(text: str) -> None:
    root = COMPATIBLE[HashAlgorithm.SHA256](SEED)
    want = COMPATIBLE[HashAlgorithm.SHA256]((root, (1, 2, 3, 4), (("lora", text, text),)))
    assert hash_tokens(make_hasher(), [1, 2, 3, 4], Extras(lora=Lora(text, text))).block_hashes == [want]


@pytest.mark.parametrize("text", ["lora", "mm", "cache_salt"])
def test_a_value_that_reads_like_a_tag_is_no_tag(text: str) -> None:
    root = COMPATIBLE[HashAlgorithm.SHA256](SEED)
    want = COMPATIBLE[HashAlgorithm.SHA256]((root, (1, 2, 3, 4), (("mm", fresh(text), 0),)))
    extras = Extras((MultiModalFeature(0, 1, text),))
    assert hash_tokens(make_hasher(), [1, 2, 3, 4], extras).block_hashes == [want]


def test_the_tag_of_a_second_feature_is_referred_back_to() -> None:
    tag, root = "mm", COMPATIBLE[HashAlgorithm.SHA256](SEED)
    want = COMPATIBLE[HashAlgorithm.SHA256]((root, (1, 2, 3, 4), ((tag, "cat", 0), (tag, "dog", 2))))
    extras = Extras((MultiModalFeature(0, 2, "cat"), MultiModalFeature(2, 2, "dog")))
    assert hash_tokens(make_hasher(), [1, 2, 3, 4], extras).block_hashes == [want]


def straight_blake2b(kind: bytes, data: bytes) -> bytes:
    assert len(kind) == 4
    return hashlib.blake2b(data, digest_size=32, person=b"blockyard/1 " + kind).digest()


def test_blake2b_hashes_four_byte_ids_after_the_parent() -> None:
    root = straight_blake2b(b"root", b"a-secret")
    first = straight_blake2b(b"tok4", root + bytes.fromhex("01000000 00010000 ffffffff 00000000"))
    second = straight_blake2b(b"tok4", first + bytes.fromhex("05000000 06000000 07000000 08000000"))
    hashed = hash_tokens(make_hasher(HashAlgorithm.BLAKE2B), [1, 256, 2**32 - 1, 0, 5, 6, 7, 8])
    assert (hashed.none_hash, hashed.block_hashes) == (root, [first, second])


def test_blake2b_hashes_eight_byte_ids_only_in_blocks_that_need_them() -> None:
    root = straight_blake2b(b"root", b"a-secret")
    first = straight_blake2b(b"tok8", root + bytes.fromhex("0000000001000000 0100000000000000"))
    second = straight_blake2b(b"tok4", first + bytes.fromhex("02000000 03000000"))
    hashed = hash_tokens(make_hasher(HashAlgorithm.BLAKE2B, 2), [2**32, 1, 2, 3])
    assert hashed.block_hashes == [first, second]


def test_blake2b_hashes_extra_keys_as_cbor_and_their_length() -> None:
    root = straight_blake2b(b"root", b"a-secret")
    salt = bytes.fromhex("81 82 6a") + b"cache_salt" + bytes.fromhex("62") + b"me"
    length = bytes.fromhex("1000000000000000")
    first = straight_blake2b(b"key4", root + bytes.fromhex("01000000 02000000") + salt + length)
    second = straight_blake2b(b"tok4", first + bytes.fromhex("03000000 04000000"))
    hashed = hash_tokens(make_hasher(HashAlgorithm.BLAKE2B, 2), [1, 2, 3, 4], Extras(cache_salt="me"))
    assert hashed.block_hashes == [first, second]


def test_blake2b_of_wide_ids_with_extra_keys_is_a_kind_of_its_own() -> None:
    root = straight_blake2b(b"root", b"blockyard")
    lora = bytes.fromhex("81 83 64") + b"lora" + bytes.fromhex("61") + b"n" + bytes.fromhex("61") + b"p"
    want = straight_blake2b(
        b"key8", root + (2**63 - 1).to_bytes(8, "little") + lora + len(lora).to_bytes(8, "little")
    )
    hashed = hash_tokens(Hasher(HashAlgorithm.BLAKE2B, 1), [2**63 - 1], Extras(lora=Lora("n", "p")))
    assert hashed.block_hashes == [want]


GOLDEN_BLAKE2B = [
    "89acb60405e0183337f5ffe5459c2cc8a6ba2486dda73cf69a37ef335284003a",
    "6b1edfc6ab3c48b83ee214ae7e7071846272b015f9c38ae5d35ca0ce8d017eee",
]


def test_blake2b_never_changes() -> None:
    hashed = hash_tokens(Hasher(HashAlgorithm.BLAKE2B, 16), range(32))
    assert [block_hash.hex() for block_hash in hashed.block_hashes] == GOLDEN_BLAKE2B


@given(ids=st.lists(token_ids, min_size=1, max_size=6), other=st.lists(token_ids, min_size=1, max_size=6))
def test_blake2b_tells_apart_blocks_of_other_ids_and_lengths(ids: list[int], other: list[int]) -> None:
    one, two = (
        hash_tokens(make_hasher(HashAlgorithm.BLAKE2B, len(block)), block).block_hashes
        for block in (ids, other)
    )
    assert (one == two) == (ids == other)


@every_algorithm
def test_a_salt_changes_every_hash_of_a_sequence(algorithm: HashAlgorithm) -> None:
    hasher, ids = make_hasher(algorithm), range(12)
    plain, salted = (
        hash_tokens(hasher, ids, extras).block_hashes for extras in (None, Extras(cache_salt="us"))
    )
    assert not set(plain) & set(salted)


@every_algorithm
def test_lora_and_salt_of_the_same_text_hash_differently(algorithm: HashAlgorithm) -> None:
    hasher = make_hasher(algorithm)
    one, two = Extras(lora=Lora("foo", "foo")), Extras(cache_salt="foo")
    assert hash_tokens(hasher, range(4), one).block_hashes != hash_tokens(hasher, range(4), two).block_hashes


@every_algorithm
def test_seeds_separate_caches(algorithm: HashAlgorithm) -> None:
    one, two = (hash_tokens(Hasher(algorithm, 4, seed), range(4)).block_hashes for seed in ("one", "two"))
    assert one != two


@every_algorithm
def test_no_two_algorithms_share_a_hash(algorithm: HashAlgorithm) -> None:
    hashes = hash_tokens(make_hasher(algorithm), range(8)).block_hashes
    others = [other for other in HashAlgorithm if other is not algorithm]
    assert all(hash_tokens(make_hasher(other), range(8)).block_hashes != hashes for other in others)


@every_algorithm
def test_hashes_have_the_length_that_the_algorithm_says(algorithm: HashAlgorithm) -> None:
    (block_hash,) = hash_tokens(make_hasher(algorithm), range(4)).block_hashes
    assert len(block_hash) == len(make_hasher(algorithm).none_hash) == algorithm.digest_size_bytes


def naive_extra_keys(extras: Extras, start: int, end: int) -> tuple[Any, ...] | None:
    keys: list[Any] = [] if extras.lora is None else [("lora", extras.lora.name, extras.lora.path)]
    keys += [
        ("mm", feature.identifier, feature.offset - start)
        for feature in extras.mm_features
        if feature.offset < end and feature.offset + feature.length > start
    ]
    if start == 0 and extras.cache_salt:
        keys.append(("cache_salt", extras.cache_salt))
    if extras.prompt_embeds is not None:
        row = 4 * extras.prompt_embeds.hidden_size
        rows = extras.prompt_embeds.data[start * row : end * row]
        keys.append(("prompt_embeds", hashlib.sha256(rows).digest()))
    return tuple(keys) or None


@given(extras=some_extras(), block_size=st.integers(1, 9), num_blocks=st.integers(0, 9))
def test_extra_keys_are_those_of_a_search_through_all_features(
    extras: Extras, block_size: int, num_blocks: int
) -> None:
    want = [naive_extra_keys(extras, at * block_size, (at + 1) * block_size) for at in range(num_blocks)]
    got = [
        block_extra_keys(extras, ExtraKeyForm.TAGGED, block_size=block_size, block=at)
        for at in range(num_blocks)
    ]
    hashed = hash_tokens(Hasher(HashAlgorithm.SHA256, block_size), range(num_blocks * block_size), extras)
    assert got == hashed.extra_keys == want


def test_features_count_in_the_order_of_their_offsets() -> None:
    first, second = MultiModalFeature(0, 2, "a"), MultiModalFeature(2, 2, "b")
    assert Extras((second, first)) == Extras((first, second))


def test_an_empty_salt_is_no_salt() -> None:
    assert Extras(cache_salt="") == Extras()


def test_embeddings_past_the_prompt_hash_as_nothing() -> None:
    extras = Extras(prompt_embeds=PromptEmbeds.from_rows([[1.0, 2.0]] * 4))
    keys = hash_tokens(make_hasher(), range(8), extras).extra_keys
    assert keys[1] == (("prompt_embeds", hashlib.sha256(b"").digest()),)


def test_embeddings_are_kept_as_little_endian_float32() -> None:
    assert PromptEmbeds.from_rows([[1.0], [-2.0]]).data == bytes.fromhex("0000803f 000000c0")


def test_a_key_names_hash_and_group() -> None:
    assert split_hash_key(hash_key(b"\x00\xff", 258)) == (b"\x00\xff", 258)


def test_a_key_ends_with_the_group_as_four_bytes() -> None:
    assert hash_key(b"h", 258) == b"h\x00\x00\x01\x02"


def test_the_external_form_is_the_low_64_bits() -> None:
    block_hash = bytes(range(32))
    assert external_int64(block_hash) == int.from_bytes(block_hash, "big") % 2**64


@pytest.mark.parametrize(
    ("factor", "want"), [(1, [b"0", b"1", b"2", b"3", b"4"]), (2, [b"1", b"3"]), (6, [])]
)
def test_a_coarser_block_has_the_hash_at_its_last_boundary(factor: int, want: list[bytes]) -> None:
    assert coarser_view([b"0", b"1", b"2", b"3", b"4"], factor) == want


@pytest.mark.parametrize("algorithm", [HashAlgorithm.XXHASH, HashAlgorithm.XXHASH_CBOR])
@pytest.mark.parametrize("seed", [None, ""])
def test_an_algorithm_that_is_not_collision_resistant_needs_a_secret_seed(
    algorithm: HashAlgorithm, seed: str | None
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Hasher(algorithm, 16, seed)
    assert refused_field(refused) == "seed"


BAD_IDS: list[Any] = [[-1], [2**63], [True], [1.0], [None], ["1"], [1, 2, False], 7]


@every_algorithm
@pytest.mark.parametrize("bad", BAD_IDS, ids=repr)
def test_what_is_no_token_id_is_refused(algorithm: HashAlgorithm, bad: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        make_hasher(algorithm, 1).start().append(bad)
    assert refused_field(refused) == "token_ids"


@pytest.mark.parametrize(
    "ids",
    [(1, 2, 3, 4), range(1, 5), b"\x01\x02\x03\x04", iter([1, 2, 3, 4])],
    ids=["tuple", "range", "bytes", "iterator"],
)
def test_ids_may_come_in_any_iterable(ids: Any) -> None:
    assert make_hasher().start().append(ids) == make_hasher().start().append([1, 2, 3, 4])


@pytest.mark.parametrize("block_size", [0, -1, True, 1.5])
def test_a_block_size_below_one_is_refused(block_size: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Hasher(HashAlgorithm.SHA256, block_size)
    assert refused_field(refused) == "block_size"


def test_blake2b_takes_no_bare_keys() -> None:
    with pytest.raises(InvalidRequest) as refused:
        Hasher(HashAlgorithm.BLAKE2B, 16, extra_key_form=ExtraKeyForm.BARE)
    assert refused_field(refused) == "extra_key_form"


@pytest.mark.parametrize(
    ("offset", "length"), [(-1, 4), (0, 0), (0, -1), (True, 1), (0, True), (0, 2**31), (2**31 - 1, 1)]
)
def test_a_feature_of_no_possible_tokens_is_refused(offset: int, length: int) -> None:
    with pytest.raises(InvalidRequest, match="mm_features"):
        MultiModalFeature(offset, length, "cat")


def test_features_that_overlap_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="overlaps"):
        Extras((MultiModalFeature(0, 5, "cat"), MultiModalFeature(4, 5, "dog")))


BAD_ROWS: list[Any] = [[[math.nan]], [[math.inf]], [[1e39]], [[1.0], [1.0, 2.0]], [[], []], [["x"]]]


@pytest.mark.parametrize("rows", BAD_ROWS, ids=repr)
def test_rows_that_are_no_float32_matrix_are_refused(rows: Any) -> None:
    with pytest.raises(InvalidRequest, match="prompt_embeds"):
        PromptEmbeds.from_rows(rows)


@pytest.mark.parametrize(("hidden_size", "data"), [(2, bytes(4)), (0, bytes(4)), (-1, bytes(4))])
def test_bytes_that_are_no_whole_rows_are_refused(hidden_size: int, data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="prompt_embeds"):
        PromptEmbeds(hidden_size, data)


BAD_TEXTS: list[Callable[[], object]] = [
    lambda: Extras(cache_salt="\ud800"),
    lambda: Lora("\ud800", "path"),
    lambda: Lora("name", "\ud800"),
    lambda: MultiModalFeature(0, 1, "\ud800"),
    lambda: Hasher(HashAlgorithm.SHA256, 16, "\ud800"),
]


@pytest.mark.parametrize("make", BAD_TEXTS)
def test_text_without_a_utf8_form_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest, match="Unicode"):
        make()
