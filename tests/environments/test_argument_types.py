"""Texts as arguments get the types of the tool's schema, in tools and in the gateway alike."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from whetstone.environments.chat_api import answer_to, read_request
from whetstone.environments.conversation import Reply
from whetstone.environments.tool import ToolError, checked_arguments
from whetstone.environments.tool_calls import Call

REFERENCES = {
    "$defs": {
        "Count": {"type": "integer"},
        "Mode": {"enum": ["fast", "slow"], "type": "string"},
        "Point": {"type": "object", "properties": {"x": {"type": "number"}}},
        "Self": {"anyOf": [{"$ref": "#/$defs/Self"}, {"type": "null"}]},
    }
}
TYPED: list[tuple[Any, str, Any]] = [
    ({"type": "boolean"}, "True", True),
    ({"type": "boolean"}, "False", False),
    ({"type": "boolean"}, " true\n", True),
    ({"type": ["boolean", "null"]}, "None", None),
    ({"type": "integer"}, "3", 3),
    ({"type": "number"}, "3", 3),
    ({"type": "number"}, "-2.5e3", -2500.0),
    ({"type": "string"}, "3", "3"),
    ({"type": "string"}, "True", "True"),
    ({"type": "string"}, "None", "None"),
    ({"type": "string"}, '["a"]', '["a"]'),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "3", 3),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "None", None),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "None of them", "None of them"),
    ({"oneOf": [{"type": "boolean"}, {"type": "string"}]}, "True", True),
    ({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}, '["a"]', ["a"]),
    ({"anyOf": [{"type": "array"}, {"type": "string"}]}, "[a", "[a"),
    ({"anyOf": [{"anyOf": [{"type": "integer"}]}, {"type": "boolean"}]}, "7", 7),
    ({"type": "string", "nullable": True}, "null", None),
    ({"type": "array"}, "[1, 2]", [1, 2]),
    ({"type": "array"}, "['a', True, None]", ["a", True, None]),
    ({"type": "array"}, "(1, 2)", [1, 2]),
    ({"type": "object"}, "{'a': 1}", {"a": 1}),
    ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
    ({"enum": [1, 2, 3]}, "2", 2),
    ({"enum": ["1", "2"]}, "2", "2"),
    ({"const": True}, "True", True),
    ({"$ref": "#/$defs/Count"}, "3", 3),
    ({"$ref": "#/$defs/Mode"}, "fast", "fast"),
    ({"allOf": [{"$ref": "#/$defs/Count"}], "default": 1}, "3", 3),
    ({"anyOf": [{"$ref": "#/$defs/Point"}, {"$ref": "#/$defs/Point"}]}, '{"x": 1}', {"x": 1}),
    ({"$ref": "#/$defs/Self"}, "text", "text"),
    ({"$ref": "#/$defs/none"}, "3", "3"),
    ({}, "3", "3"),
    (True, "3", "3"),
    ({"type": "unknown"}, "3", "3"),
]


def through_the_gateway(call: str, parameters: Any) -> dict[str, Any]:
    tool = {"type": "function", "function": {"name": "run", "parameters": parameters}}
    body = {"messages": [{"role": "user", "content": "a"}], "tools": [tool]}
    answer = answer_to(read_request(json.dumps(body).encode()), Reply(0, call, "stop"), 1)
    [called] = answer.calls
    return json.loads(called.arguments)


@pytest.mark.parametrize(("schema", "text", "value"), TYPED)
def test_a_text_gets_the_type_of_its_schema_in_tools_and_in_the_gateway(
    schema: Any, text: str, value: Any
) -> None:
    parameters = {"type": "object", "properties": {"a": schema, "b": {"type": "string"}}, **REFERENCES}
    expected = {"a": value, "b": "7"}
    written = (
        f"<function=run>\n<parameter=a>\n{text}\n</parameter>\n<parameter=b>\n7\n</parameter>\n</function>"
    )
    found = through_the_gateway(written, parameters)
    assert json.dumps(found) == json.dumps(expected)
    found = checked_arguments(Call("run", {"a": text, "b": "7"}, untyped=True), parameters)
    assert json.dumps(found) == json.dumps(expected)


@pytest.mark.parametrize(
    ("schema", "text", "words", "kept"),
    [
        ({"type": "integer"}, "three", "not valid JSON", "three"),
        ({"type": "integer"}, "3.5", "the JSON type integer", 3.5),
        ({"type": "integer"}, "None", "the JSON type integer", None),
        ({"type": "boolean"}, "yes", "not valid JSON", "yes"),
        ({"type": "array"}, "[1, ", "not valid JSON", "[1, "),
        ({"type": "array"}, "{1, 2}", "not valid JSON", "{1, 2}"),
        ({"type": "object"}, "__import__('os')", "not valid JSON", "__import__('os')"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", "not valid JSON", "x"),
    ],
)
def test_a_text_without_the_type_is_refused_by_tools_and_left_to_the_agent(
    schema: Any, text: str, words: str, kept: Any
) -> None:
    parameters = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ToolError, match=words):
        checked_arguments(Call("run", {"a": text}, untyped=True), parameters)
    written = f"<tool_call><function=run><parameter=a>{text}</parameter></function></tool_call>"
    assert through_the_gateway(written, parameters) == {"a": kept}


def test_arguments_that_the_schema_does_not_name_have_its_type_for_others() -> None:
    parameters = {"type": "object", "additionalProperties": {"type": "integer"}}
    written = "<function=run><parameter=a>3</parameter></function>"
    assert through_the_gateway(written, parameters) == {"a": 3}
    assert through_the_gateway(written, {"type": "object"}) == {"a": "3"}
    assert through_the_gateway(written, None) == {"a": "3"}
    assert through_the_gateway(written, {"properties": [1], "$defs": 3}) == {"a": "3"}


def test_values_of_json_calls_keep_their_types() -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    call = '<tool_call>{"name": "run", "arguments": {"a": "3"}}</tool_call>'
    assert through_the_gateway(call, parameters) == {"a": "3"}


def test_references_that_multiply_cost_their_number() -> None:
    several = {f"D{n}": {"anyOf": [{"$ref": f"#/$defs/D{n + 1}"}] * 2} for n in range(200)}
    parameters = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/D0"}},
        "$defs": {**several, "D200": {"type": "integer"}},
    }
    begun = time.thread_time()
    written = "<function=run><parameter=a>3</parameter></function>"
    assert through_the_gateway(written, parameters) == {"a": 3}
    assert time.thread_time() - begun < 10
