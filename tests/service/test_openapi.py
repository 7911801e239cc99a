"""Every endpoint, by what the server's own OpenAPI says of it: no input is a defect of ours."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.service_process import ADDS, ServiceProcess, sum_problem
from whetstone.judge.options import JudgeOptions
from whetstone.service.endpoint_app import openapi
from whetstone.service.serve import ENDPOINTS

PAGE = openapi(ENDPOINTS)
WITH_BODIES = [each for each in ENDPOINTS if each.request_type is not None]
WORDS = (
    "",
    "python",
    "basic",
    "1 2",
    "print(input())",
    "a/b",
    "../a",
    "\x00",
    "\ud800",
    "stdin",
    "YQ==",
    "f",
)
TEXTS = st.sampled_from((*WORDS, *JudgeOptions.__struct_fields__)) | st.text(max_size=5)
NUMBERS = st.sampled_from((-1, 0, 1, 2, 1 << 70)) | st.floats(-2, 2)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@cache
def _named(name: str) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: fitting(PAGE["components"]["schemas"][name]))


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema allows, as far as msgspec writes schemas."""
    if "$ref" in schema:
        return _named(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return st.one_of([fitting(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object":
            return _object(schema)
        case "array":
            inner = fitting(schema.get("items", {}))
            return st.lists(inner, min_size=schema.get("minItems", 0), max_size=3)
        case "string":
            return st.from_regex(schema["pattern"]) if "pattern" in schema else TEXTS
        case "integer":
            return st.integers(schema.get("minimum", -3), schema.get("maximum", 3))
        case "number":
            return st.floats(0.1, 2) | st.sampled_from((1, 2))
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case _:
            return ANYTHING


def _object(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    fields = {name: fitting(each) for name, each in schema.get("properties", {}).items()}
    needed = {name: fields.pop(name) for name in schema.get("required", ()) if name in fields}
    if fields or needed:
        return st.fixed_dictionaries(needed, optional=fields)
    more = schema.get("additionalProperties", {})
    return st.dictionaries(TEXTS, fitting(more if isinstance(more, dict) else {}), max_size=3)


@st.composite
def asked(draw: st.DrawFn, schema: dict[str, Any], good: Any) -> Any:
    """A body: what the schema allows, or a good one with something else in one place."""
    if draw(st.booleans()):
        return draw(fitting(schema))
    body: Any = json.loads(json.dumps(good))
    at, parent, key = body, None, None
    at: Any
    parent: Any
    for _ in range(draw(st.integers(1, 6))):
        if not isinstance(at, dict | list) or not at:
            break
        parent = at
        key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        at = at[key]
    if parent is not None:
        parent[key] = draw(ANYTHING)
    return body


_TABLE = {"type": "stdin_stdout", "input": ["1 2"], "output": ["3"], "fn_name": None}
_CONFIG = {
    "language": "python",
    "run_timeout": 1,
    "provided_data": {"test_cases": _TABLE},
    "extra": {"run_all_cases": True, "special_judge_language": "python", "memory_limit_mb": 64},
}
_ONE = {"program": ADDS, "problem": sum_problem(), "options": {"max_cases": 1}}
_SUBMIT = {"completion": "print(1)", "dataset": "", "id": 1, "config": _CONFIG}
GOOD: dict[str, Any] = {
    "/v1/judge": _ONE,
    "/v1/problems": sum_problem(),
    "/run_code": {
        **{"code": "print(1)", "language": "python", "stdin": "", "run_timeout": 1, "files": {}},
        **{"fetch_files": [], "memory_limit_MB": 64},
    },
    "/common_evaluate_batch": _SUBMIT,
}


@pytest.mark.parametrize("endpoint", WITH_BODIES, ids=lambda each: each.path)
def test_no_input_is_a_defect_and_every_refusal_says_why(server: ServiceProcess, endpoint: Any) -> None:
    operation = PAGE["paths"][endpoint.path][endpoint.method.lower()]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]

    @settings(
        max_examples=15,
        deadline=None,
        suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
        database=None,
        derandomize=True,
    )
    @given(asked(schema, GOOD[endpoint.path]))
    def check(body: Any) -> None:
        data = json.dumps(body).encode()
        status, said = server.ask(endpoint.method, endpoint.path, data, {"X-Deadline-Seconds": "60"})
        assert str(status) in operation["responses"], (status, said, data)
        assert status not in (401, 403), (said, data)
        assert status != 500 or said["error"]["code"] == "malformed_tests", (said, data)
        if status != 200:
            assert len(said["detail"]) > 10
        else:
            msgspec.convert(said, endpoint.response_type)

    check()


def test_the_page_is_served_and_names_every_endpoint(server: ServiceProcess) -> None:
    status, page = server.ask("GET", "/openapi.json")
    assert (status, page["paths"].keys()) == (200, {each.path for each in ENDPOINTS})
