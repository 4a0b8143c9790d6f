"""The recorded cases, value by value, over HTTP against a real server process."""

import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import ormsgpack
import pytest

from server_process import ServerProcess, running_server

DATA = Path(__file__).parent.parent / "data"
HASHING = json.loads((DATA / "hashing.json").read_text())["cases"]
SEQUENCES, KINDS = (json.loads((DATA / f"{name}.json").read_text()) for name in ("sequences", "kinds"))

Case = dict[str, Any]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server() as process:
        yield process


class Wire:
    """One kept connection, JSON or msgpack where the route takes it."""

    def __init__(self, server: ServerProcess, *, msgpack: bool = False) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        self._msgpack = msgpack

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        hot = self._msgpack and path.rsplit("/", 1)[1] in ("step", "allocate", "free", "lookup")
        media = "application/msgpack" if hot else "application/json"
        raw = ormsgpack.packb(as_bytes(body), option=ormsgpack.OPT_NON_STR_KEYS) if hot else json.dumps(body)
        self._connection.request(method, path, raw, {"Content-Type": media})
        reply = self._connection.getresponse()
        answer = reply.read()
        if reply.headers["Content-Type"] == "application/msgpack":
            return reply.status, ormsgpack.unpackb(answer)
        return reply.status, json.loads(answer)


def as_bytes(body: Any) -> Any:
    """The msgpack form of a JSON body: block hashes as bytes, handles as integers."""
    if isinstance(body, list):
        return [as_bytes(item) for item in body]
    if not isinstance(body, dict):
        return body
    plain: dict[str, Any] = {}
    for name, value in body.items():
        if name == "block_hashes" and isinstance(value, list):
            plain[name] = [bytes.fromhex(block_hash) for block_hash in value]
        elif name == "block_hashes":
            plain[name] = {int(key): [bytes.fromhex(h) for h in hashes] for key, hashes in value.items()}
        else:
            plain[name] = as_bytes(value)
    return plain


def hash_body(case: Case) -> Case:
    return {k: v for k, v in case.items() if k not in ("name", "expected", "appended_token_ids")}


@pytest.mark.parametrize("case", HASHING, ids=lambda case: case["name"])
def test_hashes_are_those_recorded(server: ServerProcess, case: Case) -> None:
    want = {k: v for k, v in case["expected"].items() if k != "block_hashes_after_append"}
    with Wire(server) as call:
        assert call("POST", "/v1/hash", hash_body(case)) == (200, want)


# These two were recorded without their adapter's key in the appended blocks: imitated, that would let
# tokens computed with one adapter be found under another. Strict: should they ever pass, this goes.
WITHOUT_ADAPTER = {"sha256_cbor-default-101-lora-bare", "sha256-default-104-lora-bare"}
GROWN = [
    pytest.param(
        case,
        id=case["name"],
        marks=[pytest.mark.xfail(strict=True, reason="recorded without the adapter's key")]
        if case["name"] in WITHOUT_ADAPTER
        else [],
    )
    for case in HASHING
    if "appended_token_ids" in case
]


@pytest.mark.parametrize("case", GROWN)
def test_hashes_of_grown_tokens_are_those_recorded(server: ServerProcess, case: Case) -> None:
    body = hash_body(case)
    body["token_ids"] = case["token_ids"] + case["appended_token_ids"]
    with Wire(server) as call:
        status, got = call("POST", "/v1/hash", body)
    assert status == 200
    assert got["block_hashes"] == case["expected"]["block_hashes_after_append"]


class SingleCalls:
    """Each recorded operation as the call of the same name."""

    def __init__(self, call: Wire, pool: str, lease_id: str) -> None:
        self._call = call
        self._pool = pool
        self._lease_id = lease_id

    def allocate(self, body: Case) -> Case:
        status, got = self._call("POST", f"{self._pool}/allocate", {"lease_id": self._lease_id, **body})
        if status == 200:
            return got  # type: ignore[no-any-return]
        assert status == 409
        return {"error": got["code"], "num_free_blocks": got["num_free_blocks"]}

    def free(self, body: Case) -> Case:
        sequence_ids = [body["sequence_id"]]
        status, got = self._call(
            "POST", f"{self._pool}/free", {"lease_id": self._lease_id, "sequence_ids": sequence_ids}
        )
        assert status == 200
        return got  # type: ignore[no-any-return]


