"""What schemathesis loads before it runs: msgpack, prepared pools and leases, a check of ours, and a tally.

``BLOCKYARD_FUZZED_URL`` names the server, ``BLOCKYARD_FUZZED_TALLY`` the file for the tally: how often each
operation answered which status.
"""

import atexit
import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import ormsgpack
import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, Response
from schemathesis.checks import CheckContext
from schemathesis.core.failures import Failure
from schemathesis.openapi.checks import AllowHeaderMismatch, EnsureResourceAvailability, UseAfterFree

from blockyard.core.errors import InvalidRequest
from blockyard.server.hash_limit import HashLimit
from blockyard.server.media import JSON, MSGPACK, BodyReader
from blockyard.server.pool_calls import POOL_CALLS
from blockyard.server.settings import MAX_PREFIXES, MAX_TOKENS
from fuzz.prepared import POOLS, WORKER, Prepared
from fuzz.telling_bodies import BODIES, LEASE, PIN

KNOWN = {"lease_id": LEASE, "pin_id": PIN, "worker_id": WORKER}
SPENT = {"lease_expired", "stale_epoch", "insufficient_blocks", "sequence_not_found"}
"""Codes that say of a prepared lease that it leads nowhere any more."""

prepared = Prepared(os.environ["BLOCKYARD_FUZZED_URL"])
prepared.make()
tally: Counter[str] = Counter()
readers = {
    (call.method, f"/v1/pools/{{pool}}{call.path}"): BodyReader(
        call.body, takes_msgpack=call.is_hot, check_faults=HashLimit(MAX_TOKENS, MAX_PREFIXES).check_faults
    )
    for call in POOL_CALLS
}


@atexit.register
def write_tally() -> None:
    Path(os.environ["BLOCKYARD_FUZZED_TALLY"]).write_text(json.dumps(tally, indent=1, sort_keys=True))


@schemathesis.serializer(MSGPACK)
def to_msgpack(_: Any, value: Any) -> bytes:
    """``value`` as our clients write it: hashes are bytes, and handles integers, also as names."""
    return ormsgpack.packb(_as_msgpack(value), option=ormsgpack.OPT_NON_STR_KEYS)


@schemathesis.deserializer(MSGPACK)
def from_msgpack(_: Any, response: Response) -> Any:
    return ormsgpack.unpackb(response.content)


@schemathesis.hook
def map_body(_: Any, body: Any) -> Any:
    """Integers as integers: to JSON Schema 3.0 is one, to us a fraction of tokens."""
    return _integers(body)


@schemathesis.hook
def flatmap_case(_: Any, case: Case[Any]) -> st.SearchStrategy[Case[Any]]:
    """Two of three requests that are right get somewhere: by their bodies, and by what their paths name."""
    bodies = BODIES.get(case.operation.label)
    if bodies is None or case.meta is None or not case.meta.generation.mode.is_positive:
        return st.just(case)

    def told(body: dict[str, Any]) -> Case[Any]:
        case.body = body
        path = case.path_parameters
        if path.get("pool") not in POOLS and case.method != "PUT" and path:
            path["pool"] = "plain"
        path.update({name: known for name, known in KNOWN.items() if name in path})
        return case

    return st.one_of(st.just(case), bodies.map(told), bodies.map(told))


@schemathesis.hook
def before_call(_: Any, case: Case[Any], __: dict[str, Any]) -> None:
    """Put the prepared lease or pin in where it is named."""
    lease = prepared.leases.get(case.path_parameters.get("pool", ""), LEASE)
    if isinstance(case.body, dict) and case.body.get("lease_id") == LEASE:
        case.body["lease_id"] = lease
    if case.path_parameters.get("lease_id") == LEASE:
        case.path_parameters["lease_id"] = lease
    if case.path_parameters.get("pin_id") == PIN:
        case.path_parameters["pin_id"] = prepared.pins.get(case.path_parameters.get("pool", ""), PIN)


@schemathesis.hook
def after_call(_: Any, case: Case[Any], response: Response) -> None:
    """Count, and make ready again what is spent."""
    tally[f"{case.operation.label} {response.status_code}"] += 1
    pool = case.path_parameters.get("pool", "")
    if pool not in POOLS:
        return
    told = case.body if isinstance(case.body, dict) else case.path_parameters
    is_gone = case.method == "DELETE" and response.status_code == 200
    is_spent = told.get("lease_id") == prepared.leases[pool] and _code(response) in SPENT
    is_displaced = _code(response) == "worker_not_found" and case.path_parameters.get("worker_id") == WORKER
    is_unpinned = (
        case.path_parameters.get("pin_id") == prepared.pins[pool] and _code(response) == "pin_not_found"
    )
    if is_gone or is_spent or is_displaced or is_unpinned:
        prepared.renew(pool)


@schemathesis.hook
def filter_failure(_: Any, failure: Failure, case: Case[Any], __: Response) -> bool:
    """Let pass what is meant.

    ``workers/x/heartbeat`` is also a worker's name, and may be deleted. A tenant whose quota was taken back
    is there still. And of workers, the one that is asked for need not be the one that registered: names are
    drawn from a dictionary.
    """
    if isinstance(failure, UseAfterFree):
        return "/tenants/" not in failure.free
    if isinstance(failure, EnsureResourceAvailability):
        return "/workers/" not in failure.not_available_with
    if not case.path.endswith("/heartbeat"):
        return True
    is_refused = failure.title == "Wrong response to undeclared method" and case.method == "DELETE"
    is_allowed = isinstance(failure, AllowHeaderMismatch) and (
        (failure.missing_methods, failure.undocumented_methods) == ([], ["DELETE"])
    )
    return not (is_refused or is_allowed)


@schemathesis.check
def what_the_schema_allows_is_read(_: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Where a body of the schema's is refused, it was read, and refused for what the pool is."""
    reader = readers.get((case.method, case.path))
    if (
        reader is None
        or case.meta is None
        or not case.meta.generation.mode.is_positive
        or response.status_code != 422
    ):
        return None
    request = response.request
    raw = request.body or b"{}"
    assert isinstance(raw, (bytes, str))
    media_type = str(request.headers.get("Content-Type", JSON))
    try:
        reader.read(raw.encode() if isinstance(raw, str) else raw, {b"content-type": media_type.encode()})
    except InvalidRequest as error:
        raise AssertionError(f"a body of the schema's is not read: {error}") from None
    return None


def _code(response: Response) -> str:
    try:
        return str(response.json()["code"])
    except (ValueError, KeyError, TypeError):
        return ""


def _integers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _integers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_integers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_msgpack(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {
            int(key)
            if name in ("block_hashes", "token_ids", "event_token_ids") and key.isdecimal()
            else key: _as_msgpack(part, name if name == "block_hashes" else key)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [_as_msgpack(part, name) for part in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 2**1000 else math.inf  # which msgpack does not have
    if name == "block_hashes" and isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError:
            return value
    return value
