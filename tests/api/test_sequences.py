"""Sequences over HTTP: admission, growth, commit, free, lookup, step."""

from typing import Any

import ormsgpack
import pytest
from fastapi.testclient import TestClient

from api.support import block_hashes, make_api, make_lease, make_pool

PROMPT = block_hashes(1, 2, 3)  # twelve tokens in blocks of four


def test_a_first_call_tells_the_cached_prefix_and_a_later_one_does_not() -> None:
    with make_api() as api:
        pool = make_pool(api)
        ask = {"lease_id": make_lease(api, pool), "sequence_id": "s"}
        assert api.post(f"{pool}/allocate", json={**ask, "num_tokens": 6}).json() == {
            "epoch": 1,
            "sequence": 1,
            "num_cached_tokens": 0,
            "num_new_tokens": 6,
            "block_ids": [[1, 2]],
            "copies": [],
            "num_free_blocks": 7,
        }
        assert api.post(f"{pool}/allocate", json={**ask, "num_tokens": 9}).json() == {
            "epoch": 1,
            "sequence": 1,
            "num_new_tokens": 3,
            "block_ids": [[3]],
            "copies": [],
            "num_free_blocks": 6,
        }


def test_committed_tokens_are_hits_for_another_sequence() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        prompt = {"lease_id": lease, "num_tokens": 13, "block_hashes": PROMPT}
        api.post(f"{pool}/allocate", json={"sequence_id": "first", **prompt})
        committed = api.post(
            f"{pool}/commit", json={"lease_id": lease, "sequence_id": "first", "num_computed_tokens": 9}
        ).json()
        assert committed == {"epoch": 1, "num_computed_tokens": 9, "num_published_blocks": 2}
        second = api.post(f"{pool}/allocate", json={"sequence_id": "second", **prompt}).json()
    assert (second["num_cached_tokens"], second["block_ids"][0][:2]) == (8, [1, 2])


def test_the_last_token_is_always_computed() -> None:
    with make_api() as api:
        pool = make_pool(api, publish="on_allocate")
        prompt = {"lease_id": make_lease(api, pool), "num_tokens": 12, "block_hashes": PROMPT}
        api.post(f"{pool}/allocate", json={"sequence_id": "first", **prompt})
        second = api.post(f"{pool}/allocate", json={"sequence_id": "second", **prompt}).json()
    assert (second["num_cached_tokens"], second["num_new_tokens"]) == (8, 4)


def test_skip_prefix_cache_looks_for_nothing() -> None:
    with make_api() as api:
        pool = make_pool(api, publish="on_allocate")
        prompt = {"lease_id": make_lease(api, pool), "num_tokens": 12, "block_hashes": PROMPT}
        api.post(f"{pool}/allocate", json={"sequence_id": "first", **prompt})
        second = api.post(
            f"{pool}/allocate", json={"sequence_id": "second", "skip_prefix_cache": True, **prompt}
        ).json()
    assert second["num_cached_tokens"] == 0


def test_rejected_speculation_is_taken_back_by_a_lower_count() -> None:
    with make_api() as api:
        pool = make_pool(api)
        ask = {"lease_id": make_lease(api, pool), "sequence_id": "s"}
        api.post(f"{pool}/allocate", json={**ask, "num_tokens": 8})
        api.post(f"{pool}/allocate", json={**ask, "num_tokens": 13})  # one sure token and four speculated
        grown = api.post(f"{pool}/allocate", json={**ask, "num_tokens": 15, "num_computed_tokens": 10}).json()
        assert (grown["num_new_tokens"], grown["block_ids"]) == (5, [[]])
        assert api.get(f"{pool}/sequences/s").json()["num_computed_tokens"] == 15


def test_committed_tokens_cannot_be_taken_back() -> None:
    with make_api() as api:
        pool = make_pool(api)
        ask = {"lease_id": make_lease(api, pool), "sequence_id": "s"}
        api.post(f"{pool}/allocate", json={**ask, "num_tokens": 8})
        api.post(f"{pool}/commit", json={**ask, "num_computed_tokens": 8})
        reply = api.post(f"{pool}/allocate", json={**ask, "num_tokens": 9, "num_computed_tokens": 7})
    assert reply.json()["errors"][0]["field"] == "num_computed_tokens"


