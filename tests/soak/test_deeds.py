"""Each thing that hostile callers do leaves nothing in the server that would stay for good."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from random import Random

import pytest

from api.garbage import Garbage, garbage_server
from soak.hostile import DEEDS, Hostile
from soak.settings import OPTIONS, POOL, POOL_CONFIG, SERVED
from soak.wire import Line, line

NUM_TIMES = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garbage]:
    with garbage_server("--data-dir", str(tmp_path_factory.mktemp("data")), *OPTIONS) as garbage:
        for pool in (SERVED, POOL):
            assert garbage.call("PUT", pool, POOL_CONFIG)[0] == 201
        assert garbage.call("GET", "/openapi.json")[0] == 200  # made once
        garbage.found()
        yield garbage


@pytest.mark.parametrize("deed", DEEDS)
def test_a_deed_leaves_no_cycles(server: Garbage, deed: Callable[[Hostile, Line], Awaitable[None]]) -> None:
    async def do(number: int) -> None:
        async with line(server.port) as connection:
            await deed(Hostile(server.port, number, Random(number), Counter()), connection)

    async def do_often() -> None:
        await asyncio.gather(*map(do, range(NUM_TIMES)))

    asyncio.run(do_often())
    assert server.found() == {}
