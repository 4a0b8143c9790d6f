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
        origin = self._owners.get(pool) or self._draw.choice(self._urls)
        if self._wanders and request.method == "GET":
            origin = self._draw.choice(self._urls)
        try:
            for _ in range(MAX_REDIRECTS):
                response = self._transport.send(replace(request, origin=origin), TRY_S)
                if response.status != REDIRECT:
                    break
                parts = urlsplit(response.headers["location"])
                origin = f"{parts.scheme}://{parts.netloc}"
        except ConnectionLost:
            self._owners.pop(pool, None)
            raise
        if response.status in (REDIRECT, NOT_READY):
            self._owners.pop(pool, None)
            return replace(response, status=NOT_READY), origin
        self._owners[pool] = origin
        return response, origin