def test_tokens_beyond_the_model_length_are_refused() -> None:
    with make_api() as api:
        pool = make_pool(api, max_model_len=8)
        ask = {"lease_id": make_lease(api, pool), "sequence_id": "s", "num_tokens": 9}
        assert api.post(f"{pool}/allocate", json=ask).json()["code"] == "invalid_request"


def test_lookahead_stops_at_the_model_length() -> None:
    with make_api() as api:
        pool = make_pool(api, max_model_len=8)
        ask = {"lease_id": make_lease(api, pool), "sequence_id": "s", "num_tokens": 8}
        got = api.post(f"{pool}/allocate", json={**ask, "num_lookahead_tokens": 5}).json()
    assert got["block_ids"] == [[1, 2]]


def test_a_watermark_keeps_blocks_for_sequences_that_run() -> None:
    with make_api() as api:
        pool = make_pool(api, watermark_blocks=2)
        lease = make_lease(api, pool)
        ask = {"lease_id": lease, "sequence_id": "s"}
        assert (
            api.post(f"{pool}/allocate", json={**ask, "num_tokens": 32}).json()["code"]
            == "insufficient_blocks"
        )
        assert api.post(f"{pool}/allocate", json={**ask, "num_tokens": 28}).status_code == 200
        assert api.post(f"{pool}/allocate", json={**ask, "num_tokens": 36}).status_code == 200


def test_free_reports_what_the_lease_does_not_hold() -> None:
    with make_api() as api:
        pool = make_pool(api)
        mine, yours = make_lease(api, pool), make_lease(api, pool)
        api.post(f"{pool}/allocate", json={"lease_id": mine, "sequence_id": "mine", "num_tokens": 8})
        api.post(f"{pool}/allocate", json={"lease_id": yours, "sequence_id": "yours", "num_tokens": 8})
        freed = api.post(
            f"{pool}/free", json={"lease_id": mine, "sequence_ids": ["mine", "mine", "yours", "nobody"]}
        ).json()
        assert api.get(f"{pool}/sequences/yours").status_code == 200
    assert freed == {
        "epoch": 1,
        "num_freed_blocks": 2,
        "num_free_blocks": 7,
        "unknown": ["mine", "yours", "nobody"],
    }


def test_lookup_changes_nothing() -> None:
    with make_api() as api:
        pool = make_pool(api, publish="on_allocate")
        lease = make_lease(api, pool)
        api.post(
            f"{pool}/allocate",
            json={"lease_id": lease, "sequence_id": "s", "num_tokens": 13, "block_hashes": PROMPT},
        )
        api.post(f"{pool}/free", json={"lease_id": lease, "sequence_ids": ["s"]})
        before = api.get(f"{pool}/stats").json()
        found = api.post(f"{pool}/lookup", json={"num_tokens": 12, "block_hashes": PROMPT}).json()
        assert found == {"epoch": 1, "num_cached_tokens": 8, "block_ids": [[1, 2]]}
        assert api.get(f"{pool}/stats").json() == before


def test_a_lookup_of_another_epoch_is_refused() -> None:
    with make_api() as api:
        pool = make_pool(api)
        assert api.post(f"{pool}/lookup", json={"num_tokens": 12, "epoch": 2}).json()["code"] == "stale_epoch"


def test_token_ids_hit_what_their_hashes_hit() -> None:
    tokens = list(range(100, 113))
    with make_api() as api:
        pool = make_pool(api, publish="on_allocate")
        lease = make_lease(api, pool)
        api.post(
            f"{pool}/allocate",
            json={"lease_id": lease, "sequence_id": "s", "num_tokens": 13, "token_ids": tokens},
        )
        hashed = api.post(
            "/v1/hash",
            json={"algorithm": "blake2b", "seed": None, "block_size": 4, "token_ids": tokens},
        ).json()
        found = api.post(
            f"{pool}/lookup", json={"num_tokens": 13, "block_hashes": hashed["block_hashes"]}
        ).json()
        assert found["num_cached_tokens"] == 12
        assert api.post(f"{pool}/lookup", json={"num_tokens": 13, "token_ids": tokens}).json() == found


def test_token_ids_may_be_sent_as_they_come() -> None:
    with make_api() as api:
        pool = make_pool(api, publish="on_allocate")
        ask = {"lease_id": make_lease(api, pool), "sequence_id": "s"}
        for length, tokens in ((3, [1, 2, 3]), (6, [4, 5, 6]), (9, [7, 8, 9])):
            api.post(f"{pool}/allocate", json={**ask, "num_tokens": length, "token_ids": tokens})
        found = api.post(f"{pool}/lookup", json={"num_tokens": 9, "token_ids": list(range(1, 10))}).json()
    assert found["num_cached_tokens"] == 8


