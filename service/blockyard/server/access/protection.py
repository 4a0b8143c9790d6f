"""Holds every route of an application to its rule, before the route reads anything.

Who asks is known by then: whoever let the request in has put a `Principal` into its ASGI scope. Without one
nothing passes.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from blockyard.core.errors import Unauthorized
from blockyard.server.access.principal import PRINCIPAL_KEY, Principal
from blockyard.server.access.rules import Rule, rule_of


def protect(app: FastAPI) -> None:
    """Hold all routes that ``app`` has to their rules. Once, when no more are added.

    Raises:
        NoRule: A route has none.
        TypeError: A route is of a kind that is not known here.
    """
    for route, rules in _rules(app):
        # What runs a route that was found for a request; FastAPI and Starlette go through it alike.
        vars(route)["handle"] = _Held(route.handle, rules)


def _asking(request: Request) -> Principal:
    principal: Principal = request.scope[PRINCIPAL_KEY]
    return principal


Asking = Annotated[Principal, Depends(_asking)]
"""A parameter of a FastAPI route: who asks."""


class _Held:
    """Runs a route for those whom the rule of the method lets pass."""

    def __init__(self, handle: ASGIApp, rules: Mapping[str, Rule]) -> None:
        self._handle = handle
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rule = self._rules.get(scope["method"])
        if rule is not None:  # else the route answers that it does not have the method
            principal: Principal | None = scope.get(PRINCIPAL_KEY)
            if principal is None:
                raise Unauthorized("nobody has asked who this is")
            rule.check(principal, scope["path_params"].get("pool"))
        await self._handle(scope, receive, send)


def _rules(app: FastAPI) -> Iterator[tuple[BaseRoute, dict[str, Rule]]]:
    for context in iter_route_contexts(app.routes):
        route, template = context.original_route, context.path_format
        # Of an included router, FastAPI runs its own kind of route itself, and copies of the others.
        is_run = isinstance(route, APIRoute) or (isinstance(route, (Route, Mount)) and route in app.routes)
        if not is_run or template is None:
            raise TypeError(f"{route!r} cannot be held to a rule here: add it to the application itself")
        yield route, {method: rule_of(method, template) for method in context.methods or ("GET", "HEAD")}
