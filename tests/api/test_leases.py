"""Leases, raw blocks, idempotency keys: who holds what, for how long, and what a repeat gets."""

import time

from api.support import make_api, make_lease, make_pool


def test_a_lease_is_told_when_it_ends() -> None:
    with make_api() as api:
        pool = make_pool(api)
        before_ms = time.time() * 1000
        granted = api.post(f"{pool}/leases", json={"holder": "test", "ttl_ms": 5_000}).json()
    assert granted["epoch"] == 1
    assert granted["ttl_ms"] == 5_000
    assert before_ms - 2 <= granted["expires_at_ms"] - 5_000 <= time.time() * 1000 + 2


def test_leases_of_one_holder_are_told_apart() -> None:
    with make_api() as api:
        pool = make_pool(api)
        assert make_lease(api, pool) != make_lease(api, pool)


def test_renewing_moves_the_end() -> None:
    with make_api() as api:
        pool = make_pool(api)
        granted = api.post(f"{pool}/leases", json={"holder": "test", "ttl_ms": 5_000}).json()
        time.sleep(0.01)
        renewed = api.post(f"{pool}/leases/{granted['lease_id']}/renew").json()
    assert renewed["expires_at_ms"] > granted["expires_at_ms"]


def test_deleting_a_lease_frees_all_it_holds() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        api.post(f"{pool}/allocate", json={"lease_id": lease, "sequence_id": "s", "num_tokens": 8})
        api.post(f"{pool}/blocks/allocate", json={"lease_id": lease, "num_blocks": 3})
        assert api.delete(f"{pool}/leases/{lease}").json() == {
            "epoch": 1,
            "num_freed_sequences": 1,
            "num_freed_blocks": 5,
        }
        assert api.get(f"{pool}/stats").json()["num_free_blocks"] == 9
        assert api.delete(f"{pool}/leases/{lease}").json()["code"] == "lease_expired"


def test_what_a_lease_holds_comes_back_when_it_runs_out() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool, ttl_ms=50)
        api.post(f"{pool}/allocate", json={"lease_id": lease, "sequence_id": "s", "num_tokens": 8})
        deadline = time.monotonic() + 5
        while api.get(f"{pool}/stats").json()["num_leases"] and time.monotonic() < deadline:
            time.sleep(0.01)
        stats = api.get(f"{pool}/stats").json()
        assert (stats["num_free_blocks"], stats["num_sequences"], stats["num_leases"]) == (9, 0, 0)
        assert stats["counters"]["num_expired_leases"] == 1
        late = api.post(f"{pool}/allocate", json={"lease_id": lease, "sequence_id": "s", "num_tokens": 8})
        assert (late.status_code, late.json()["code"]) == (410, "lease_expired")


def test_any_call_under_a_lease_renews_it() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool, ttl_ms=2_000)
        for _ in range(6):
            time.sleep(0.4)
            assert api.post(f"{pool}/free", json={"lease_id": lease, "sequence_ids": []}).status_code == 200


def test_raw_blocks_are_the_leases_alone() -> None:
    with make_api() as api:
        pool = make_pool(api)
        owner, other = make_lease(api, pool), make_lease(api, pool)
        blocks = api.post(f"{pool}/blocks/allocate", json={"lease_id": owner, "num_blocks": 3}).json()[
            "block_ids"
        ]
        assert blocks == [1, 2, 3]
        refused = api.post(f"{pool}/blocks/free", json={"lease_id": other, "block_ids": [1]})
        assert refused.json()["code"] == "not_owner"
        freed = api.post(f"{pool}/blocks/free", json={"lease_id": owner, "block_ids": blocks}).json()
        assert freed == {"epoch": 1, "num_freed_blocks": 3, "num_free_blocks": 9}


def test_one_bad_block_frees_none() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        api.post(f"{pool}/blocks/allocate", json={"lease_id": lease, "num_blocks": 3})
        for bad, code in (([1, 2, 2], "double_free"), ([1, 5], "double_free"), ([1, 0], "not_owner")):
            reply = api.post(f"{pool}/blocks/free", json={"lease_id": lease, "block_ids": bad})
            assert reply.json()["code"] == code
            assert api.get(f"{pool}/stats").json()["num_held_blocks"] == 3
        huge = api.post(f"{pool}/blocks/free", json={"lease_id": lease, "block_ids": [1, 2**31 - 1]})
        assert huge.json()["code"] == "not_owner"