def test_another_salt_is_another_prefix() -> None:
    tokens = list(range(9))
    with make_api() as api:
        pool = make_pool(api, publish="on_allocate")
        ask = {"num_tokens": 9, "token_ids": tokens}
        api.post(
            f"{pool}/allocate",
            json={"lease_id": make_lease(api, pool), "sequence_id": "s", "cache_salt": "one", **ask},
        )
        assert api.post(f"{pool}/lookup", json={**ask, "cache_salt": "one"}).json()["num_cached_tokens"] == 8
        assert api.post(f"{pool}/lookup", json={**ask, "cache_salt": "two"}).json()["num_cached_tokens"] == 0
        assert api.post(f"{pool}/lookup", json=ask).json()["num_cached_tokens"] == 0


def test_a_pool_without_its_secret_seed_does_not_hash() -> None:
    with make_api() as api:
        pool = make_pool(api, hash_algorithm="xxhash")
        reply = api.post(f"{pool}/lookup", json={"num_tokens": 9, "token_ids": list(range(9))})
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_request")


def test_a_secret_seed_is_used_and_never_shown() -> None:
    with make_api() as api:
        pool = make_pool(api, hash_algorithm="xxhash", hash_seed="very secret")
        assert "very secret" not in api.get("/v1/pools").text + api.get(pool).text
        assert (
            api.post(f"{pool}/lookup", json={"num_tokens": 9, "token_ids": list(range(9))}).status_code == 200
        )


def test_a_sequence_id_may_hold_slashes() -> None:
    with make_api() as api:
        pool = make_pool(api)
        api.post(
            f"{pool}/allocate",
            json={"lease_id": make_lease(api, pool), "sequence_id": "a/b/c", "num_tokens": 3},
        )
        assert api.get(f"{pool}/sequences/a/b/c").json()["num_tokens"] == 3


def test_a_step_commits_frees_extends_and_admits_in_this_order() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        first = {
            "lease_id": lease,
            "admit": [
                {"sequence_id": "a", "num_tokens": 12, "block_hashes": PROMPT},
                {"sequence_id": "b", "num_tokens": 20},
            ],
        }
        a, b = (one["sequence"] for one in api.post(f"{pool}/step", json=first).json()["admit"])
        # Of nine blocks eight are held: `a` gets the first that `b` gave back, `c` the second, and `c` finds
        # the blocks of `a`, since these are committed before.
        second = {
            "lease_id": lease,
            "step_id": 5,
            "commit": {"sequences": [a], "num_computed_tokens": [12]},
            "free": {"sequences": [b]},
            "extend": {"sequences": [a], "num_tokens": [13]},
            "admit": [{"sequence_id": "c", "num_tokens": 13, "block_hashes": PROMPT}],
        }
        reply = api.post(f"{pool}/step", json=second).json()
    assert reply == {
        "epoch": 1,
        "step_id": 5,
        "extend": {"sequences": [a], "block_ids": [[[8]]], "insufficient": []},
        "copies": [],
        "admit": [{"sequence": 3, "num_cached_tokens": 12, "num_new_tokens": 1, "block_ids": [[1, 2, 3, 7]]}],
        "num_free_blocks": 4,
    }


def test_a_step_lists_what_got_no_blocks_and_goes_on() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        admit = [{"sequence_id": name, "num_tokens": 8} for name in ("a", "b")]
        handles = [
            one["sequence"]
            for one in api.post(f"{pool}/step", json={"lease_id": lease, "admit": admit}).json()["admit"]
        ]
        reply = api.post(
            f"{pool}/step",
            json={
                "lease_id": lease,
                "extend": {"sequences": handles, "num_tokens": [400, 9]},
                "admit": [{"sequence_id": "c", "num_tokens": 400}, {"sequence_id": "d", "num_tokens": 4}],
            },
        ).json()
    assert reply["extend"] == {"sequences": [handles[1]], "block_ids": [[[5]]], "insufficient": [handles[0]]}
    refused = reply["admit"][0]
    assert (refused["code"], refused["num_required_blocks"], refused["num_free_blocks"]) == (
        "insufficient_blocks",
        100,
        4,
    )
    assert reply["admit"][1]["block_ids"] == [[6]]


