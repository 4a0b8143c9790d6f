"""Turns a builder of calls into a method that sends them: each endpoint is written once, for both clients.

    class Pool:
        stats = blocking(PoolCalls.stats)        # Pool.stats() -> Statistics

    class AsyncPool:
        stats = awaitable(PoolCalls.stats)       # await AsyncPool.stats() -> Statistics

The method has the builder's parameters and docstring, gives what the call reads, and is its class's own.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, get_args, get_origin

from blockyard.client.call import Call
from blockyard.client.schedule import Schedule

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])
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

    def method(self: Blocks[Calls], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._send(build(self._calls, *args, **kwargs))

    return _as_own(method, build)


def awaitable(
    build: Callable[Concatenate[Calls, P], Call[T]],
) -> Callable[Concatenate[Awaits[Calls], P], Awaitable[T]]:
    """A coroutine method that builds a call, sends it, and returns its value."""

    async def method(self: Awaits[Calls], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._send(build(self._calls, *args, **kwargs))

    return _as_own(method, build)


class HasSchedule(Protocol):
    """An object that keeps its sequences in ``_schedule``."""

    @property
    def _schedule(self) -> Schedule: ...


def passing_on(verb: Callable[Concatenate[Schedule, P], T]) -> Callable[Concatenate[HasSchedule, P], T]:
    """A method that does ``verb`` with its object's schedule."""

    def method(self: HasSchedule, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return verb(self._schedule, *args, **kwargs)

    return _as_own(method, verb)


class _Named:
    """Stands in a class body for a method, which it replaces itself by, under the class's name."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __set_name__(self, owner: type, name: str) -> None:
        self._method.__qualname__ = f"{owner.__qualname__}.{name}"
        self._method.__module__ = owner.__module__
        setattr(owner, name, self._method)


def _as_own(method: M, like: Callable[..., Any]) -> M:
    """``method`` with the parameters and docstring of ``like``, returning what its call reads."""
    functools.update_wrapper(method, like)
    del method.__wrapped__  # type: ignore[attr-defined]
    signature = inspect.signature(like)
    answer = signature.return_annotation
    if get_origin(answer) is Call:
        answer = get_args(answer)[0]
    method.__signature__ = signature.replace(return_annotation=answer)  # type: ignore[attr-defined]
    method.__annotations__ = {**method.__annotations__, "return": answer}
    return cast("M", _Named(method))
