"""Answers that FastAPI does not describe by itself, for the OpenAPI document: streams, bytes made by hand."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from blockyard.server.events.messages import KvBatch, KvSnapshotPart, KvSnapshotReply
from blockyard.server.problems import Problem
from blockyard.server.sse import EVENT_STREAM
from blockyard.server.watch_messages import Figures

REFERENCE = "#/components/schemas/{model}"

DOCUMENTED: tuple[type[BaseModel], ...] = (Problem, Figures, KvBatch, KvSnapshotPart, KvSnapshotReply)
"""What `reference` may name: they are added to the document's schemas."""


def reference(model: type[BaseModel]) -> dict[str, Any]:
    """A schema that is ``model``'s."""
    assert model in DOCUMENTED
    return {"$ref": REFERENCE.format(model=model.__name__)}


def event_stream(messages: Mapping[str, type[BaseModel]]) -> dict[int | str, dict[str, Any]]:
    """The response of a route that streams ``messages``, by the names of their events.

    ``itemSchema`` is OpenAPI 3.2's, as FastAPI has it in 3.1 for streams of its own.
    """
    kinds = [
        {
            "properties": {
                "event": {"const": name},
                "data": {
                    "type": "string",
                    "contentMediaType": "application/json",
                    "contentSchema": reference(model),
                },
                "id": {"type": "string"},
                "retry": {"type": "integer", "minimum": 0},
            },
            "required": ["event", "data"],
        }
        for name, model in messages.items()
    ]
    item = {"type": "object", "oneOf": kinds}
    return {200: {"description": "Server-sent events.", "content": {EVENT_STREAM: {"itemSchema": item}}}}