def test_a_step_with_one_fault_does_nothing() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        admit = [{"sequence_id": "a", "num_tokens": 8}]
        handle = api.post(f"{pool}/step", json={"lease_id": lease, "admit": admit}).json()["admit"][0][
            "sequence"
        ]
        before = api.get(f"{pool}/stats").json()
        reply = api.post(
            f"{pool}/step",
            json={
                "lease_id": lease,
                "free": {"sequences": [handle]},
                "extend": {"sequences": [99], "num_tokens": [9]},
            },
        )
        assert (reply.status_code, reply.json()["code"]) == (404, "sequence_not_found")
        assert api.get(f"{pool}/stats").json() == before


def test_a_step_does_not_touch_another_leases_sequence() -> None:
    with make_api() as api:
        pool = make_pool(api)
        mine, yours = make_lease(api, pool), make_lease(api, pool)
        admit = [{"sequence_id": "a", "num_tokens": 8}]
        handle = api.post(f"{pool}/step", json={"lease_id": mine, "admit": admit}).json()["admit"][0][
            "sequence"
        ]
        reply = api.post(f"{pool}/step", json={"lease_id": yours, "free": {"sequences": [handle]}})
        assert reply.json()["code"] == "sequence_not_found"
        refused = api.post(f"{pool}/step", json={"lease_id": yours, "admit": admit}).json()["admit"]
    assert [item["code"] for item in refused] == ["sequence_exists_elsewhere"]


def test_steps_do_not_go_back() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        assert api.post(f"{pool}/step", json={"lease_id": lease, "step_id": 7}).status_code == 200
        reply = api.post(f"{pool}/step", json={"lease_id": lease, "step_id": 6})
    assert reply.json()["errors"][0]["field"] == "step_id"


@pytest.mark.parametrize("accept", ["application/msgpack", None])
def test_msgpack_is_answered_in_msgpack(accept: str | None) -> None:
    with make_api() as api:
        pool = make_pool(api)
        body = {
            "lease_id": make_lease(api, pool),
            "sequence_id": "s",
            "num_tokens": 8,
            "block_hashes": [b"\x01" * 32],
        }
        headers = {
            "content-type": "application/msgpack",
            **({"accept": accept} if accept else {"accept": "*/*"}),
        }
        reply = api.post(f"{pool}/allocate", content=ormsgpack.packb(body), headers=headers)
    assert reply.headers["content-type"] == "application/msgpack"
    assert ormsgpack.unpackb(reply.content)["block_ids"] == [[1, 2]]


def test_the_callers_accept_header_decides_the_form() -> None:
    with make_api() as api:
        pool = make_pool(api)
        body = {"lease_id": make_lease(api, pool), "sequence_ids": []}
        as_json = api.post(
            f"{pool}/free",
            content=ormsgpack.packb(body),
            headers={"content-type": "application/msgpack", "accept": "application/json"},
        )
        as_msgpack = api.post(f"{pool}/free", json=body, headers={"accept": "application/msgpack"})
    assert as_json.json() == ormsgpack.unpackb(as_msgpack.content)


def committed_prefixes_only(api: TestClient, publish: str) -> bool:
    """Two schedulers, one prompt: does the second hit only blocks that the first has committed?"""
    pool = make_pool(api, publish, num_blocks=20, publish=publish)
    one, two = make_lease(api, pool, holder="one"), make_lease(api, pool, holder="two")
    prompt = {"num_tokens": 13, "block_hashes": PROMPT}
    hits = []
    api.post(f"{pool}/allocate", json={"lease_id": one, "sequence_id": "one", **prompt})
    for number, num_computed in enumerate((0, 3, 4, 7, 12)):
        commit = {"lease_id": one, "sequence_id": "one", "num_computed_tokens": num_computed}
        api.post(f"{pool}/commit", json=commit)
        ask = {"lease_id": two, "sequence_id": f"two-{number}", **prompt}
        hits.append((api.post(f"{pool}/allocate", json=ask).json()["num_cached_tokens"], num_computed))
        api.post(f"{pool}/free", json={"lease_id": two, "sequence_ids": [f"two-{number}"]})
    return all(cached <= committed for cached, committed in hits)


def test_no_scheduler_hits_what_another_has_not_committed() -> None:
    with make_api() as api:
        assert committed_prefixes_only(api, "on_commit")


def test_the_claim_above_fails_where_blocks_are_published_on_allocate() -> None:
    with make_api() as api:
        assert not committed_prefixes_only(api, "on_allocate")


