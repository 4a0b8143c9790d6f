"""Sending a call to a server that may be killed meanwhile: the same bytes and key until it is answered."""

import itertools
import json
import time
from typing import Any, NamedTuple

from blockyard.client.errors import ConnectionLost
from blockyard.client.lean import LeanTransport
from blockyard.client.wire import Request, Response
from crash.calls import READS, Answer, Call, Verb

TIMEOUT_S = 60.0
PAUSE_S = 0.01
NOT_READY = 503


class Tried(NamedTuple):
    """The try of this ``number``, from 1, was answered."""

    response: Response
    origin: str
    number: int
    began_ns: int


class Sender:
    """To the server at ``url``, by one thread; with ``token``, if there is one."""

    def __init__(self, url: str, token: str = "") -> None:
        self._url = url
        self._bearing = {"Authorization": f"Bearer {token}"} if token else {}
        self._transport = LeanTransport()

    def send(self, call: Call) -> Answer:
        """The answer of a try that has one. Raises as `exchange` where there was none for `TIMEOUT_S`."""
        tried = self._until_answered(self._request(call))
        ownership = tried.response.headers.get("blockyard-ownership")
        return Answer(
            number=call.number,
            status=tried.response.status,
            num_tries=tried.number,
            body=_body(tried.response),
            tried_ns=tried.began_ns,
            at_ns=time.monotonic_ns(),
            node=tried.origin,
            ownership=None if ownership is None else int(ownership),
        )

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and body of a read."""
        return self._plain(Request("GET", self._url, path, self._bearing))

    def put(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body of a ``PUT``."""
        return self._write("PUT", path, body)

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body of a ``POST``, which has no key."""
        return self._write("POST", path, body)

    def exchange(self, request: Request) -> tuple[Response, str]:
        """A try: what was answered, and by whom.

        Raises:
            ConnectionLost: Nothing was.
        """
        return self._transport.send(request, TIMEOUT_S), request.origin

    def close(self) -> None:
        self._transport.close()

    def _write(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        headers = {"Content-Type": "application/json", **self._bearing}
        return self._plain(Request(method, self._url, path, headers, json.dumps(body).encode()))

    def _plain(self, request: Request) -> tuple[int, dict[str, Any]]:
        response = self._until_answered(request).response
        return response.status, _body(response)

    def _until_answered(self, request: Request) -> Tried:
        deadline_s = time.monotonic() + TIMEOUT_S
        for number in itertools.count(1):
            began_ns = time.monotonic_ns()
            try:
                response, origin = self.exchange(request)
            except ConnectionLost:
                if time.monotonic() > deadline_s:
                    raise
            else:
                if response.status != NOT_READY or time.monotonic() > deadline_s:
                    return Tried(response, origin, number, began_ns)
            time.sleep(PAUSE_S)
        raise AssertionError("it counts without end")

    def _request(self, call: Call) -> Request:
        pool = f"/v1/pools/{call.pool}"
        if call.verb is Verb.RELEASE:
            return Request("DELETE", self._url, f"{pool}/leases/{call.lease_id}", self._bearing)
        if call.verb is Verb.READ:
            return Request("GET", self._url, f"{pool}/sequences/{call.body['sequence_id']}", self._bearing)
        headers = {"Content-Type": "application/json", **self._bearing}
        if call.verb not in READS:
            headers["Idempotency-Key"] = call.key
        body = json.dumps(call.body, separators=(",", ":")).encode()
        return Request("POST", self._url, f"{pool}/{call.verb}", headers, body)


def _body(response: Response) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(response.body)
    return document
