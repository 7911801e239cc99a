"""The forms that datasets write tests in: in whatever form, the same tests come out; no pickle is run."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whetstone.core.problem import AssertTests, CallCase, CallTests, Program, StdinCase, StdinTests
from whetstone.data.sources.packed import unpack, unpickled_text
from whetstone.data.sources.programs import is_python_2, references, shown_code
from whetstone.data.sources.row_problem import limits_of
from whetstone.data.sources.source import Skip
from whetstone.data.sources.test_fields import read_tests

text = st.text(max_size=12)
protocols = st.integers(0, pickle.HIGHEST_PROTOCOL)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
cases = st.lists(st.tuples(text, text), min_size=1, max_size=4)
calls = st.lists(st.tuples(st.lists(values, max_size=3), values), min_size=1, max_size=4)


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def skipped(field: Any, **more: Any) -> str:
    with pytest.raises(Skip) as skip:
        read_tests(field, **more)
    return skip.value.reason


@given(values, protocols)
def test_a_value_is_read_out_of_every_text_that_holds_it(value: Any, protocol: int) -> None:
    for written in (
        json.dumps(value),
        json.dumps(value, ensure_ascii=False),
        f"\n{value!r}\n",
        packed(pickle.dumps(json.dumps(value), protocol)),
        packed(json.dumps(value).encode()),
    ):
        assert unpack(written, "tests") == value


@given(st.text(max_size=300), protocols)
def test_a_pickled_text_is_read_without_the_pickle_being_run(value: str, protocol: int) -> None:
    assert unpickled_text(pickle.dumps(value, protocol)) == value


class _Opens:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_pickle_of_anything_else_is_refused_and_never_run(tmp_path: Path) -> None:
    target = tmp_path / "opened"
    for data in ([1, 2], {"a": "b"}, ("x",), 7, None, b"bytes", _Opens(target)):
        pickled = pickle.dumps(data)
        with pytest.raises(ValueError, match="pickle"):
            unpickled_text(pickled)
        with pytest.raises(Skip) as skip:
            unpack(packed(pickled), "tests")
        assert skip.value.reason == "broken_tests"
    assert not target.exists()


@given(st.binary(max_size=60))
def test_bytes_that_are_no_pickle_are_refused_in_one_way(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the class is what is promised
        unpickled_text(data)


def test_a_truncated_stream_is_no_value() -> None:
    whole = packed(pickle.dumps(json.dumps([{"input": "1", "output": "2"}] * 9)))
    raw = base64.b64decode(whole)
    for cut in (1, 5, 20):
        for written in (base64.b64encode(raw[:-cut]).decode(), whole[:-cut]):
            assert skipped(written) == "broken_tests"


@settings(max_examples=40)
@given(cases)
def test_every_form_of_standard_input_gives_the_same_tests(pairs: list[tuple[str, str]]) -> None:
    inputs, outputs = [i for i, _ in pairs], [o for _, o in pairs]
    rows = [{"input": i, "output": o} for i, o in pairs]
    wanted = StdinTests([StdinCase(i, o) for i, o in pairs])
    forms: list[Any] = [
        {"inputs": inputs, "outputs": outputs},
        {"input": inputs, "output": outputs, "fn_name": None, "type": "stdin_stdout"},
        {"inputs": inputs, "outputs": outputs, "fn_name": "", "remote": False},
        rows,
        [row | {"type": "stdin_stdout"} for row in rows],
        [row | {"testtype": "stdin", "metadata": {"func_name": None}} for row in rows],
        [row | {"fn_name": None, "type": "stdin_stdout"} for row in rows],
        {"language": "python", "test_cases": rows},
        {"tests": json.dumps(rows)},
    ]
    for form in forms:
        for field in (form, json.dumps(form), repr(form), packed(pickle.dumps(json.dumps(form)))):
            assert read_tests(field) == wanted


@settings(max_examples=40)
@given(calls)
def test_every_form_of_a_called_function_gives_the_same_tests(pairs: list[tuple[list[Any], Any]]) -> None:
    listed = [{"input": args, "output": [expected]} for args, expected in pairs]
    wanted = CallTests([CallCase(expected, args) for args, expected in pairs], function="f")
    forms: list[Any] = [
        {"inputs": [r["input"] for r in listed], "outputs": [r["output"] for r in listed], "fn_name": "f"},
        [row | {"type": "function_call", "fn_name": "f"} for row in listed],
    ]
    if all(args for args, _ in pairs):
        lines = ["\n".join(json.dumps(value) for value in args) for args, _ in pairs]
        answers = [json.dumps(expected) for _, expected in pairs]
        forms.append({"inputs": lines, "outputs": answers, "fn_name": "f"})
        forms.append(
            [
                {"input": i, "output": o, "testtype": "functional", "metadata": {"func_name": "f"}}
                for i, o in zip(lines, answers, strict=True)
            ]
        )
        assert (
            read_tests([{"input": i, "output": o} for i, o in zip(lines, answers, strict=True)], function="f")
            == wanted
        )
    for form in forms:
        for field in (form, json.dumps(form), repr(form)):
            assert read_tests(field) == wanted


def test_lines_of_a_program_become_its_text() -> None:
    tests = read_tests({"inputs": [["1", "2 3"], ["a\n", "b"], [4, 5.5], 7], "outputs": ["x", [], ["y"], 8]})
    assert tests == StdinTests(
        [
            StdinCase("1\n2 3\n", "x"),
            StdinCase("a\nb\n", ""),
            StdinCase("4\n5.5\n", "y\n"),
            StdinCase("7", "8"),
        ]
    )


def test_answers_in_a_list_of_one_are_unwrapped_for_all_cases_or_for_no_case() -> None:
    def expected(outputs: list[Any], starter: str = "") -> list[Any]:
        field = {"inputs": [[n] for n in range(len(outputs))], "outputs": outputs, "fn_name": "f"}
        tests = read_tests(field, starter=starter)
        assert isinstance(tests, CallTests)
        return [case.expected for case in tests.cases]

    assert expected([[1], [[2]]]) == [1, [2]]
    assert expected([[1], [2, 3]]) == [[1], [2, 3]]
    assert expected([1, [2]]) == [1, [2]]
    assert expected([[1], [2]], "def f(n) -> List[int]:") == [[1], [2]]
    assert expected([[[1]], [[2]]], "def f(n) -> List[int]:") == [[1], [2]]
    assert expected([[[]], [[2]]], "class Solution:\n    def f(self, n) -> list[int]:\n        ") == [[], [2]]


def test_one_line_is_the_argument_unless_the_function_takes_another_number() -> None:
    field = {"inputs": ["[1, 2]"], "outputs": ["[3]"], "fn_name": "f"}

    def only_case(*programs: str) -> CallCase:
        tests = read_tests(field, programs=programs)
        assert isinstance(tests, CallTests)
        return tests.cases[0]

    assert only_case() == CallCase([3], [[1, 2]])
    assert only_case("def f(a): return a") == CallCase([3], [[1, 2]])
    assert only_case("def f(*a): return a") == CallCase([3], [[1, 2]])
    assert only_case("def f(a, b): return a") == CallCase(3, [1, 2])
    assert only_case("def f(a, b, c): return a") == CallCase([3], [[1, 2]])


def test_the_starter_names_the_function_and_its_class() -> None:
    field = [{"input": "1", "output": "2", "testtype": "functional"}]
    starter = "class Solution:\n    def __init__(self):\n    def twice(self, n: int) -> int:\n        "
    tests = read_tests(field, starter=starter)
    assert (tests.function, tests.class_) == ("twice", "Solution")  # type: ignore[union-attr]
    plain = read_tests(field, starter="def twice(n):", programs=["class Solution:\n    pass"])
    assert (plain.function, plain.class_) == ("twice", None)  # type: ignore[union-attr]
    shown = read_tests(field, function="twice", programs=["class Solution:\n  def twice(self, n): pass"])
    assert shown.class_ == "Solution"  # type: ignore[union-attr]
    assert skipped(field) == "no_function_name"
    assert skipped(field, starter="def a(n):\n\ndef b(n):") == "no_function_name"


ONE = {"input": "1", "output": "1"}
# Fields by the reason for which they are skipped.
SKIPPED: dict[str, list[Any]] = {
    "no_tests": ["", "  \n", None, [], {}, {"inputs": [], "outputs": []}, {"test_cases": []}],
    "broken_tests": ["{", "__import__('os')", "[" * 5000, "9" * 500_000],
    "malformed_tests": [
        "9" * 5000, {"inputs": ["1"], "outputs": []}, {"inputs": "1", "outputs": "2"}, {"input": ["1"]},
        [{"input": "1"}], [1, 2], 7, ["print(1)"], {"inputs": [{"a": 1}], "outputs": ["1"]},
        {"inputs": [True], "outputs": ["1"]}, {"inputs": [[["1"]]], "outputs": ["1"]},
        {"inputs": [[1]], "outputs": [1], "fn_name": "a-b"}, {"inputs": [1], "outputs": [1], "fn_name": "f"},
        {"inputs": ["1", [2]], "outputs": ["1", "2"], "fn_name": "f"},
        {"inputs": ["one"], "outputs": ["1"], "fn_name": "f"},
    ],
    "unknown_test_type": [[ONE | {"type": "checker"}], [ONE | {"type": {"a": 1}}]],
    "mixed_tests": [
        {"input": ["", ""], "output": ["", ""], "type": ["stdin", "functional"]},
        [ONE | {"testtype": kind} for kind in ("stdin", "functional")],
        [{"input": [1], "output": [1], "fn_name": name} for name in ("f", "g")],
    ],
}  # fmt: skip


def test_a_field_without_tests_is_skipped_with_its_reason() -> None:
    for reason, fields in SKIPPED.items():
        assert [field for field in fields if skipped(field) != reason] == []


@given(
    values
    | st.binary(max_size=20)
    | st.dictionaries(st.sampled_from(["inputs", "outputs", "tests", "type"]), values)
)
def test_any_value_gives_tests_or_a_reason(field: Any) -> None:
    try:
        tests = read_tests(field)
    except Skip:
        return
    assert isinstance(tests, StdinTests | CallTests | AssertTests)


def test_a_list_of_asserts_is_kept() -> None:
    statements = ["assert f(1) == 2", "assert f(2) == 4"]
    assert read_tests(statements) == AssertTests(asserts=statements)
    assert read_tests(json.dumps(statements)) == AssertTests(asserts=statements)


def test_programs_come_out_of_their_fences_in_the_language_that_these_say() -> None:
    written = [
        "```python\nprint(1)\n```",
        "```cpp\nint main() {}\n```\n",
        "print(2)",
        "```brainfuck\n+\n```",
        "",
        None,
    ]
    programs, left_out = references(written)
    assert programs == [
        Program("python", "print(1)\n"),
        Program("cpp17", "int main() {}\n"),
        Program("python", "print(2)"),
    ]
    assert left_out == {"brainfuck": 1, "empty": 2}
    assert references(["puts 1"], "ruby") == ([], {"ruby": 1})


PYTHON_2 = [
    "print 1", "n = input()\nprint n + 1", "n = raw_input()\nprint(n)", "for i in xrange(3): print(i)",
    "print >> out, 1", "print >>sys.stderr, 1", "try:\n    pass\nexcept ValueError, e:\n    pass",
    "if a <> b:\n    pass", "d = {}\nfor k, v in d.iteritems():\n    pass", "# Python 2\nprint(7 / 2)",
    "#!/usr/bin/env python2\nprint(1)",
]  # fmt: skip
NOT_PYTHON_2 = [
    "print(1)", "print (1)", "print", "# Python 3\nprint(1)", "# print n\nx = 1", "", "print('raw_input')",
    "try:\n    input = raw_input\nexcept NameError:\n    pass\nprint(input())", "n = int(input())\nprint(n",
    "def xrange(n): return range(n)\nfor i in xrange(3): print(i)", "raw_input = input\nprint(raw_input())",
    "def f(long): return long", "x = (1, '<>')", "def broken(:", "int main() { return 0; }",
    "try:\n    pass\nexcept (ValueError, e):\n    pass", "try:\n    pass\nexcept KeyError:\n    a, b = 1, 2",
]  # fmt: skip


def test_programs_for_python_2_are_recognised() -> None:
    assert [source for source in PYTHON_2 if not is_python_2(source)] == []
    assert [source for source in NOT_PYTHON_2 if is_python_2(source)] == []


def test_the_code_that_a_statement_shows_is_its_starter() -> None:
    shown = "Text.\n```\n1 2\n```\nUse this:\n```python\nclass Solution:\n    def f(self):\n        \n```\n"
    assert shown_code(shown) == "class Solution:\n    def f(self):\n        \n"
    assert shown_code("No code here.\n```\n3\n```") == ""


def test_limits_are_read_in_the_units_that_sites_write() -> None:
    for time, memory, cpu_s, memory_mb in (
        ("2.0 seconds", "256.0 megabytes", 6.0, 1024.0),
        ("10 seconds", "2 GB", 10.0, 2048.0),
        ("9000 ms", "2097152 KB", 9.0, 2048.0),
        (12, 4096, 12.0, 4096.0),
        (7.5, "3221225472 bytes", 7.5, 3072.0),
        (None, None, 6.0, 1024.0),
        ("long", {"seconds": 1}, 6.0, 1024.0),
    ):
        limits = limits_of(time, memory)
        assert (limits.cpu_s, limits.memory_mb) == (cpu_s, memory_mb)
