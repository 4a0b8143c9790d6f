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
from blockyard.server.pool_journal import Commit, PoolJournal
from blockyard.server.waiting_rooms import HasToWait

MAX_KNOWN_CALLS = 4_096
"""URLs whose meaning is remembered: one a pool and hot route."""

MAX_URL_BYTES = 256
"""Of those; the longest name of a pool has 128."""

_POOLS_PATH = POOLS_PATH.encode()


Send: TypeAlias = Callable[[Answer], None]
"""Sends an answer over the connection that the call came by."""


class Letter(NamedTuple):
    """An answer on its way."""

    send: Send
    visit: Visit
    answer: Answer


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
        is_here: Whether the pool of a name is this server's; calls to others take the long path.
        max_body_bytes: Larger bodies are refused, by the long path.
        request_timeout_s: How long an answer may wait for the journal.
    """

    def __init__(
        self,
        handlers: Mapping[str, PoolCallHandler],
        gate: Gate,
        authenticator: Authenticator,
        journal: PoolJournal,
        is_here: Callable[[str], bool],
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
        self._is_here = is_here
        self._known: dict[bytes, ShortCall] = {}
        self._outbox: dict[Commit, list[Letter]] = {}
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
    ) -> tuple[Visit, Answer, Commit] | None:
        """Do a call that came with the headers ``sent``. Its answer is to be posted; None: it has to wait."""
        pool = call.path_params["pool"]
        if not self._is_here(pool):
            return None
        visit = self._gate.enter("POST", call.path)
        commit = self._journal.commit(pool)
        try:
            self._gate.check(visit)
            self._gate.turn.take(visit.began_ns)
            visit.route = call.handler.path_format
            principal = self._authenticator.principal(sent)
            visit.token_id = principal.token_id
            call.rule.check(principal, pool)
            answer = call.handler.answer(call.path, call.path_params, dict(sent), body, principal.tenant)
        except HasToWait:  # on the long path
            self._gate.forget()
            return None
        except BlockyardError as error:
            answer = render_error(error)
        except Exception as error:  # noqa: BLE001 - it is logged
            answer = self._gate.failed(visit, error)
        if commit.headers:
            answer = answer.with_headers(commit.headers)
        return visit, answer, commit

    def post(self, send: Send, visit: Visit, answer: Answer, commit: Commit) -> None:
        """Have ``answer`` sent at the end of this turn of the loop, or once ``commit`` is settled.

        All answers of a turn go out one after the other: whoever waits for them is woken once.
        """
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._empty_outbox)
        self._outbox.setdefault(commit, []).append(Letter(send, visit, answer))

    def lines_of(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """As `header_lines`, of the server's own headers: a new list whenever there is a new second."""
        if headers is not self._headers:
            self._headers, self._header_lines = headers, header_lines(headers)
        return self._header_lines

    def _empty_outbox(self) -> None:
        outbox, self._outbox = self._outbox, {}
        for commit, letters in outbox.items():
            settling = commit.settling
            if settling is None:
                self._deliver(commit, letters)
            else:
                self._deliver_after(settling, commit, letters)

    def _deliver_after(self, settling: asyncio.Future[None], commit: Commit, letters: list[Letter]) -> None:
        late = asyncio.get_running_loop().call_later(self._request_timeout_s, self._give_up, letters)

        def settled(_: object) -> None:
            late.cancel()
            self._deliver(commit, letters)

        settling.add_done_callback(settled)

    def _give_up(self, letters: list[Letter]) -> None:
        """The journal takes too long: nobody waits for it any more, and what it comes to is not known."""
        timeout_s = self._request_timeout_s
        late = render_error(RequestTimeout.of("request_timeout_s", timeout_s, "nothing was written down"))
        self._send([letter._replace(answer=late) for letter in letters])
        letters.clear()

    def _deliver(self, commit: Commit, letters: list[Letter]) -> None:
        try:
            commit.check_sound()
        except NotReady as error:  # whether they were written down is not known
            withdrawn = render_error(error)
            letters = [letter._replace(answer=withdrawn) for letter in letters]
        self._send(letters)

    def _send(self, letters: list[Letter]) -> None:
        for send, visit, answer in letters:
            self._gate.leave(visit, answer.status)
            send(answer)