def test_an_extension_sent_twice_does_not_tell_its_hashes_twice() -> None:
    with make_api() as api:
        pool = make_pool(api, num_blocks=20)
        ask = {"lease_id": make_lease(api, pool), "sequence_id": "s"}
        api.post(f"{pool}/allocate", json={**ask, "num_tokens": 8, "block_hashes": block_hashes(1, 2)})
        grow = {**ask, "num_tokens": 12, "block_hashes": block_hashes(3)}
        assert api.post(f"{pool}/allocate", json=grow).status_code == 200
        assert api.post(f"{pool}/allocate", json=grow).json()["errors"][0]["field"] == "block_hashes"


def test_published_blocks_are_never_written_anew() -> None:
    with make_api() as api:
        pool = make_pool(api, publish="on_allocate", num_blocks=20)
        ask = {"lease_id": make_lease(api, pool), "sequence_id": "s"}
        prompt = block_hashes(1, 2, 3, 4)
        api.post(f"{pool}/allocate", json={**ask, "num_tokens": 16, "block_hashes": prompt})
        reply = api.post(f"{pool}/allocate", json={**ask, "num_tokens": 18, "num_computed_tokens": 4})
        assert reply.json()["errors"][0]["field"] == "num_computed_tokens"


def test_tokens_whose_window_was_dropped_cannot_be_computed_again() -> None:
    with make_api() as api:
        groups = [{"kind": "sliding_window", "block_size": 4, "sliding_window": 5}]
        pool = make_pool(api, publish="on_allocate", num_blocks=20, groups=groups)
        ask = {"lease_id": make_lease(api, pool), "sequence_id": "s"}
        for num_tokens in (40, 41):
            api.post(f"{pool}/allocate", json={**ask, "num_tokens": num_tokens})
        back = api.post(f"{pool}/allocate", json={**ask, "num_tokens": 42, "num_computed_tokens": 8})
        assert back.json()["errors"][0]["field"] == "num_computed_tokens"
        rejected = api.post(f"{pool}/allocate", json={**ask, "num_tokens": 42, "num_computed_tokens": 40})
        assert rejected.status_code == 200


def test_a_step_that_asks_for_changes_alone_lists_whose_tables_grew() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        admit = [{"sequence_id": name, "num_tokens": 3} for name in ("one", "two", "three")]
        one, two, three = (
            each["sequence"]
            for each in api.post(f"{pool}/step", json={"lease_id": lease, "admit": admit}).json()["admit"]
        )
        extend = {"sequences": [one, two, three], "num_tokens": [4, 5, 1_000], "only_changes": True}
        reply = api.post(f"{pool}/step", json={"lease_id": lease, "extend": extend}).json()
        assert reply["extend"] == {
            "sequences": [two],
            "block_ids": [[[4]]],
            "insufficient": [three],
            "unlisted": [[]],
        }
        assert api.get(f"{pool}/sequences/one").json()["num_computed_tokens"] == 4


def test_columns_of_a_step_may_be_packed_in_msgpack() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)

        def step(**parts: Any) -> Any:
            raw = ormsgpack.packb({"lease_id": lease, **parts})
            reply = api.post(f"{pool}/step", content=raw, headers={"Content-Type": "application/msgpack"})
            return reply.status_code, ormsgpack.unpackb(
                reply.content
            ) if reply.status_code == 200 else reply.json()

        admit = [{"sequence_id": name, "num_tokens": 4} for name in ("one", "two")]
        handles = [each["sequence"] for each in step(admit=admit)[1]["admit"]]
        packed = b"".join(handle.to_bytes(4, "little") for handle in handles)
        counts = b"\4\0\0\0\4\0\0\0"
        status, reply = step(
            commit={"sequences": packed, "num_computed_tokens": counts},
            extend={"sequences": packed, "num_tokens": b"\5\0\0\0\6\0\0\0"},
        )
        assert (status, reply["extend"]["sequences"]) == (200, handles)
        status, reply = step(extend={"sequences": packed, "num_tokens": b"\5\0\0\0\6\0\0"})
        assert (status, reply["errors"][0]["field"]) == (422, "extend.num_tokens")
        status, reply = step(extend={"sequences": packed, "num_tokens": b"\0\0\0\0\6\0\0\0"})
        assert (status, reply["errors"][0]["field"]) == (422, "extend.num_tokens.0")