def test_a_sequences_blocks_cannot_be_freed_as_raw_ones() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        api.post(f"{pool}/allocate", json={"lease_id": lease, "sequence_id": "s", "num_tokens": 8})
        reply = api.post(f"{pool}/blocks/free", json={"lease_id": lease, "block_ids": [1]})
        assert reply.json()["code"] == "not_owner"


def test_a_repeat_under_one_key_gets_the_first_reply_and_is_done_once() -> None:
    with make_api() as api:
        pool = make_pool(api)
        ask = {"lease_id": make_lease(api, pool), "num_blocks": 2}
        first, again = (
            api.post(f"{pool}/blocks/allocate", json=ask, headers={"Idempotency-Key": "k"}) for _ in range(2)
        )
        assert first.json() == again.json()
        assert api.get(f"{pool}/stats").json()["num_held_blocks"] == 2


def test_a_refusal_is_repeated_as_well() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        ask = {"lease_id": lease, "num_blocks": 10}
        first = api.post(f"{pool}/blocks/allocate", json=ask, headers={"Idempotency-Key": "k"})
        again = api.post(f"{pool}/blocks/allocate", json=ask, headers={"Idempotency-Key": "k"})
    assert first.status_code == 409
    assert again.json() == first.json()


def test_a_key_belongs_to_its_lease() -> None:
    with make_api() as api:
        pool = make_pool(api)
        for _ in range(2):
            api.post(
                f"{pool}/blocks/allocate",
                json={"lease_id": make_lease(api, pool), "num_blocks": 2},
                headers={"Idempotency-Key": "k"},
            )
        assert api.get(f"{pool}/stats").json()["num_held_blocks"] == 4


def test_another_request_under_a_used_key_is_refused() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        headers = {"Idempotency-Key": "k"}
        api.post(f"{pool}/blocks/allocate", json={"lease_id": lease, "num_blocks": 2}, headers=headers)
        reply = api.post(
            f"{pool}/blocks/allocate", json={"lease_id": lease, "num_blocks": 3}, headers=headers
        )
        assert reply.json()["errors"][0]["field"] == "idempotency_key"
        assert api.get(f"{pool}/stats").json()["num_held_blocks"] == 2


def test_a_lease_asked_for_twice_under_one_key_is_one_lease() -> None:
    with make_api() as api:
        pool = make_pool(api)
        body = {"holder": "test", "ttl_ms": 5_000}
        first, again = (
            api.post(f"{pool}/leases", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2)
        )
        assert first.status_code == again.status_code == 201
        assert first.json()["lease_id"] == again.json()["lease_id"]
        assert api.get(f"{pool}/stats").json()["num_leases"] == 1


def test_an_endless_key_is_refused() -> None:
    with make_api() as api:
        pool = make_pool(api)
        body = {"holder": "test", "ttl_ms": 5_000}
        reply = api.post(f"{pool}/leases", json=body, headers={"Idempotency-Key": "k" * 257})
    assert reply.json()["errors"][0]["field"] == "idempotency_key"


def test_renewals_do_not_push_out_what_is_remembered() -> None:
    with make_api() as api:
        pool = make_pool(api)
        lease = make_lease(api, pool)
        ask = {"lease_id": lease, "num_blocks": 2}
        first = api.post(f"{pool}/blocks/allocate", json=ask, headers={"Idempotency-Key": "k"})
        for number in range(300):
            api.post(f"{pool}/leases/{lease}/renew", headers={"Idempotency-Key": f"renewal {number}"})
        again = api.post(f"{pool}/blocks/allocate", json=ask, headers={"Idempotency-Key": "k"})
    assert again.json() == first.json()


def test_large_replies_are_remembered_only_up_to_a_bound() -> None:
    with make_api() as api:
        pool = make_pool(api, num_blocks=20_000)
        lease = make_lease(api, pool)
        for number in range(4):
            ask = {"lease_id": lease, "num_blocks": 9_000}
            key = {"Idempotency-Key": f"k{number}"}
            blocks = api.post(f"{pool}/blocks/allocate", json=ask, headers=key).json()["block_ids"]
            again = api.post(f"{pool}/blocks/allocate", json=ask, headers=key)
            assert again.json()["block_ids"] == blocks
            api.post(f"{pool}/blocks/free", json={"lease_id": lease, "block_ids": blocks})
        snapshot = next(iter(api.app.pools))[1].snapshot()  # type: ignore[attr-defined]
    assert len(snapshot["leases"][0]["replies"]) == 1
