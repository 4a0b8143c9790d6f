"""Sending a call to a server that may be killed meanwhile: the same bytes and key until it is answered."""

import json
import time
from typing import Any

from blockyard.client.errors import ConnectionLost
from blockyard.client.lean import LeanTransport
from blockyard.client.wire import Request, Response
from crash.calls import Answer, Call, Verb

TIMEOUT_S = 60.0
PAUSE_S = 0.01
NOT_READY = 503


class Sender:
    """To the server at ``url``, by one thread; with ``token``, if there is one."""

    def __init__(self, url: str, token: str = "") -> None:
        self._url = url
        self._bearing = {"Authorization": f"Bearer {token}"} if token else {}
        self._transport = LeanTransport()

    def send(self, call: Call) -> Answer:
        """The answer of a try that has one.

        Raises:
            ConnectionLost: There was none for `TIMEOUT_S`.
        """
        request = self._request(call)
        deadline_s = time.monotonic() + TIMEOUT_S
        num_tries = 0
        while True:
            num_tries += 1
            try:
                response = self._transport.send(request, TIMEOUT_S)
            except ConnectionLost:
                if time.monotonic() > deadline_s:
                    raise
            else:
                if response.status != NOT_READY or time.monotonic() > deadline_s:
                    return Answer(
                        number=call.number, status=response.status, num_tries=num_tries, body=_body(response)
                    )
            time.sleep(PAUSE_S)

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and body of a read."""
        response = self._transport.send(Request("GET", self._url, path, self._bearing), TIMEOUT_S)
        return response.status, _body(response)

    def put(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body of a ``PUT``."""
        headers = {"Content-Type": "application/json", **self._bearing}
        response = self._transport.send(
            Request("PUT", self._url, path, headers, json.dumps(body).encode()), TIMEOUT_S
        )
        return response.status, _body(response)

    def close(self) -> None:
        self._transport.close()

    def _request(self, call: Call) -> Request:
        pool = f"/v1/pools/{call.pool}"
        if call.verb is Verb.RELEASE:
            return Request("DELETE", self._url, f"{pool}/leases/{call.lease_id}", self._bearing)
        headers = {"Content-Type": "application/json", "Idempotency-Key": call.key, **self._bearing}
        body = json.dumps(call.body, separators=(",", ":")).encode()
        return Request("POST", self._url, f"{pool}/{call.verb}", headers, body)


def _body(response: Response) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(response.body)
    return document
