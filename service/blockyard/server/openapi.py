"""The OpenAPI document: FastAPI's own, and the pool calls, which are plain Starlette routes."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blockyard.server.access.rules import Rule, rule_of
from blockyard.server.documented import DOCUMENTED, REFERENCE
from blockyard.server.idempotency_key import IDEMPOTENCY_KEY
from blockyard.server.media import JSON, MSGPACK
from blockyard.server.pool_calls import POOL_CALLS, PoolCall
from blockyard.server.refusals import TO_STRANGERS, refusals, responses

SCHEME = "bearer"


class _WithoutNull(GenerateJsonSchema):
    """Schemas of replies: what is None in them is left out, see `ReplyWriter`."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        if found.get("default", ...) is None:
            del found["default"]
        return found

    def field_is_required(
        self,
        field: core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField,
        total: bool,
    ) -> bool:
        return field["schema"]["type"] != "nullable" and super().field_is_required(field, total)


def openapi_route(path: str, make: Callable[[], dict[str, Any]]) -> Route:
    """The route that serves what ``make`` makes: once, beside the event loop, as strangers may ask for it."""
    making = asyncio.Lock()
    made: list[bytes] = []

    async def serve(_: Request) -> Response:
        async with making:
            if not made:
                made.append(await asyncio.to_thread(lambda: json.dumps(make()).encode()))
        return Response(made[0], media_type=JSON)

    return Route(path, serve, include_in_schema=False)


def describe(app: FastAPI, *, has_tokens: bool) -> dict[str, Any]:
    """The document for ``app``, made once.

    Args:
        app: Its routes all have rules.
        has_tokens: Whether callers need a token; else it says that they may send one.
    """
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
        )
        _add_pool_calls(document)
        _add_security(document, has_tokens=has_tokens)
        app.openapi_schema = document
    return app.openapi_schema


def _add_security(document: dict[str, Any], *, has_tokens: bool) -> None:
    """Say of each operation what its rule asks for."""
    document["components"]["securitySchemes"] = {
        SCHEME: {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of `blockyard token add`, where the server has a `--token-file`.",
        }
    }
    for template, operations in document["paths"].items():
        for method, operation in operations.items():
            rule = rule_of(method.upper(), template)
            operation["security"] = _security(rule, has_tokens=has_tokens)
            if rule.scope is not None:
                for status, answer in responses(*TO_STRANGERS).items():
                    operation["responses"][str(status)] = answer
                operation["x-scope"] = rule.scope.value
                operation["description"] = f"{operation.get('description', '')}\n\n{_asked(rule)}".lstrip()


def _asked(rule: Rule) -> str:
    whose = ", of a token without a tenant or with `admin`" if rule.sees_all else ""
    return f"Scope: `{rule.scope}`{whose}."


def _security(rule: Rule, *, has_tokens: bool) -> list[dict[str, list[str]]]:
    if rule.scope is None:
        return []
    return [{SCHEME: []}] if has_tokens else [{SCHEME: []}, {}]


def _add_pool_calls(document: dict[str, Any]) -> None:
    bodies = [(call.body, "validation", TypeAdapter(call.body)) for call in POOL_CALLS]
    replies = [(call.reply, "serialization", TypeAdapter(call.reply)) for call in POOL_CALLS]
    others = [(model, "serialization", TypeAdapter(model)) for model in DOCUMENTED]
    schemas, definitions = TypeAdapter.json_schemas([*bodies, *others], ref_template=REFERENCE)  # type: ignore[list-item]
    answers, more_definitions = TypeAdapter.json_schemas(  # type: ignore[type-var]
        replies,  # type: ignore[arg-type]
        ref_template=REFERENCE,
        schema_generator=_WithoutNull,
    )
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.update(definitions.get("$defs", {}))
    components.update(more_definitions.get("$defs", {}))
    for call in POOL_CALLS:
        path = document["paths"].setdefault(f"/v1/pools/{{pool}}{call.path}", {})
        path[call.method.lower()] = _operation(
            call, schemas[call.body, "validation"], answers[call.reply, "serialization"]
        )


def _operation(call: PoolCall, body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    media = [JSON, MSGPACK] if call.is_hot else [JSON]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("pool", "lease_id", "pin_id")
        if f"{{{name}}}" in f"{{pool}}{call.path}"
    ]
    if call.command is not None and call.method == "POST":
        parameters.append(IDEMPOTENCY_KEY)
    return {
        "tags": [_tag(call)],
        "summary": call.summary,
        "operationId": call.path.strip("/")
        .replace("/", "_")
        .replace("{lease_id}", "one")
        .replace("{pin_id}", "one")
        + "_"
        + call.method.lower(),
        "parameters": parameters,
        "requestBody": {
            "required": not call.body_is_optional,
            "content": {name: {"schema": body} for name in media},
        },
        "responses": {
            str(call.status): {
                "description": "Done.",
                "content": {name: {"schema": reply} for name in media},
            },
            **{str(status): answer for status, answer in refusals(*call.refusals).items()},
        },
    }


def _tag(call: PoolCall) -> str:
    first = call.path.split("/")[1]
    return {
        "leases": "leases",
        "pins": "pins",
        "blocks": "raw blocks",
        "reset_prefix_cache": "pools",
    }.get(first, "sequences")