class Steps(SingleCalls):
    """The same operations, each as one `step`."""

    def __init__(self, call: Wire, pool: str, lease_id: str) -> None:
        super().__init__(call, pool, lease_id)
        self._handles: dict[str, int] = {}
        self._computed: dict[str, int] = {}
        self._step_id = 0

    def _step(self, **parts: Any) -> Case:
        self._step_id += 1
        body = {"lease_id": self._lease_id, "step_id": self._step_id, **parts}
        status, got = self._call("POST", f"{self._pool}/step", body)
        assert status == 200, got
        assert self._call("POST", f"{self._pool}/step", body) == (200, got), (
            "a repeated step gets its reply again"
        )
        return got  # type: ignore[no-any-return]

    def allocate(self, body: Case) -> Case:
        sequence_id = body["sequence_id"]
        if sequence_id not in self._handles:
            got = self._step(admit=[body])
            admitted = got["admit"][0]
            if "code" in admitted:
                return {"error": admitted["code"], "num_free_blocks": got["num_free_blocks"]}
            self._handles[sequence_id] = admitted["sequence"]
            self._computed[sequence_id] = admitted["num_cached_tokens"] + admitted["num_new_tokens"]
            return {**admitted, "num_free_blocks": got["num_free_blocks"], "copies": got["copies"]}
        handle, computed = self._handles[sequence_id], self._computed[sequence_id]
        num_new = min(body["num_tokens"] - computed, body["max_new_tokens"])
        extend: dict[str, Any] = {"sequences": [handle], "num_tokens": [computed + num_new]}
        extend["num_lookahead_tokens"] = body.get("num_lookahead_tokens", 0)
        extend["block_hashes"] = {str(handle): body["block_hashes"]}
        got = self._step(extend=extend)
        if got["extend"]["insufficient"]:
            assert got["extend"]["insufficient"] == [handle]
            return {"error": "insufficient_blocks", "num_free_blocks": got["num_free_blocks"]}
        self._computed[sequence_id] += num_new
        return {
            "num_new_tokens": num_new,
            "block_ids": got["extend"]["block_ids"][0],
            "num_free_blocks": got["num_free_blocks"],
            "copies": got["copies"],
        }

    def free(self, body: Case) -> Case:
        handle = self._handles.pop(body["sequence_id"], None)
        return self._step(free={"sequences": [] if handle is None else [handle]})


@pytest.mark.parametrize("msgpack", [False, True], ids=["json", "msgpack"])
@pytest.mark.parametrize("driver", [SingleCalls, Steps])
@pytest.mark.parametrize("case", SEQUENCES + KINDS, ids=lambda case: case["name"])
def test_sequences_get_the_blocks_recorded(
    server: ServerProcess, case: Case, driver: Callable[[Wire, str, str], SingleCalls], msgpack: bool
) -> None:
    pool = f"/v1/pools/{case['name']}-{driver.__name__}-{msgpack}"
    with Wire(server, msgpack=msgpack) as call:
        assert call("PUT", pool, case["pool"])[0] == 201
        lease = call("POST", f"{pool}/leases", {"holder": "recorded", "ttl_ms": 600_000})[1]["lease_id"]
        drive = driver(call, pool, lease)
        for number, recorded in enumerate(case["ops"]):
            want = dict(recorded["expected"])
            table = want.pop("table", None)
            body = {k: v for k, v in recorded.items() if k not in ("op", "expected")}
            if recorded["op"] in ("allocate", "free"):
                got = getattr(drive, recorded["op"])(body)
            else:
                got = call("POST", f"{pool}/{recorded['op']}", body)[1]
            assert {name: got.get(name) for name in want} == want, f"operation {number}: {recorded}"
            if table is not None:
                assert call("GET", f"{pool}/sequences/{body['sequence_id']}")[1]["block_ids"] == table
        audit = call("GET", f"{pool}/audit")[1]
        assert audit["ok"], audit["problems"]
        assert call("DELETE", f"{pool}/leases/{lease}", {})[0] == 200
        assert call("GET", f"{pool}/stats")[1]["num_free_blocks"] == case["pool"]["num_blocks"] - 1
        assert call("DELETE", pool)[0] == 200
