"""The page that describes the endpoints to programs: OpenAPI 3.1, made from the types they take and give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from whetstone import __version__
from whetstone.judge_service.calls import Endpoint
from whetstone.judge_service.messages import JSON_LINES
from whetstone.judge_service.refusal_words import ErrorReply

_REF = "#/components/schemas/{name}"
_OF_ALL = (401, 403, 503)
_OF_BODIES = (400, 408, 413, 504)
_WORDS = {
    400: "The request is wrong, and the message says where.",
    401: "No token, or one that is not known.",
    403: "A web page asked without a token.",
    404: "Not known here.",
    408: "The body stopped coming.",
    422: "The body does not fit, and the message says where; or the tests themselves fail.",
    413: "The body is too large, or holds too many values.",
    500: "The tests cannot be read, and the message says why.",
    501: "This server has no such thing, and the message says what is there instead.",
    503: "Too busy to be served in time, or ending; see Retry-After.",
    504: "The deadline passed; see Retry-After.",
}


def openapi(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The description of ``endpoints``."""
    types = [kind for each in endpoints for kind in (each.takes, each.gives) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, ErrorReply], ref_template=_REF)
    made = iter(schemas)
    paths: dict[str, Any] = {}
    for each in endpoints:
        takes = next(made) if each.takes is not None else None
        gives = next(made) if each.gives is not None else None
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, takes, gives)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Whetstone judge", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": dict(components),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(endpoint: Endpoint, takes: Any, gives: Any) -> dict[str, Any]:
    statuses = {*_OF_ALL, *endpoint.refuses, *((*_OF_BODIES, endpoint.invalid_status) if takes else ())}
    kind = JSON_LINES if endpoint.lines else "application/json"
    responses: dict[str, Any] = {"200": {"description": "Done."}}
    if gives is not None:
        responses["200"]["content"] = {kind: {"schema": gives}}
    refusal = {"application/json": {"schema": {"$ref": _REF.format(name="ErrorReply")}}}
    for status in sorted(statuses):
        responses[str(status)] = {"description": _WORDS[status], "content": refusal}
    described: dict[str, Any] = {"summary": endpoint.says, "responses": responses}
    if takes is not None:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": takes}}}
    return described
