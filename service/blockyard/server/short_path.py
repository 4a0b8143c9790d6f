"""The short path of the hot calls: from the HTTP parser to the pool and back, without ASGI in between.

A call that arrives whole in one packet is done within the callback that brought it, and answered at the end
of that turn of the loop: no task, no scope, no router. What it may do and how it is told is the same as on
the long path, since the gate, the handlers and the journal are the same. All that is out of the ordinary
takes the long path: large bodies, slow senders, pipelined requests, other HTTP versions, readers that do not
read, calls that wait for blocks.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from blockyard.core.errors import BlockyardError, NotReady, RequestTimeout
from blockyard.server.access.authenticator import Authenticator
from blockyard.server.access.rules import Rule, rule_of
from blockyard.server.gate import Gate, Visit
from blockyard.server.media import Answer, header_lines, render_error
from blockyard.server.pool_call_handler import POOLS_PATH, PoolCallHandler
from blockyard.server.pool_journal import PoolJournal
from blockyard.server.waiting_rooms import HasToWait

MAX_KNOWN_CALLS = 4_096
"""URLs whose meaning is remembered: one a pool and hot route."""

MAX_URL_BYTES = 256
"""Of those; the longest name of a pool has 128."""

_POOLS_PATH = POOLS_PATH.encode()


Send: TypeAlias = Callable[[Answer], None]
"""Sends an answer over the connection that the call came by."""


class ShortCall(NamedTuple):
    """What a URL stands for, and what it asks of whoever calls it."""

    handler: PoolCallHandler
    rule: Rule
    path: str
    path_params: Mapping[str, str]


class ShortPath:
    """Does hot calls at once, and sends the answers of a turn of the loop together.

    Args:
        handlers: By the last part of their path.
        gate: Lets requests in, and counts them.
        authenticator: Knows who asks.
        journal: No answer may be sent before it has written down what the call did.
        max_body_bytes: Larger bodies are refused, by the long path.
        request_timeout_s: How long an answer may wait for the journal.
    """

    def __init__(
        self,
        handlers: Mapping[str, PoolCallHandler],
        gate: Gate,
        authenticator: Authenticator,
        journal: PoolJournal,
        *,
        max_body_bytes: int,
        request_timeout_s: int,
    ) -> None:
        self._handlers = {
            name: (handler, rule_of("POST", handler.path_format)) for name, handler in handlers.items()
        }
        self._gate = gate
        self._authenticator = authenticator
        self._journal = journal
        self._known: dict[bytes, ShortCall] = {}
        self._outbox: list[tuple[Send, Visit, Answer]] = []
        self._headers: list[tuple[bytes, bytes]] = []
        self._header_lines = b""
        self.max_body_bytes = max_body_bytes
        self._request_timeout_s = request_timeout_s

    def find(self, url: bytes) -> ShortCall | None:
        """The hot call that a POST to ``url`` is; None for all else."""
        known = self._known.get(url)
        if known is None and self._may_be_hot(url):
            pool, _, name = url[len(_POOLS_PATH) :].decode("latin-1").partition("/")
            found = self._handlers.get(name)
            if found is not None:
                if len(self._known) >= MAX_KNOWN_CALLS:
                    self._known.clear()
                path = f"{POOLS_PATH}{pool}/{name}"
                known = self._known[url] = ShortCall(*found, path, {"pool": pool})
        return known

    @staticmethod
    def _may_be_hot(url: bytes) -> bool:
        is_plain = len(url) <= MAX_URL_BYTES and b"%" not in url and b"?" not in url
        return is_plain and url.startswith(_POOLS_PATH)

    def answer(
        self, call: ShortCall, sent: Sequence[tuple[bytes, bytes]], body: bytes
    ) -> tuple[Visit, Answer] | None:
        """Do a call that came with the headers ``sent``. Its answer is to be posted; None: it has to wait."""
        visit = self._gate.enter("POST", call.path)
        try:
            self._gate.check(visit)
            self._gate.turn.take(visit.began_ns)
            visit.route = call.handler.path_format
            principal = self._authenticator.principal(sent)
            visit.token_id = principal.token_id
            call.rule.check(principal, call.path_params["pool"])
            answer = call.handler.answer(call.path, call.path_params, dict(sent), body, principal.tenant)
        except HasToWait:  # on the long path
            self._gate.forget()
            return None
        except BlockyardError as error:
            answer = render_error(error)
        except Exception as error:  # noqa: BLE001 - it is logged
            answer = self._gate.failed(visit, error)
        return visit, answer

    def post(self, send: Send, visit: Visit, answer: Answer) -> None:
        """Have ``answer`` sent at the end of this turn of the loop, or once all is written down.

        All answers of a turn go out one after the other: whoever waits for them is woken once.
        """
        self._outbox.append((send, visit, answer))
        if len(self._outbox) == 1:
            asyncio.get_running_loop().call_soon(self._empty_outbox)

    def lines_of(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """As `header_lines`, of the server's own headers: a new list whenever there is a new second."""
        if headers is not self._headers:
            self._headers, self._header_lines = headers, header_lines(headers)
        return self._header_lines

    def _empty_outbox(self) -> None:
        letters, self._outbox = self._outbox, []
        settling = self._journal.settling
        if settling is None:
            self._deliver(letters)
        else:
            loop = asyncio.get_running_loop()
            late = loop.call_later(self._request_timeout_s, self._give_up, letters)

            def settled(_: object) -> None:
                late.cancel()
                self._deliver(letters)

            settling.add_done_callback(settled)

    def _give_up(self, letters: list[tuple[Send, Visit, Answer]]) -> None:
        """The journal takes too long: nobody waits for it any more, and what it comes to is not known."""
        timeout_s = self._request_timeout_s
        late = render_error(RequestTimeout.of("request_timeout_s", timeout_s, "nothing was written down"))
        self._send([(send, visit, late) for send, visit, _ in letters])
        letters.clear()

    def _deliver(self, letters: list[tuple[Send, Visit, Answer]]) -> None:
        try:
            self._journal.check_sound()
        except NotReady as error:  # whether they were written down is not known
            withdrawn = render_error(error)
            letters = [(send, visit, withdrawn) for send, visit, _ in letters]
        self._send(letters)

    def _send(self, letters: list[tuple[Send, Visit, Answer]]) -> None:
        for send, visit, answer in letters:
            self._gate.leave(visit, answer.status)
            send(answer)
