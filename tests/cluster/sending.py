"""Sending calls to a cluster: to any node, on to where it points, and to another where nobody answers.

It takes whatever it is answered, from whomever: a guard of its own against older owners would hide one.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from blockyard.client.errors import ConnectionLost
from blockyard.client.wire import Request, Response
from crash.sending import NOT_READY, Sender

TRY_S = 1.5
"""For one try: longer than what a busy machine takes, and not much more, as a paused node says nothing."""
WANDERING_TRY_S = 0.3
"""For one that may come to a node that is not there: it goes on to another soon."""
MAX_REDIRECTS = 4
REDIRECT = 307


class ClusterSender(Sender):
    """To the nodes at ``urls``, by one thread. A write goes where the last of its pool was answered.

    ``wanders``: reads go to a node that is drawn, and are answered wherever it points.
    """

    def __init__(self, urls: Sequence[str], token: str = "", *, seed: int = 0, wanders: bool = False) -> None:
        super().__init__(urls[0], token)
        self._urls = tuple(urls)
        self._draw = random.Random(seed)
        self._wanders = wanders
        self._owners: dict[str, str] = {}

    def exchange(self, request: Request) -> tuple[Response, str]:
        """A try, with the redirects on its way."""
        pool = request.target.split("/")[3] if request.target.startswith("/v1/pools/") else ""
        origin, timeout_s = self._owners.get(pool), TRY_S
        if origin is None or (self._wanders and request.method == "GET"):
            origin, timeout_s = self._draw.choice(self._urls), WANDERING_TRY_S
        try:
            for _ in range(MAX_REDIRECTS):
                response = self._transport.send(replace(request, origin=origin), timeout_s)
                if response.status != REDIRECT:
                    break
                parts = urlsplit(response.headers["location"])
                origin, timeout_s = f"{parts.scheme}://{parts.netloc}", TRY_S
        except ConnectionLost:
            self._owners.pop(pool, None)
            raise
        if response.status in (REDIRECT, NOT_READY):
            self._owners.pop(pool, None)
            return replace(response, status=NOT_READY), origin
        self._owners[pool] = origin
        return response, origin
