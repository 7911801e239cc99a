"""Calls whose arguments contain the tags of calls. ``test_reading_cost`` has what hostile texts cost."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whetstone.environments.tool_calls import Call, read_calls, read_text

CALL = '<tool_call>\n{"name": "never", "arguments": {}}\n</tool_call>'
FUNCTION = "<tool_call>\n<function=never>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"
CODES = [
    's = "</tool_call>"',
    's = "</parameter>"',
    's = "</function>"',
    's = "<tool_call>" + body + "</tool_call>"',
    's = "<parameter=code>1</parameter>"',
    's = "</parameter></function>"',
    's = "</parameter></function></tool_call>"',
    's = "<function=run><parameter=code>1</parameter></function>"',
    's = "</parameter><parameter=x>"',
    "s = '</parameter>\\n</function>\\n</tool_call>'",
    'found = re.findall(r"<parameter=(.*?)>(.*?)</parameter>\\s*</function>", text)',
    'text = text.split("</think>")[-1]',
    'text = "<think>"',
    'if "</tool_call>" in text:\n    print(1)\nelse:\n    print(2)',
    f's = """\n{CALL}\n"""\nprint(s)',
    f's = """\n{FUNCTION}\n"""\nprint(s)',
    f'a = """\n{FUNCTION}\n"""\nb = """\n{CALL}\n"""\nc = """{FUNCTION}"""',
    's = """\n</tool_call>\n"""',
    's = """\n<tool_call>\n"""',
    's = """\n</parameter>\n"""',
    's = """\n</function>\n"""',
    's = """\n<function=run>\n"""',
    's = """\n</parameter>\n</function>\n"""',
    's = """\n</parameter>\n</function>\n</tool_call>\n"""\nprint(s)',
    'print(\'{"name": "x", "arguments": {}}\')',
    "# <function=run>\nprint(1)\n",
]


def as_json(code: str, name: str = "run") -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': {'code': code}})}\n</tool_call>"


def as_function(code: str, name: str = "run", after: str = "") -> str:
    return f"<function={name}>\n<parameter=code>\n{code}\n</parameter>\n{after}</function>"


@pytest.mark.parametrize("code", CODES)
def test_code_with_tags_is_read_whole_in_every_form(code: str) -> None:
    count = "<parameter=count>\n2\n</parameter>\n"
    call = Call("run", {"code": code}, untyped=True)
    assert read_calls(as_json(code)) == [Call("run", {"code": code})]
    assert read_calls(json.dumps({"name": "run", "arguments": {"code": code}})) == [
        Call("run", {"code": code})
    ]
    assert read_calls(f"I run it.\n<tool_call>\n{as_function(code)}\n</tool_call>") == [call]
    assert read_calls(f"I run it.\n{as_function(code)}") == [call]
    two = Call("run", {"code": code, "count": "2"}, untyped=True)
    assert read_calls(f"<tool_call>\n{as_function(code, after=count)}\n</tool_call>") == [two]


@pytest.mark.parametrize("first", CODES)
def test_calls_after_one_with_tags_are_read_too(first: str) -> None:
    text = f"{as_json(first)}\nand\n{as_json('2')}\n{as_function('3')}\n"
    assert [call.arguments["code"] for call in read_calls(text)] == [first, "2", "3"]
    text = f"<think>{as_json('0')}</think>\n<tool_call>\n{as_function(first)}\n</tool_call>\n{as_json('2')}"
    assert [call.arguments["code"] for call in read_calls(text)] == [first, "2"]


_TAGS = ("<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=p>", "</parameter>")
_PIECES = st.sampled_from([*_TAGS, "<think>", "</think>", "\n", '"', "\\", "{", "}", "```", " x "])
_TEXTS = st.lists(_PIECES | st.text("ab{}", max_size=3), max_size=12).map("".join)


@given(st.lists(_TEXTS, min_size=1, max_size=3), st.booleans())
def test_any_text_is_read_whole_from_json_calls(codes: list[str], ends: bool) -> None:
    text = "\n".join(as_json(code) if ends else as_json(code).removesuffix("</tool_call>") for code in codes)
    assert read_calls(text) == [Call("run", {"code": code}) for code in codes]


# Tags that end a call, with another tag behind them, end it in a text of a program too.
_END = re.compile(r"</parameter>\s*</function>\s*(?:</tool_call>\s*)*<")


@given(_TEXTS.filter(lambda text: "\n" not in text and not _END.search(text)))
def test_any_text_in_quotes_on_one_line_is_read_whole_from_a_function(text: str) -> None:
    code = f"print({text!r})"
    call = Call("run", {"code": code, "n": "1"}, untyped=True)
    reply = as_function(code, after="<parameter=n>\n1\n</parameter>\n")
    assert read_calls(reply) == [call]
    assert read_calls(f"<tool_call>\n{reply}\n</tool_call>\n{as_json(text)}") == [
        call,
        Call("run", {"code": text}),
    ]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (as_function("1"), ["1"]),
        (f"I run it: {as_function('1')}", ["1"]),
        (f"{as_function('1')}\n</tool_call>", ["1"]),
        (f"{as_function('1')}\n{as_function('2')}", ["1", "2"]),
        (f"<tool_call>\n{as_function('1')}\n{as_function('2')}\n</tool_call>", ["1", "2"]),
        (f"Then:\n\n  {as_function('1')}<|im_end|>", ["1"]),
        (f"{as_function('1')}\n\nI wait for the result.", ["1"]),
        (f"<think>\n{as_function('0')}\n</think>\n\n{as_function('1')}", ["1"]),
        ("<function=run><parameter=code>1</parameter></function>", ["1"]),
        ("<function=run>\n<parameter=code>\n1</parameter>\n</function>", ["1"]),
        (f"{as_json('1')[:-12]}\nI wait for the result.", ["1"]),
        (f"{as_json('1')[:-12]}}}\n</tool_call>", ["1"]),
        (f"{as_json('1')[:-12]}{as_json('2')[12:]}", ["1", "2"]),
    ],
)
def test_a_call_needs_no_tag_around_it_and_ends_by_itself(text: str, codes: list[str]) -> None:
    assert [call.arguments.get("code") for call in read_calls(text)] == codes
    assert not any(call.error for call in read_calls(text))


@pytest.mark.parametrize("code", CODES)
def test_arguments_of_a_function_may_be_one_object(code: str) -> None:
    written = f"<function=run>{json.dumps({'code': code, 'n': 1})}</function>"
    call = Call("run", {"code": code, "n": 1})
    for text in (written, f"I run it.\n{written}<|eom_id|>", f"Then <tool_call>{written}</tool_call>"):
        assert read_calls(text) == [call]
    assert read_calls(f"{written}\n{as_function('2')}")[0] == call
    assert read_calls(f"print('{written[:-11]}')") == []
    [malformed] = read_calls('<function=run>{"code": </function>')
    assert "not valid JSON" in malformed.error


def test_functions_without_arguments_are_calls() -> None:
    for text in ("<function=list>\n</function>", "<tool_call><function=list></function></tool_call>"):
        assert read_calls(text) == [Call("list", untyped=True)]


@pytest.mark.parametrize(
    "text",
    [
        "The form is <function=NAME>, and <parameter=NAME> is within it.",
        '```python\nprint("<function=run><parameter=code>")\n```',
        'print("<function=run><parameter=code>1</parameter></function>")',
        "<function=run> begins a call.",
        "</parameter>\n</function>",
        f"<think>\n{as_function('1')}",
    ],
)
def test_tags_in_prose_and_programs_are_no_calls(text: str) -> None:
    assert read_calls(text) == []


def test_the_text_before_the_first_call_is_kept() -> None:
    for call in (as_json("1"), as_function("1"), f"<tool_call>\n{as_function('1')}\n</tool_call>"):
        read = read_text(f"<think>a</think>I use <tool_call> now.\n{call}")
        assert (read.thinking, read.before) == ("<think>a</think>", "I use <tool_call> now.\n")
        assert len(read.calls) == 1
    assert read_text('{"name": "a", "arguments": {}}').before == ""
    assert read_text("no call").before == "no call"


def test_a_malformed_call_does_not_hide_the_next_one() -> None:
    cut = as_json("print(1)").replace('"}}', "}}")
    for text in (cut, cut.removesuffix("</tool_call>"), as_function("1").replace("</parameter>", "")):
        for following in (as_json("2"), f"<tool_call>\n{as_function('2')}\n</tool_call>"):
            first, second = read_calls(f"{text}\n{following}")
            assert first.error
            assert second.arguments["code"] == "2"
