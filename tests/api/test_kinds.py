"""Pools of every kind of group over HTTP: what they are made from, and what calls say to them."""

from typing import Any

import ormsgpack
import pytest

from api.support import block_hashes, make_api, make_lease, make_pool

FULL = {"kind": "full_attention", "block_size": 4}
STATE = {"kind": "mamba", "block_size": 4, "mamba_cache_mode": "align"}
WINDOW = {"kind": "sliding_window", "block_size": 4, "sliding_window": 9}
CROSS = {"kind": "cross_attention", "block_size": 4}
HOST = {**FULL, "is_host_resident": True}

KINDS: list[dict[str, Any]] = [
    *({"kind": kind} for kind in ("full_attention", "mla_attention", "hidden_state", "sink_full_attention")),
    {"kind": "full_attention", "is_draft": True},
    {"kind": "sliding_window", "sliding_window": 9},
    {"kind": "sliding_window", "sliding_window": 9, "extra_retained_tokens": 3, "is_draft": True},
    {"kind": "sliding_window_mla", "sliding_window": 9},
    {"kind": "chunked_local_attention", "attention_chunk_size": 8},
    {"kind": "rswa", "rswa_window": 4},
    {"kind": "mamba", "mamba_cache_mode": "align"},
    {"kind": "mamba", "mamba_cache_mode": "align", "num_speculative_blocks": 2},
    {"kind": "circular_buffer"},
    {"kind": "kpool_tail"},
    {"kind": "resident"},
    {"kind": "hot", "num_blocks_per_request": 2},
]


@pytest.mark.parametrize("sizes", KINDS, ids=str)
def test_a_group_is_described_by_what_it_has_and_no_more(sizes: dict[str, Any]) -> None:
    group = {"block_size": 4, **sizes}
    with make_api() as api:
        make_pool(api, groups=[FULL, group])
        assert api.get("/v1/pools/pool").json()["groups"] == [FULL, group]


@pytest.mark.parametrize(
    "group", [CROSS, {"kind": "mamba", "block_size": 4}, {**STATE, "mamba_cache_mode": "none"}]
)
def test_what_is_never_found_again_goes_with_prefix_caching_off(group: dict[str, Any]) -> None:
    with make_api() as api:
        make_pool(api, groups=[FULL, group], enable_prefix_caching=False)
        assert api.get("/v1/pools/pool").json()["groups"] == [FULL, group]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"groups": [{"kind": "mamba", "block_size": 4}]}, "enable_prefix_caching"),
        ({"groups": [{**STATE, "mamba_cache_mode": "none"}]}, "enable_prefix_caching"),
        ({"groups": [FULL, CROSS]}, "enable_prefix_caching"),
        ({"groups": [FULL, HOST]}, "num_host_blocks"),
        ({"groups": [FULL], "num_host_blocks": 8}, "num_host_blocks"),
        ({"groups": [HOST], "num_host_blocks": 0}, "num_host_blocks"),
        ({"groups": [{**STATE, "is_draft": True}]}, "groups.is_draft"),
        ({"groups": [{**CROSS, "is_draft": True}]}, "groups.is_draft"),
        (
            {
                "groups": [
                    {
                        "kind": "chunked_local_attention",
                        "block_size": 4,
                        "attention_chunk_size": 8,
                        "is_draft": True,
                    }
                ]
            },
            "groups.is_draft",
        ),
        ({"groups": [{**STATE, "mamba_cache_mode": "all"}]}, "groups.0.mamba_cache_mode"),
        ({"groups": [FULL, {**FULL, "kind": "unheard_of"}]}, "groups.1.kind"),
        ({"groups": [FULL, {**FULL, "windows": 4}]}, "groups.1.windows"),
        ({"groups": [{**FULL, "num_speculative_blocks": -1}]}, "groups.0.num_speculative_blocks"),
        ({"groups": [{"kind": "sliding_window", "block_size": 4}]}, "groups.sliding_window"),
        ({"groups": [{"kind": "chunked_local_attention", "block_size": 4}]}, "groups.attention_chunk_size"),
        ({"groups": [{"kind": "rswa", "block_size": 4}]}, "groups.rswa_window"),
        ({"groups": [{"kind": "hot", "block_size": 4}]}, "groups.num_blocks_per_request"),
        ({"groups": [{**FULL, "sliding_window": 8}]}, "groups.sliding_window"),
        ({"groups": [{**FULL, "extra_retained_tokens": 8}]}, "groups.extra_retained_tokens"),
        ({"groups": [{**FULL, "mamba_cache_mode": "align"}]}, "groups.mamba_cache_mode"),
        ({"groups": [{**WINDOW, "num_speculative_blocks": 1}]}, "groups.num_speculative_blocks"),
        ({"groups": [WINDOW], "prefix_cache_retention_interval": 6}, "prefix_cache_retention_interval"),
        ({"groups": [WINDOW], "prefix_cache_retention_interval": -4}, "prefix_cache_retention_interval"),
    ],
)
def test_a_group_that_cannot_be_is_refused_by_its_field(config: dict[str, Any], field: str) -> None:
    with make_api() as api:
        reply = api.put("/v1/pools/pool", json={"num_blocks": 10, **config})
        assert reply.status_code == 422
        assert [error["field"] for error in reply.json()["errors"]] == [field]
        assert api.get("/v1/pools").json() == {"pools": []}


