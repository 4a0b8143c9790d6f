"""Turns a builder of calls into a method that sends them: each endpoint is written once, for both clients.

    class Pool:
        stats = blocking(PoolCalls.stats)        # Pool.stats() -> PoolStats

    class AsyncPool:
        stats = awaitable(PoolCalls.stats)       # await AsyncPool.stats() -> PoolStats

The method has the builder's parameters and docstring, and gives what the call reads.
"""

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from blockyard.client.call import Call

P = ParamSpec("P")
T = TypeVar("T")
Calls = TypeVar("Calls")
Calls_co = TypeVar("Calls_co", covariant=True)


class Blocks(Protocol[Calls_co]):
    """An object that builds its calls with ``_calls`` and waits for their answers."""

    @property
    def _calls(self) -> Calls_co: ...

    def _send(self, call: Call[T], /) -> T: ...


class Awaits(Protocol[Calls_co]):
    """An object that builds its calls with ``_calls`` and awaits their answers."""

    @property
    def _calls(self) -> Calls_co: ...

    async def _send(self, call: Call[T], /) -> T: ...


def blocking(build: Callable[Concatenate[Calls, P], Call[T]]) -> Callable[Concatenate[Blocks[Calls], P], T]:
    """A method that builds a call, sends it, and returns its value."""

    @functools.wraps(build)
    def method(self: Blocks[Calls], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._send(build(self._calls, *args, **kwargs))

    return _answering(method)


def awaitable(
    build: Callable[Concatenate[Calls, P], Call[T]],
) -> Callable[Concatenate[Awaits[Calls], P], Awaitable[T]]:
    """A coroutine method that builds a call, sends it, and returns its value."""

    @functools.wraps(build)
    async def method(self: Awaits[Calls], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._send(build(self._calls, *args, **kwargs))

    return _answering(method)


M = TypeVar("M", bound=Callable[..., Any])


def _answering(method: M) -> M:
    """``method``, annotated to return what its call reads instead of the call."""
    returns = method.__annotations__.get("return")
    answer = getattr(returns, "__args__", (Any,))[0]
    method.__annotations__ = {**method.__annotations__, "return": answer}
    return method
