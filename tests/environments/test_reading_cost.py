"""Environments read what a model writes in time proportional to its length.

``tests/judge/test_hostile_replies.py`` has the same for the extraction of programs, and says how cost is
measured. ``python -m tests.environments.test_reading_cost SECONDS SEED`` searches for longer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from tests.environments.tools_of_tests import TEMPLATE, tokenizer_with
from tests.judge import reply_search
from tests.judge.reply_search import cpu_s, search
from tests.judge.test_hostile_replies import LENGTH, SMALL_S, is_linear, repeated
from whetstone.core.http.refusal import RequestRefused
from whetstone.core.problem import CallCase, CallTests, Problem, StdinCase, StdinTests
from whetstone.core.verdict import CaseJudgement, Verdict
from whetstone.environments.chat_api import ChatRequest, answer_to, read_request
from whetstone.environments.conversation import Reply, ReplyLimits, ToolCall
from whetstone.environments.feedback import describe_case
from whetstone.environments.formats.family import FAMILIES, Family
from whetstone.environments.formats.marks import Marks
from whetstone.environments.formats.reading import parsed_calls, read_plain
from whetstone.environments.generated_cases import InvalidCases, contains_example, read_cases
from whetstone.environments.tool import ToolError, checked_arguments
from whetstone.environments.tool_calls import calls_of, read_calls
from whetstone.environments.tools import clipped

TEXTS = Problem("s", "Example: 1 -> 2", StdinTests([StdinCase("1", "2")]))
CALLS = Problem("c", "Example: 1 -> 2", CallTests([CallCase("2", ["1"])], "f", literals=True))
SCHEMA = {"properties": {"a": {"type": "array"}, "b": {"type": "string"}}}
TOKENIZER = tokenizer_with(TEMPLATE)
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
REQUEST = ChatRequest([], [], [TOOL], ReplyLimits(stop=("STOP", "x")), True, False, False, [])


def _read_cases(problem: Problem, text: str) -> None:
    with suppress(InvalidCases):
        read_cases(text, problem, count=1, most_bytes=10**6)


def _call_tools(text: str) -> None:
    for call in [*read_calls(text), *calls_of(Reply(0, "", "stop", tool_calls=[ToolCall("f", text)]))]:
        assert len(call.error) < 200
        with suppress(ToolError):
            checked_arguments(call, SCHEMA)


def _request(text: str) -> None:
    call = {"function": {"name": text, "arguments": text}}
    said = {"role": "assistant", "content": [{"type": "text", "text": text}], "tool_calls": [call]}
    with suppress(RequestRefused):
        read_request(json.dumps({"messages": [said, {"role": "user", "content": text}], text: 1}).encode())
    with suppress(RequestRefused):
        read_request(text.encode())


def _copy_example(text: str) -> None:
    """A statement with texts that repeat, and a model that copies long or short parts of it."""
    for given in (text[: len(text) // 2], f"{text[: len(text) // 2]}!", text[:1]):
        contains_example(f"Example: {text}", given, text[-1:])


def _failed(text: str) -> None:
    describe_case(CaseJudgement(Verdict.RUNTIME_ERROR, reason=text[:500]))
    clipped(text, 4000)


def family_marks(family: Family) -> list[str]:
    calls, channels = family.calls, family.channels
    marks = [*family.thinking, *family.drop, *(calls.marks() if calls else ())]
    return [
        *marks,
        *([channels.start, channels.channel, channels.message, *channels.ends] if channels else ()),
    ]


def _read_format(family: Family, text: str) -> None:
    if any(mark in text for mark in family_marks(family)):
        read_plain(family, text)


READERS: dict[str, Callable[[str], object]] = {
    "cases of texts": partial(_read_cases, TEXTS),
    "cases of calls": partial(_read_cases, CALLS),
    "copies of examples": _copy_example,
    "tool calls": _call_tools,
    "calls of a template": lambda text: parsed_calls(TOKENIZER, text, "[assistant]", []),
    **{f"format {each.name}": partial(_read_format, each) for each in FAMILIES.values() if Marks(each)},
    "answers": lambda text: answer_to(REQUEST, Reply(0, text, "stop"), 1),
    "requests": _request,
    "failures": _failed,
}


FORMS = [each for family in FAMILIES.values() if Marks(family) for each in [family_marks(family)]]
TOKENS = [
    *("{", "}", "[", "]", '"', ":", ",", "\\", "\\u12", "\\ud800", "\n", " ", "\t", "'", ".", "-", "e9"),
    *("1", "9@", "true", "nul", "NaN", "1e999", "x", "a@", "é", "\U0001f600", "\0", "<", ">", "/"),
    *('{"a@": ', '{"a": ', '{"a": [', '"a@": 1, ', '{"inputs": ["', '"], "outputs": ["', '"cases": [', "]}"),
    *('{"input": "', '{"name": "f", "arguments": ', '"parameters": ', "<tool_call>", "</tool_call>"),
    *("\n<tool_call>", "<function=f>", "<function=", "</function>", "<parameter=a>", "<parameter=a@>"),
    *("<parameter=", "</parameter>", "[CALL]", "[END]", "[assistant]", "<think>", "</think>", "```json\n"),
    *("```\n", "```", "STOP", "Example", "call:f{", "f(a=", "function", "functions.f:0", "to=functions.f "),
    *('<invoke name="f">', "</invoke>", '<parameter name="a">', '<parameter name="a@">'),
    *(mark for family in FAMILIES.values() if Marks(family) for mark in family_marks(family)),
]
"""In a repeated unit, @ stands for the number of the repetition."""

TAGS: list[tuple[tuple[str, ...], ...]] = [
    (("<tool_call>{",),),
    (("\n<function=a>{",),),
    (('\n<function=a>{"',), (':0,"',)),
    (('<tool_call>{"',),),
    (('<tool_call>{":0,"',), (':0,"',)),
    (('<tool_call>{"a":["',), ("]",)),
    (("<tool_call>{",), ('"a":{',)),
    (("\n<function=a><parameter=a>",),),
    (("\n<function=a><parameter=a>",), ("</parameter></function>\n",)),
    (("<function=a><parameter=a>",), ("</parameter><parameter=a>",)),
    (("\n<function=a><parameter=a>1</parameter></function>\n",), ("</parameter></function>\n",)),
    (("</parameter>", " "), ("<parameter=a>",)),
    (("<tool_call>",), (" ",), ("<function=a>",)),
    (("\n<tool_call>",), ("<function=",)),
    (("{}",),),
    (("<tool_call>{}",), ("{}",)),
    (("<tool_call>{", "[" * 200),),
    (("<tool_call>",), ('{"',), ("\\",)),
]
"""Shapes of tags of calls: each part is repeated."""

UNITS = [
    *("<tool_call>", "\n<tool_call>", "<tool_call>{", '<tool_call>{"', '<tool_call>{"a":"'),
    *('<tool_call>{":0,"', '\n<tool_call>{"a":["', '{"name":"x","arguments":', "[" * 7, "\\", '"'),
    *("\t<tool_call> ", "<function=a>", "<tool_call><function=a><parameter=a>", "</parameter>"),
    *("<think>", "</think>", "```json\n", "9", "0.9e", "<tool_response>"),
]
ENDS = [("", ""), ("<tool_call>", "</tool_call>"), ('{"name": ', "}")]

RESTS = [
    "",
    '{"',
    "f",
    "call:f{",
    "[f(",
    "<function=f><parameter=a>",
    '<invoke name="f"><parameter name="a">',
]
HOSTILE: dict[str, Callable[[int], str]] = {
    **{f"tags {number}": reply_search.Shape((), shape, ()).text for number, shape in enumerate(TAGS)},
    **{f"{before}{unit}…{after}": repeated(unit, before, after) for unit in UNITS for before, after in ENDS},
    **{f"{mark}{rest}…": repeated(f"{mark}{rest}") for form in FORMS for mark in form for rest in RESTS},
    **{f"all of {form[0]}": repeated(" f ".join(form)) for form in FORMS},
    "pairs within pairs": repeated(
        "<arg_key>a</arg_key><arg_value><tool_call>f<arg_key>a</arg_key><arg_value></arg_value>",
        "<tool_call>f",
    ),
    "pairs without an end in one value": repeated(
        "<tool_call>f<arg_key>a</arg_key><arg_value>", after="</arg_value><arg_key>"
    ),
    "objects that begin": repeated("{"),
    "objects that begin with a name": repeated('{"'),
    "objects that begin on lines": repeated('{\n"'),
    "objects in objects": repeated('{"a":'),
    "objects in lists": repeated('{"a":[1,'),
    "small objects": repeated('{"a":1}\n'),
    "texts that do not end": repeated('{"x": "'),
    "texts that end in the next one": repeated('{"x": "' + "y" * 200 + "\n"),
    "numbers that are too long": repeated('{"a": ' + "9" * 5000 + "}"),
    "long fractions": repeated('{"a": ' + "9" * 4000 + ".5},"),
    "numbers beyond a double": repeated('{"a": 1e999}\n'),
    "one long text": repeated("x", '{"inputs": ["', '"], "outputs": ["2"]}'),
    "one long text of escapes": repeated("\\u00e9", '{"inputs": ["', '"], "outputs": ["2"]}'),
    "one deep list": repeated("[", '{"inputs": '),
    "many names": reply_search.Shape(("{",), (('"a@": 1, ',),), ('"b": 2}',)).text,
    "one name": repeated('"a": 1, ', "{", '"b": 2}'),
    "calls that begin": repeated("<tool_call>"),
    "calls on lines": repeated("\n<tool_call>{"),
    "calls that end": repeated("</tool_call>"),
    "functions that begin": repeated("<function=f>", "<tool_call>"),
    "parameters that do not end": repeated("<parameter=a>", "<tool_call><function=f>", "</function>"),
    "parameters": reply_search.Shape(
        ("<tool_call><function=f>",), (("<parameter=a@>", "1", "</parameter>"),), ("</function>",)
    ).text,
    "calls of the template": repeated("[CALL]{"),
    "calls of the template that end": repeated('[CALL]{"name": "f"}[END]'),
    "marks of a grid": repeated("."),
    "zeros": repeated("0 "),
    "digits": repeated("0"),
    "stop texts": repeated("STO"),
    "thinking": repeated("<think></think>"),
    "blanks": repeated(" "),
    "blanks after a fence": repeated(" ", "```json"),
}


@pytest.mark.cost
@pytest.mark.drawn(15)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_text_is_read_in_linear_time(kind: str) -> None:
    text = HOSTILE[kind](LENGTH)
    for name, read in READERS.items():
        if cpu_s(partial(read, text)) > SMALL_S / 2:
            assert is_linear(read, HOSTILE[kind]), name


@pytest.mark.extended
@pytest.mark.cost
@pytest.mark.parametrize("seed", range(2))
def test_a_search_finds_no_text_that_takes_longer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_search, "TOKENS", TOKENS)
    for cost, name, shape in search(2.5, seed, LENGTH // 4, readers=READERS):
        if cost > SMALL_S / 4:
            assert is_linear(READERS[name], shape.text), (name, shape)


if __name__ == "__main__":
    reply_search.TOKENS[:] = TOKENS
    for _, found, dearest in search(float(sys.argv[1]), int(sys.argv[2]), LENGTH // 4, readers=READERS):
        costs = [cpu_s(partial(READERS[found], dearest.text(n)), 2) for n in (25_000, 50_000, 100_000)]
        print(found, *(f"{cost:.3f}" for cost in costs), dearest, flush=True)