def test_host_blocks_are_counted_by_themselves() -> None:
    with make_api() as api:
        pool = make_pool(api, groups=[FULL, HOST], num_host_blocks=20)
        lease = make_lease(api, pool)
        given = api.post(f"{pool}/allocate", json={"lease_id": lease, "sequence_id": "s", "num_tokens": 9})
        assert given.json()["block_ids"] == [[1, 2, 3], [1, 2, 3]]
        assert given.json()["num_free_blocks"] == 6
        stats = api.get(f"{pool}/stats").json()
        assert (stats["num_blocks"], stats["num_free_blocks"], stats["num_held_blocks"]) == (10, 6, 3)
        assert (stats["num_host_blocks"], stats["num_free_host_blocks"]) == (20, 16)
        assert api.get(f"{pool}/audit").json()["ok"]
        assert api.delete(pool).json()["code"] == "pool_in_use"


def test_a_pool_without_host_blocks_says_so() -> None:
    with make_api() as api:
        stats = api.get(f"{make_pool(api)}/stats").json()
    assert (stats["num_host_blocks"], stats["num_free_host_blocks"]) == (None, None)


def test_a_want_of_host_blocks_is_a_refusal_with_their_figures() -> None:
    with make_api() as api:
        pool = make_pool(api, groups=[FULL, HOST], num_host_blocks=3)
        asked = {"lease_id": make_lease(api, pool), "sequence_id": "s", "num_tokens": 9}
        reply = api.post(f"{pool}/allocate", json=asked).json()
    assert reply["code"] == "insufficient_blocks"
    assert (reply["num_required_blocks"], reply["num_free_blocks"]) == (3, 2)


@pytest.mark.parametrize("by_step", [False, True])
def test_encoder_tokens_get_their_blocks_once(by_step: bool) -> None:
    with make_api() as api:
        pool = make_pool(api, groups=[FULL, CROSS], enable_prefix_caching=False)
        lease = make_lease(api, pool)
        asked = {"sequence_id": "s", "num_tokens": 2, "num_encoder_tokens": 10}
        if by_step:
            step = api.post(f"{pool}/step", json={"lease_id": lease, "admit": [asked]}).json()
            given = step["admit"][0]
        else:
            given = api.post(f"{pool}/allocate", json={"lease_id": lease, **asked}).json()
        assert given["block_ids"] == [[1], [2, 3, 4]]
        grown = {"lease_id": lease, "sequence_id": "s", "num_tokens": 6}
        assert api.post(f"{pool}/allocate", json=grown).json()["block_ids"] == [[5], []]


@pytest.mark.parametrize("by_step", [False, True])
def test_the_prompt_says_what_a_reference_window_keeps(by_step: bool) -> None:
    # 4 prompt tokens, 16 more, a window of 4: after 20 tokens blocks 1 to 3 lie between prompt and window.
    with make_api() as api:
        pool = make_pool(
            api, groups=[{"kind": "rswa", "block_size": 4, "rswa_window": 4}], publish="on_allocate"
        )
        lease = make_lease(api, pool)
        asked = {"sequence_id": "s", "num_tokens": 20, "num_prompt_tokens": 4}
        if by_step:
            api.post(f"{pool}/step", json={"lease_id": lease, "admit": [asked]})
        else:
            api.post(f"{pool}/allocate", json={"lease_id": lease, **asked})
        api.post(f"{pool}/allocate", json={"lease_id": lease, "sequence_id": "s", "num_tokens": 21})
        assert api.get(f"{pool}/sequences/s").json()["block_ids"] == [[1, 0, 0, 0, 5, 4]]


