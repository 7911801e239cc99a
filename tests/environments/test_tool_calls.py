"""The calls in a reply: what is one, what is text of the model, and what a hostile text costs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.environments.scripted import TOKENIZER
from tests.environments.tools_of_tests import TEMPLATE, call_text, tokenizer_with
from whetstone.environments.conversation import Reply, ToolCall
from whetstone.environments.formats.reading import parsed_calls
from whetstone.environments.tool import ToolError, checked_arguments
from whetstone.environments.tool_calls import Call, MalformedCall, calls_of, read_calls, read_json

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**300), 10**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)
_ARGUMENTS = st.dictionaries(_TEXTS, _JSON, max_size=4)
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_PROSE = st.text('ab\n {}[]":,`~#', max_size=30)


@given(st.lists(st.tuples(_NAMES, _ARGUMENTS), min_size=1, max_size=4), _PROSE, st.booleans())
def test_calls_that_are_written_are_read(calls: list[tuple[str, Any]], prose: str, thinks: bool) -> None:
    text = "\n".join([prose, *(call_text(name, arguments) for name, arguments in calls), prose])
    if thinks:
        text = f"<think>{call_text('never', {})}</think>{text}"
    assert read_calls(text) == [Call(name, arguments) for name, arguments in calls]


@given(_NAMES, _ARGUMENTS, st.sampled_from(["arguments", "parameters"]), st.booleans())
def test_a_reply_that_is_one_object_is_a_call(name: str, arguments: Any, key: str, fenced: bool) -> None:
    text = json.dumps({"name": name, key: arguments}, ensure_ascii=False)
    text = f"```json\n{text}\n```" if fenced else f" {text}\n"
    assert read_calls(text) == [Call(name, arguments)]
    assert read_calls(f"Here it is: {text}") == []


_VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=20)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), _VALUES, max_size=3))
def test_calls_in_the_form_of_qwen3_coder_are_read(arguments: dict[str, str]) -> None:
    inner = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in arguments.items())
    text = f"I run it.\n<tool_call>\n<function=run>\n{inner}</function>\n</tool_call>"
    assert read_calls(text) == [Call("run", arguments, untyped=True)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The answer is 4.",
        '{"answer": 4}',
        '{"name": "Ann"}',
        '{"name": 3, "arguments": {}}',
        '```python\nprint("<tool_call>")\n```',
        "<tool_response>\n42\n</tool_response>",
        "<|im_start|>tool\n42<|im_end|>",
        "</tool_call>",
        "The tag <tool_call> begins a call.",
        f"<think>{call_text('python', {'code': '1'})}",
        f"<think>{call_text('python', {'code': '1'})}</think>No.",
        '[{"name": "python", "arguments": {}}]',
    ],
)
def test_other_text_is_no_call(text: str) -> None:
    assert read_calls(text) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "not valid JSON"),
        ("print(1)", "not valid JSON"),
        ('{"name": "python", "arguments": {"code": "1"}', "not valid JSON"),
        ('["python"]', "not a JSON object"),
        ('{"arguments": {}}', "no `name`"),
        ('{"name": ["python"], "arguments": {}}', "no `name`"),
        ('{"name": "python", "arguments": [1]}', "`arguments` is not a JSON object"),
        ('{"name": "python", "arguments": "[1]"}', "not a JSON object"),
        ('{"name": "python", "name": "other", "arguments": {}}', "`name` is given twice"),
        ('{"name": "python", "arguments": {"a": 1, "b": 2, "a": 3}}', "`a` is given twice"),
        ('{"name": "python", "arguments": {"a": NaN}}', "NaN is not valid JSON"),
        ('{"name": "python", "arguments": {"a": -Infinity}}', "-Infinity is not valid JSON"),
        ('{"name": "python", "arguments": {"a": 1e999}}', "too large"),
        (f'{{"name": "python", "arguments": {{"a": {"9" * 5000}}}}}', "too many digits"),
        (f'{{"name": "python", "arguments": {{"a": 0.{"9" * 5000}}}}}', "too many digits"),
        ('{"name": "python", "arguments": {"a": "\\ud800"}}', "not valid Unicode"),
        ('{"name": "python", "arguments": {"a": "\ud800"}}', "not valid Unicode"),
        (f'{{"name": "python", "arguments": {{"a": {"[" * 40}{"]" * 40}}}}}', "nested too deeply"),
        (f'{{"name": "python", "arguments": {{"a": {"[" * 99999}{"]" * 99999}}}}}', "nested too deeply"),
        ("<function=run>", "`</function>` is missing"),
        ("<function=run><parameter=a>1</function>", "`</parameter>` is missing"),
        ("<function=run><parameter=a>1</parameter><parameter=a>1</parameter></function>", "given twice"),
        ("<function=run><parameter=a>\ud800</parameter></function>", "not valid Unicode"),
    ],
)
def test_a_call_that_cannot_be_read_says_why(body: str, words: str) -> None:
    [call] = read_calls(f"<tool_call>\n{body}\n</tool_call>")
    assert words in call.error
    call.error.encode()


def test_arguments_may_be_a_text_with_json_and_texts_may_have_line_ends() -> None:
    [call] = read_calls('<tool_call>{"name": "a", "arguments": "{\\"b\\": 1}"}</tool_call>')
    assert call == Call("a", {"b": 1})
    [call] = read_calls('<tool_call>{"name": "a", "arguments": {"b": "x\ny\t"}}</tool_call>')
    assert call == Call("a", {"b": "x\ny\t"})
    assert read_calls('<tool_call>{"name": "a"}</tool_call>') == [Call("a")]


def test_a_missing_end_tag_ends_with_the_next_call_or_the_text() -> None:
    one, two = '<tool_call>\n{"name": "a"}\n', '<tool_call>\n{"name": "b"}\n'
    assert read_calls(one + two) == [Call("a"), Call("b")]
    assert read_calls(f"Text {one}</tool_call>{two}</tool_call>") == [Call("a"), Call("b")]


def test_reported_calls_are_taken_as_they_are() -> None:
    reported = [ToolCall("a", '{"b": 1}', "7"), ToolCall("a", "{b", "8"), ToolCall("c", "[]")]
    valid, *wrong = calls_of(Reply(0, call_text("other", {}), "stop", tool_calls=reported))
    assert valid == Call("a", {"b": 1}, id="7")
    assert [call.id for call in wrong] == ["8", ""]
    assert all("cannot be read" in call.error for call in wrong)
    assert calls_of(Reply(0, call_text("other", {}), "stop", tool_calls=[])) == []


@given(st.text('<>/tool_cal{}[]":,\\ \n`funparmet=think', max_size=200))
def test_any_text_is_read_without_an_error_of_ours(text: str) -> None:
    for call in read_calls(text):
        assert call.error or call.name


@given(_JSON)
def test_json_is_read_as_by_python(value: Any) -> None:
    assert read_json(json.dumps(value)) == json.loads(json.dumps(value))


SCHEMA = {
    "type": "object",
    "properties": {
        "code": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": ["number", "null"]},
        "deep": {"type": "boolean"},
        "items": {"type": "array"},
        "any": {},
    },
    "required": ["code"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "`code` is missing"),
        ({"code": 1}, "`code` must have the JSON type string"),
        ({"code": None}, "`code` must have the JSON type string"),
        ({"code": "", "count": True}, "`count` must have the JSON type integer"),
        ({"code": "", "count": 1.0}, "`count` must have the JSON type integer"),
        ({"code": "", "share": "1"}, "`share` must have the JSON type number or null"),
        ({"code": "", "deep": 1}, "`deep` must have the JSON type boolean"),
        ({"code": "", "items": {}}, "`items` must have the JSON type array"),
        ({"code": "", "\x1b[2J" + "x" * 999: 1}, r"no argument `\x1b[2Jxxx"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolError) as refused:
        checked_arguments(Call("run", arguments), SCHEMA)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 250


def test_arguments_that_fit_are_kept_and_texts_get_their_type() -> None:
    given = {"code": "7", "count": 3, "share": None, "deep": True, "items": [1], "any": {}}
    assert checked_arguments(Call("run", given), SCHEMA) == given
    texts = {"code": "7", "count": "3", "share": "null", "deep": "true", "items": "[1]", "any": "{}"}
    typed = {**given, "any": "{}"}
    assert checked_arguments(Call("run", texts, untyped=True), SCHEMA) == typed
    with pytest.raises(ToolError, match="`count` is not valid JSON"):
        checked_arguments(Call("run", {"code": "", "count": '3, "x": 4'}, untyped=True), SCHEMA)
    with pytest.raises(MalformedCall):
        read_json("1 2")


def test_a_response_template_finds_calls_in_a_format_of_its_own() -> None:
    def parsed(reply: str, template: Any = TEMPLATE, before: str = "x[assistant]") -> list[ToolCall] | None:
        return parsed_calls(tokenizer_with(template), reply, before, [])

    said = '[CALL]{"name": "a", "arguments": {"b": 1}}[END] and [CALL]{"name": "c"}[END]'
    assert parsed(said) == [ToolCall("a", '{"b": 1}'), ToolCall("c", "{}")]
    assert parsed(f"<think>{said}</think>no") == []
    assert parsed(f"{said}</think>no", before="[assistant]<think>") == []
    assert parsed("no call") == []
    # Then the text is read.
    assert parsed("[CALL]{'name'[END]") is None
    assert parsed('[CALL]{"name": 3}[END]') is None
    assert parsed('[CALL]["a"][END]') is None
    assert parsed('[CALL]{"b": 3}[END]') is None
    assert parsed_calls(TOKENIZER, said, "[assistant]", []) is None


@pytest.mark.parametrize(
    "field",
    [
        {"open_pattern": r"(a|a)*b", "close": "[END]"},
        {"open": "[CALL]", "close_pattern": "x"},
        {
            "open": "[CALL]",
            "close": "[END]",
            "content": "xml-inline",
            "content_args": {"tag_pattern": "(a+)+"},
        },
        {"open": "[CALL]", "close": "[END]", "content": "json", "content_args": {"unquoted_keys": True}},
    ],
)
def test_a_response_template_of_unbounded_cost_is_not_used(field: dict[str, Any]) -> None:
    template = {**TEMPLATE, "fields": {"content": {}, "tool_calls": field}}
    assert parsed_calls(tokenizer_with(template), "aaaa", "[assistant]", []) is None


@pytest.mark.timeout(600)
def test_a_reply_that_would_take_the_template_long_is_not_parsed_by_it() -> None:
    reply = '[CALL]{"name": "a"}[END]' * 100_000
    assert parsed_calls(tokenizer_with(TEMPLATE), reply, "[assistant]", []) is None
