"""A cluster without sockets or a clock: nodes own a pool in turn, die, and wake up with old beliefs."""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from blockyard.client.call import Call, success
from blockyard.client.delivery import Delivery, Instead, Surroundings
from blockyard.client.errors import ConnectionLost
from blockyard.client.retry import RetryPolicy
from blockyard.client.routes import Routes
from blockyard.client.wire import Request, Response
from blockyard.core.errors import BlockyardError

POOL = "/v1/pools/p/stats"
JSON = {"content-type": "application/json"}


def answer(number: int) -> Response:
    """An owner's, which tells its number."""
    return Response(200, {**JSON, "blockyard-ownership": str(number)}, json.dumps(number).encode())


def elsewhere(owner: str, number: int, target: str = POOL) -> Response:
    """A node's that says who the owner is."""
    problem = {"code": "pool_elsewhere", "pool": "p", "node": "n", "url": owner + target, "ownership": number}
    return Response(307, {**JSON, "location": owner + target}, json.dumps(problem).encode())


def not_ready() -> Response:
    """A node's that cannot answer now."""
    return Response(503, JSON, b'{"code": "not_ready", "retry_after_ms": 0}')


def call(*, is_keyed: bool = True) -> Call[int]:
    """Asks the owner for its number."""
    return Call(method="POST", path=POOL, read=success, is_keyed=is_keyed)


@dataclass
class World:
    """A clock that pauses turn on, the longest pauses, and keys that were never given."""

    now_s: float = 0.0
    keys: "itertools.count[int]" = field(default_factory=itertools.count)

    def surroundings(self) -> Surroundings:
        return Surroundings(
            now_s=lambda: self.now_s,
            draw=lambda: 1.0,
            new_key=lambda: f"key-{next(self.keys)}",
            headers=lambda: {"Authorization": "Bearer word"},
        )


@dataclass
class Cluster:
    """Nodes by origin.

    Attributes:
        origins: All of them. They own the pool in turn, the first at first.
        number: The how manieth owner that is.
        dead: They answer nothing.
        beliefs: Of those that have not heard of later owners: the number that they know.
    """

    origins: list[str]
    number: int = 1
    dead: set[str] = field(default_factory=set)
    beliefs: dict[str, int] = field(default_factory=dict)

    def owner(self, number: int) -> str:
        """The node that is the owner of this number."""
        return self.origins[(number - 1) % len(self.origins)]

    def do(self, what: str) -> None:
        """Have this happen. Whose pool is taken over unnoticed believes that it has it still."""
        if what.startswith("take over"):
            if what.endswith("unnoticed"):
                self.beliefs.setdefault(self.owner(self.number), self.number)
            self.number += 1
            self.beliefs.pop(self.owner(self.number), None)
        if what == "owner dies":
            self.dead.add(self.owner(self.number))
        if what.startswith("all live"):
            self.dead.clear()
        if what.endswith("hear"):
            self.beliefs.clear()

    def answer(self, request: Request) -> Response:
        """What the node at the request's origin answers."""
        if request.origin in self.dead:
            raise ConnectionLost("dead")
        number = self.beliefs.get(request.origin, self.number)
        owner = self.owner(number)
        return answer(number) if owner == request.origin else elsewhere(owner, number, request.target)


@dataclass
class Told:
    """What a call was told, and how.

    Attributes:
        value: Its value, or the error that it ended with.
        requests: All that were sent.
        pauses: Between them, in seconds.
    """

    value: Any = None
    requests: list[Request] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    @property
    def origins(self) -> list[str]:
        return [request.origin for request in self.requests]

    @property
    def keys(self) -> set[str | None]:
        return {request.headers.get("Idempotency-Key") for request in self.requests}


def deliver(
    asked: Call[Any],
    routes: Routes,
    answering: Callable[[Request], Response],
    world: World,
    policy: RetryPolicy | None = None,
) -> Told:
    """Sends a call as a sender does."""
    told = Told()
    delivery = Delivery(asked, routes, policy, world.surroundings())
    while True:
        response = None
        told.requests.append(delivery.request)
        try:
            response = answering(delivery.request)
            told.value = delivery.read(response)
        except BlockyardError as error:
            verdict = delivery.failed(error, response)
            if verdict is None:
                told.value = error
                return told
        else:
            return told
        if isinstance(verdict, Instead):
            told.value = verdict.value
            return told
        told.pauses.append(verdict.seconds)
        world.now_s += verdict.seconds


def in_turn(*answers: Response | BlockyardError) -> Callable[[Request], Response]:
    """Answers with one after the other, and then with the last."""
    left = itertools.chain(answers[:-1], itertools.repeat(answers[-1]))

    def answering(_: Request) -> Response:
        given = next(left)
        if isinstance(given, BlockyardError):
            raise given
        return given

    return answering