@pytest.mark.parametrize(
    ("field", "value"), [("num_prompt_tokens", 0), ("num_encoder_tokens", -1), ("num_prompt_tokens", 1.5)]
)
def test_a_count_that_cannot_be_is_refused_by_its_field(field: str, value: float) -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        asked = {"sequence_id": "s", "num_tokens": 8, field: value}
        single = api.post(f"{pool}/allocate", json={"lease_id": lease, **asked})
        step = api.post(f"{pool}/step", json={"lease_id": lease, "admit": [asked]})
    fields = [reply.json()["errors"][0]["field"] for reply in (single, step)]
    assert fields == [field, f"admit.0.{field}"]


@pytest.mark.parametrize("by_step", [False, True])
@pytest.mark.parametrize("in_msgpack", [False, True])
def test_a_first_chunk_ends_at_a_state_that_the_same_prompt_then_finds(
    by_step: bool, in_msgpack: bool
) -> None:
    with make_api() as api:
        pool = make_pool(api, groups=[FULL, STATE], publish="on_allocate", num_blocks=20)
        lease = make_lease(api, pool)

        def begin(name: str, **fields: Any) -> tuple[int, int]:
            asked: dict[str, Any] = {"sequence_id": name, "num_tokens": 15, **fields}
            hashes = block_hashes(1, 2, 3)
            asked["block_hashes"] = [bytes.fromhex(each) for each in hashes] if in_msgpack else hashes
            body = {"lease_id": lease, "admit": [asked]} if by_step else {"lease_id": lease, **asked}
            path = f"{pool}/{'step' if by_step else 'allocate'}"
            if in_msgpack:
                forms = {"Content-Type": "application/msgpack", "Accept": "application/json"}
                reply = api.post(path, content=ormsgpack.packb(body), headers=forms).json()
            else:
                reply = api.post(path, json=body).json()
            given = reply["admit"][0] if by_step else reply
            return given["num_cached_tokens"], given["num_new_tokens"]

        assert begin("plain") == (0, 15)
        assert begin("one", end_at_state=True) == (0, 12)
        assert begin("two", end_at_state=True) == (12, 3)


@pytest.mark.parametrize("value", [1, "yes", None])
def test_a_demand_to_end_at_a_state_is_true_or_false(value: object) -> None:
    with make_api() as api:
        pool = make_pool(api)
        asked = {"lease_id": make_lease(api, pool), "sequence_id": "s", "num_tokens": 8}
        reply = api.post(f"{pool}/allocate", json={**asked, "end_at_state": value})
    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, "end_at_state")


def test_copies_are_told_and_both_their_ends_kept_until_the_leases_next_call() -> None:
    state = {**STATE, "block_size": 8}
    full = {**FULL, "block_size": 8}
    with make_api() as api:
        pool = make_pool(api, groups=[full, state], hash_block_size=4, publish="on_allocate", num_blocks=20)
        lease = make_lease(api, pool)
        prompt = {"num_tokens": 15, "block_hashes": block_hashes(1, 2, 3)}
        asked = {"lease_id": lease, "sequence_id": "a", "max_new_tokens": 12, **prompt}
        assert api.post(f"{pool}/allocate", json=asked).json()["copies"] == []
        given = api.post(f"{pool}/allocate", json={"lease_id": lease, "sequence_id": "b", **prompt}).json()
        # Full: blocks 1 and 2 hold the first 12 tokens; state: block 3 is the one after them.
        assert given["num_cached_tokens"] == 12
        assert given["block_ids"] == [[1, 4], [0, 5]]
        assert given["copies"] == [[2, 4], [3, 5]]
        assert api.get(f"{pool}/audit").json()["num_held_blocks"] == 5
        api.post(f"{pool}/free", json={"lease_id": lease, "sequence_ids": ["a", "b"]})
        assert api.get(f"{pool}/audit").json()["num_held_blocks"] == 0
