"""Forks over HTTP."""

from fastapi.testclient import TestClient

from api.support import make_api, make_lease, make_pool


def start(api: TestClient) -> tuple[str, str]:
    """A pool and a lease, which has "a" of six tokens in blocks of four."""
    pool = make_pool(api)
    lease = make_lease(api, pool)
    ask = {"lease_id": lease, "sequence_id": "a", "num_tokens": 6}
    assert api.post(f"{pool}/allocate", json=ask).json()["block_ids"] == [[1, 2]]
    return pool, lease


def test_forks_are_told_their_tables_and_replies_which_entry_became_which_block() -> None:
    with make_api() as api:
        pool, lease = start(api)
        ask = {"lease_id": lease, "sequence_id": "a", "new_sequence_ids": ["b", "c"]}
        assert api.post(f"{pool}/fork", json=ask).json() == {
            "epoch": 1,
            "sequences": [2, 3],
            "block_ids": [[[1, 2]], [[1, 2]]],
            "num_computed_tokens": 6,
            "num_committed_tokens": 0,
            "copies": [],
            "num_free_blocks": 7,
        }
        longer = {"lease_id": lease, "sequence_id": "b", "num_tokens": 9}
        assert api.post(f"{pool}/allocate", json=longer).json() == {
            "epoch": 1,
            "sequence": 2,
            "num_new_tokens": 3,
            "block_ids": [[4]],
            "copies": [[2, 3]],
            "num_free_blocks": 5,
            "replaced": [[2, 0, 1, 3]],
        }
        step = {"lease_id": lease, "extend": {"sequences": [1, 3], "num_tokens": [7, 7]}}
        stepped = api.post(f"{pool}/step", json=step).json()
        assert (stepped["copies"], stepped["replaced"]) == ([[2, 5]], [[1, 0, 1, 5]])
        assert "replaced" not in api.post(f"{pool}/step", json=step).json()
        ids = {"lease_id": lease, "sequence_ids": ["a", "b", "c"]}
        assert api.post(f"{pool}/free", json=ids).json()["num_free_blocks"] == 9
        assert api.get(f"{pool}/stats").json()["counters"]["num_forked_sequences"] == 2


def test_a_repeat_under_the_same_key_forks_once() -> None:
    with make_api() as api:
        pool, lease = start(api)
        ask = {"lease_id": lease, "sequence_id": "a", "new_sequence_ids": ["b"]}
        first, again = (
            api.post(f"{pool}/fork", json=ask, headers={"Idempotency-Key": "k"}).json() for _ in range(2)
        )
        assert first == again
        assert api.get(f"{pool}/stats").json()["num_sequences"] == 2
        assert api.post(f"{pool}/fork", json=ask).json()["code"] == "invalid_request"


def test_forks_count_among_the_sequences_that_a_tenant_may_have() -> None:
    with make_api(max_sequences_per_tenant=3) as api:
        pool, lease = start(api)
        ask = {"lease_id": lease, "sequence_id": "a", "new_sequence_ids": ["b", "c", "d"]}
        refused = api.post(f"{pool}/fork", json=ask)
        assert (refused.status_code, refused.json()["code"]) == (429, "limit_exceeded")
        assert api.post(f"{pool}/fork", json={**ask, "new_sequence_ids": ["b", "c"]}).status_code == 200
