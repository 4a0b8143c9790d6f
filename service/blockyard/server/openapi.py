"""The OpenAPI document: FastAPI's own, and the pool calls, which are plain Starlette routes."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from blockyard.server.media import JSON, MSGPACK
from blockyard.server.pool_call_handler import MAX_KEY_LENGTH
from blockyard.server.pool_calls import POOL_CALLS, PoolCall
from blockyard.server.problems import PROBLEM_RESPONSES, Problem

_REF = "#/components/schemas/{model}"


def describe(app: FastAPI) -> dict[str, Any]:
    """The document for ``app``, made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
        )
        _add_pool_calls(document)
        app.openapi_schema = document
    return app.openapi_schema


def _add_pool_calls(document: dict[str, Any]) -> None:
    bodies = [(call.body, "validation", TypeAdapter(call.body)) for call in POOL_CALLS]
    replies = [(call.reply, "serialization", TypeAdapter(call.reply)) for call in POOL_CALLS]
    problem = [(Problem, "serialization", TypeAdapter(Problem))]
    schemas, definitions = TypeAdapter.json_schemas([*bodies, *replies, *problem], ref_template=_REF)  # type: ignore[list-item]
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.update(definitions.get("$defs", {}))
    for call in POOL_CALLS:
        path = document["paths"].setdefault(f"/v1/pools/{{pool}}{call.path}", {})
        path[call.method.lower()] = _operation(
            call, schemas[call.body, "validation"], schemas[call.reply, "serialization"]
        )


def _operation(call: PoolCall, body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    media = [JSON, MSGPACK] if call.is_hot else [JSON]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("pool", "lease_id")
        if f"{{{name}}}" in f"{{pool}}{call.path}"
    ]
    if call.command is not None and call.method == "POST":
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "A repeat with the same key and lease gets the first reply again.",
                "schema": {"type": "string", "maxLength": MAX_KEY_LENGTH},
            }
        )
    return {
        "tags": [_tag(call)],
        "summary": call.summary,
        "operationId": call.path.strip("/").replace("/", "_").replace("{lease_id}", "one")
        + "_"
        + call.method.lower(),
        "parameters": parameters,
        "requestBody": {"required": True, "content": {name: {"schema": body} for name in media}},
        "responses": {
            str(call.status): {
                "description": "Done.",
                "content": {name: {"schema": reply} for name in media},
            },
            **PROBLEM_RESPONSES,
        },
    }


def _tag(call: PoolCall) -> str:
    first = call.path.split("/")[1]
    return {"leases": "leases", "blocks": "raw blocks", "reset_prefix_cache": "pools"}.get(first, "sequences")
