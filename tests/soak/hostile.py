"""Callers that mean no good, or die: what each of them does, over and over, with one connection at a time."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

from soak.settings import HEAD_BYTES, LEASE_MS, MAX_BODY_BYTES, MAX_HASHES, POOL, SERVED
from soak.wire import Line, line, request

TRICKLE_S = 0.05


class Hostile:
    """One of them.

    Args:
        port: The server's.
        number: Of this one among them: what it begins with.
        random: Draws what it does then.
        seen: Counts what it was answered, as ``deed status code``.
    """

    def __init__(self, port: int, number: int, random: Random, seen: Counter[str]) -> None:
        self._port = port
        self._first = DEEDS[number % len(DEEDS)]
        self._random = random
        self._seen = seen

    async def run(self, should_end: asyncio.Event) -> None:
        """Do one deed after the other until told to end."""
        deed = self._first
        while not should_end.is_set():
            async with line(self._port) as connection:
                await deed(self, connection)
            await asyncio.sleep(self._random.uniform(0, 0.2))
            deed = self._random.choice(DEEDS)

    async def note(self, deed: str, connection: Line) -> None:
        """Count the next answer."""
        self._count(deed, *await connection.answer())

    def _count(self, deed: str, status: int, code: str) -> None:
        self._seen[f"{deed} {status} {code}".rstrip()] += 1

    async def _lease(self, connection: Line) -> str:
        await connection.send(request("POST", f"{POOL}/leases", {"holder": "hostile", "ttl_ms": LEASE_MS}))
        return str((await connection.document()).get("lease_id"))  # "None" is no lease's, where it is refused

    async def hang_up_in_head(self, connection: Line) -> None:
        whole = request("POST", f"{SERVED}/lookup", {"num_tokens": 5})
        await connection.send(whole[: self._random.randrange(1, 60)])
        self._seen["hung up in a head"] += 1

    async def hang_up_in_body(self, connection: Line) -> None:
        body = {"lease_id": await self._lease(connection), "num_blocks": 50}
        whole = request("POST", f"{POOL}/blocks/allocate", body)
        await connection.send(whole[: -self._random.randrange(1, 40)])
        self._seen["hung up in a body"] += 1

    async def hang_up_in_answer(self, connection: Line) -> None:
        await connection.send(request("GET", "/openapi.json") * 3)
        await connection.read_some()
        self._seen["hung up in an answer"] += 1

    async def hang_up_before_answer(self, connection: Line) -> None:
        body = {"lease_id": await self._lease(connection), "sequence_id": "s", "num_tokens": 400}
        await connection.send(request("POST", f"{POOL}/allocate", {**body, "token_ids": [7] * 400}))
        self._seen["hung up before an answer"] += 1

    async def send_head_slowly(self, connection: Line) -> None:
        head = b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 1_000
        self._count("slow head", *await connection.trickle(head, TRICKLE_S))

    async def send_body_slowly(self, connection: Line) -> None:
        body = {"num_tokens": 900, "token_ids": [1] * 900}
        whole = request("POST", f"{POOL}/lookup", body)
        head_end = whole.index(b"\r\n\r\n")
        await connection.send(whole[:head_end])
        self._count("slow body", *await connection.trickle(whole[head_end:], TRICKLE_S))

    async def send_nothing(self, connection: Line) -> None:
        assert await connection.read_some() == b""
        self._seen["silent, hung up on"] += 1

    async def send_too_large_a_body(self, connection: Line) -> None:
        await connection.send(
            request("POST", f"{POOL}/step", b"x" * (MAX_BODY_BYTES * self._random.randrange(2, 12)))
        )
        await self.note("large body", connection)

    async def send_too_large_a_head(self, connection: Line) -> None:
        await connection.send(b"GET / HTTP/1.1\r\nX: " + b"x" * (3 * HEAD_BYTES) + b"\r\n\r\n")
        await self.note("large head", connection)

    async def send_garbage(self, connection: Line) -> None:
        await connection.send(b"\x16" + self._random.randbytes(500) + b"\r\n\r\n")
        await self.note("garbage", connection)

    async def send_what_is_no_request(self, connection: Line) -> None:
        body = self._random.choice([b"{", b"[" * 5_000, b'{"lease_id": 1, "x": 2}', b"\xff" * 100])
        await connection.send(request("POST", f"{POOL}/{self._random.choice(['step', 'allocate'])}", body))
        await self.note("no request", connection)

    async def send_too_many_hashes(self, connection: Line) -> None:
        body = {"num_tokens": 5, "token_ids": [0] * (MAX_HASHES + 1)}
        await connection.send(request("POST", f"{POOL}/lookup", body))
        await self.note("many tokens", connection)

    async def send_without_waiting(self, connection: Line) -> None:
        one = request("POST", f"{POOL}/lookup", {"num_tokens": 5}) + request("GET", f"{POOL}/stats")
        await connection.send(one * 50)
        for _ in range(self._random.randrange(100)):
            await self.note("pipelined", connection)

    async def free_twice(self, connection: Line) -> None:
        lease = await self._lease(connection)
        await connection.send(
            request("POST", f"{POOL}/blocks/allocate", {"lease_id": lease, "num_blocks": 3})
        )
        block_ids = (await connection.document()).get("block_ids", [1])
        free = {"lease_id": lease, "block_ids": block_ids}
        for _ in range(2):
            await connection.send(request("POST", f"{POOL}/blocks/free", free))
            await self.note("freed twice", connection)

    async def free_what_is_another_s(self, connection: Line) -> None:
        free = {"lease_id": await self._lease(connection), "block_ids": list(range(1, 100))}
        await connection.send(request("POST", f"{POOL}/blocks/free", free))
        await self.note("freed another's", connection)

    async def leave_a_lease(self, connection: Line) -> None:
        lease = await self._lease(connection)
        for number in range(3):
            held = {"lease_id": lease, "sequence_id": f"{lease}-{number}", "num_tokens": 300}
            await connection.send(request("POST", f"{POOL}/allocate", held))
            await self.note("left", connection)
        await connection.send(
            request("POST", f"{POOL}/blocks/allocate", {"lease_id": lease, "num_blocks": 20})
        )
        await self.note("left", connection)

    async def subscribe_and_not_read(self, connection: Line) -> None:
        await connection.send(request("GET", f"{SERVED}/events"))
        await connection.read_some()
        await asyncio.sleep(self._random.uniform(1, 5))
        self._seen["subscribed, not read"] += 1

    async def connect_and_hang_up(self, connection: Line) -> None:
        for _ in range(20):
            async with line(self._port):
                pass
        connection.abort()
        self._seen["connected, hung up"] += 20


DEEDS: tuple[Callable[[Hostile, Line], Awaitable[None]], ...] = tuple(
    value for name, value in vars(Hostile).items() if name not in ("run", "note") and not name.startswith("_")
)
