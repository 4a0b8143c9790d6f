"""The time that a request may take, around an application of our own."""

import asyncio
from collections.abc import Awaitable, Callable

from prometheus_client import CollectorRegistry
from starlette.types import Message, Receive, Scope, Send

from blockyard.server.access.authenticator import Authenticator
from blockyard.server.gate import Gate
from blockyard.server.guard import Guard, waiting
from blockyard.server.pool_journal import Commit, NothingToSettle, PoolJournal, VolatileJournal
from blockyard.server.readiness import Readiness
from blockyard.server.sse import EVENT_STREAM


async def at_once(_: Commit) -> None:
    pass


def run(
    app: Callable[[Scope, Receive, Send], Awaitable[None]],
    journal: PoolJournal | None = None,
    settled: Callable[[Commit], Awaitable[None]] = at_once,
) -> list[Message]:
    """What ``app`` answers a request, which may take a second."""
    sent: list[Message] = []
    told: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return told.pop() if told else {"type": "http.disconnect"}

    async def call() -> None:
        readiness = Readiness()
        readiness.begin()
        gate = Gate(
            max_requests_in_flight=1, max_turn_ms=250, readiness=readiness, registry=CollectorRegistry()
        )
        guard = Guard(
            app,
            gate,
            authenticator=Authenticator(None),
            max_body_bytes=1,
            body_timeout_s=1,
            request_timeout_s=1,
            journal=journal or VolatileJournal(),
            settled=settled,
        )
        await guard({"type": "http", "method": "GET", "path": "/", "headers": []}, receive, send)

    asyncio.run(call())
    return sent


START: Message = {"type": "http.response.start", "status": 200, "headers": []}
END: Message = {"type": "http.response.body", "body": b"", "more_body": False}


def test_what_takes_too_long_is_ended_and_answered() -> None:
    was_ended = False

    async def slow(_: Scope, __: Receive, send: Send) -> None:
        nonlocal was_ended
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            was_ended = True
            raise
        await send(START)

    start, _ = run(slow)
    assert (start["status"], was_ended) == (408, True)


def test_an_answer_that_has_begun_is_broken_off() -> None:
    async def stuck(_: Scope, __: Receive, send: Send) -> None:
        await send(START)
        await asyncio.sleep(60)

    assert run(stuck) == [START]


def test_who_is_given_time_may_take_it() -> None:
    async def waits(scope: Scope, _: Receive, send: Send) -> None:
        with waiting(scope, 60):
            await asyncio.sleep(1.5)
        await send(START)
        await send(END)

    assert run(waits) == [START, END]


def test_a_stream_has_its_time_anew_with_each_part() -> None:
    start = {**START, "headers": [(b"content-type", EVENT_STREAM.encode())]}
    part: Message = {"type": "http.response.body", "body": b"x", "more_body": True}

    async def streams(_: Scope, __: Receive, send: Send) -> None:
        await send(start)
        for _part in range(3):
            await asyncio.sleep(0.6)
            await send(part)
        await send(END)

    assert run(streams) == [start, part, part, part, END]


def test_an_answer_waits_for_the_commit_that_a_pool_has_come_to_have_meanwhile() -> None:
    """A pool goes to another node and comes back while a body arrives: the call is given to it then."""

    class Moving(VolatileJournal):
        latest = NothingToSettle()

        def commit(self, _pool: str) -> Commit:
            return self.latest

    journal, waited_for = Moving(), []
    later = NothingToSettle()

    async def settled(commit: Commit) -> None:
        waited_for.append(commit)

    async def app(_: Scope, __: Receive, send: Send) -> None:
        journal.latest = later
        await send(START)
        await send(END)

    assert run(app, journal, settled) == [START, END]
    assert waited_for == [Moving.latest, later]
