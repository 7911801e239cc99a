"""Ways into acceptance, or out of a verdict, that were found by attacking the judge on purpose."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.judge.judge_problems import assert_problem, call_problem, python, stdin_problem
from tests.judge.test_judge_attacks import rejected
from whetstone.judge import Judge, Verdict
from whetstone.judge.values import WireError, decode

# Speaks the wire of an assert test itself, instead of the harness.
WIRE = r"""
import os, struct
def S(data): return struct.pack('<Q', len(data))
def text(s): return b's' + S(s) + s
def items(*parts): return b'l' + struct.pack('<Q', len(parts)) + b''.join(parts)
def number(i): return b'i' + struct.pack('<q', i)
def pairs(*parts): return b'd' + struct.pack('<Q', len(parts) // 2) + b''.join(parts)
def function(n): return b'h' + items(text(b'object'), number(n), items(b'T', b'F', b'F'), items(), pairs())
def send(data): os.write(8, S(b'!' + data) + b'!' + data)
def exactly(n):
    data = b''
    while len(data) < n: data += os.read(8, n - len(data))
    return data
def receive(): return exactly(struct.unpack('<Q', exactly(8))[0])
def serve(value):
    while True:
        asked = receive()
        if b'ping' in asked:
            send(items(items(text(b'returned'), asked[asked.index(b'ping') + 4:]), number(0), items()))
        else:
            send(items(items(text(b'returned'), value), number(0), items()))
send(items(text(b'loaded')))
"""


@pytest.mark.parametrize(
    ("injected", "code"),
    [
        ("abs", "assert abs(f(3) - 2) < 1e-6"),
        ("isinstance", "assert not isinstance(f(3), int)"),
        ("len", "assert len([f(3), 1]) == 0"),
    ],
)
def test_a_program_cannot_put_names_into_the_tests_globals(judge: Judge, injected: str, code: str) -> None:
    """The request for names is answered with a longer list of what was asked for."""
    source = WIRE + (
        f"name = text({injected.encode()!r})\nreceive()\n"
        "found = pairs(text(b'f'), function(1), name, function(2))\n"
        "asked = items(text(b'f'), name)\n"
        "send(items(items(text(b'returned'), found), number(2), items(items(number(1), asked))))\n"
        "serve(number(0))\n"
    )
    judgement = judge.judge(assert_problem(asserts=[code]), python(source))
    assert rejected(judgement), judgement


def test_the_forged_wire_is_what_the_honest_harness_speaks(judge: Judge) -> None:
    """The forger of the test above, giving the right answer: so its refusals are not for bad grammar."""
    source = WIRE + (
        "receive()\n"
        "send(items(items(text(b'returned'), pairs(text(b'f'), function(1))), number(0), items()))\n"
        "serve(number(2))\n"
    )
    judgement = judge.judge(assert_problem(asserts=["assert -1e-6 < f(3) - 2 < 1e-6"]), python(source))
    assert judgement.accepted, judgement


@pytest.mark.parametrize("alias", ["Exception", "BaseException", "AssertionError", "(Exception, ValueError)"])
def test_an_alias_of_a_builtin_exception_does_not_catch_a_failed_assertion(judge: Judge, alias: str) -> None:
    code = "try:\n    f(-1)\n    assert False\nexcept Bad:\n    pass"
    problem = assert_problem(asserts=[code])
    assert rejected(judge.judge(problem, python(f"Bad = {alias}\ndef f(x): return x")))
    honest = "class Bad(Exception): pass\ndef f(x): raise Bad(x)"
    assert judge.judge(problem, python(honest)).accepted
    assert judge.judge(problem, python("Bad = Exception\ndef f(x): raise Bad(x)")).accepted


@pytest.mark.parametrize(
    "tests",
    [
        {"check": "async def check(f):\n    assert f(1) == 2", "entry_point": "f"},
        {"check": "def check(f):\n    yield\n    assert f(1) == 2", "entry_point": "f"},
        {
            "unittest": "import unittest\nclass T(unittest.TestCase):\n"
            "    async def test_a(self): self.assertEqual(f(1), 2)\n"
        },
        {
            "unittest": "import unittest\nclass T(unittest.TestCase):\n"
            "    def test_a(self):\n        yield\n        self.assertEqual(f(1), 2)\n"
        },
    ],
)
def test_a_test_that_never_runs_accepts_nobody(judge: Judge, tests: dict[str, Any]) -> None:
    judgement = judge.judge(assert_problem(**tests), python("def f(x): return 0"))
    assert judgement.verdict is Verdict.JUDGE_ERROR, judgement


def test_a_unit_test_that_awaits_is_run(judge: Judge) -> None:
    code = (
        "import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n"
        "    async def test_a(self): self.assertEqual(f(1), 2)\n"
    )
    problem = assert_problem(unittest=code)
    assert judge.judge(problem, python("def f(x): return 2")).accepted
    assert judge.judge(problem, python("def f(x): return 3")).verdict is Verdict.WRONG_ANSWER


@pytest.mark.parametrize(
    ("printed", "wanted", "right"),
    [
        ("101", "00000101", False),
        ("7", "007", False),
        ("007", "007", True),
        ("7.0", "7", True),
        ("0", "0", True),
    ],
)
def test_padding_of_an_expected_number_is_part_of_the_answer(
    judge: Judge, printed: str, wanted: str, right: bool
) -> None:
    judgement = judge.judge(stdin_problem(("", wanted)), python(f"print({printed!r})"))
    assert judgement.accepted is right, judgement


# Each would leave the program without a verdict, which costs nothing in training: as good as a pass.
@pytest.mark.parametrize("returned", ["range(10**30)", "{range(10**10), 1}", "[range(10**30)]"])
def test_a_vast_range_is_a_wrong_answer(judge: Judge, returned: str) -> None:
    problem = call_problem("f", ([1], [1, 2]), ([1], [[1]]))
    judgement = judge.judge(problem, python(f"def f(x): return {returned}"))
    assert judgement.verdict is Verdict.WRONG_ANSWER, judgement


def test_keys_of_one_hash_do_not_stall_the_judge(judge: Judge) -> None:
    """One more key than collides is not a way around the limit."""
    source = (
        "import os, struct\n"
        "def f(x):\n"
        "    n = 100_000\n"
        "    keys = [(2**61 - 1) * i for i in range(n)] + list(range(1, n))\n"
        "    body = b''.join(b'I' + struct.pack('<Q', 16) + k.to_bytes(16, 'little') for k in keys)\n"
        "    value = b's' + struct.pack('<Q', 5) + b'value'\n"
        "    data = b'l' + struct.pack('<Q', 2) + value + b'S' + struct.pack('<Q', len(keys)) + body\n"
        "    while data: data = data[os.write(7, data):]\n"
        "    os._exit(0)\n"
    )
    problem = {**call_problem("f", ([1], [1, 2])), "limits": {"cpu_s": 5.0, "output_mb": 16.0}}
    judgement = judge.judge(problem, python(source))
    assert judgement.verdict is Verdict.WRONG_ANSWER, judgement


def test_honest_values_of_few_hashes_are_read(judge: Judge) -> None:
    problem = call_problem("f", ([1500], [1500, 1 << 1499]))
    source = "def f(n):\n    s = {1 << i for i in range(n)}\n    return [len(s), max(s)]"
    assert judge.judge(problem, python(source)).accepted
    wanted = assert_problem(asserts=["assert f(1500) == {1 << i for i in range(1500)}"])
    assert judge.judge(wanted, python("def f(n): return {1 << i for i in range(n)}")).accepted


def test_output_that_a_checker_cannot_read_is_a_wrong_answer(judge: Judge) -> None:
    checker = {
        "type": "python",
        "source": "def check(i, output, expected): return int(output) == int(expected)",
    }
    problem = stdin_problem(("2", "4"), checker=checker)
    assert judge.judge(problem, python("print('abc')")).verdict is Verdict.WRONG_ANSWER
    assert judge.judge(problem, python("print(4)")).accepted
    broken = {"type": "python", "source": "def check(i, output, expected): return int('abc')"}
    judgement = judge.judge(stdin_problem(("2", "4"), checker=broken), python("print('abc')"))
    assert judgement.verdict is Verdict.JUDGE_ERROR, judgement


@pytest.mark.parametrize(
    "problem",
    [call_problem("f", ([1], 2)), assert_problem(asserts=["assert f(1) == 2"])],
    ids=["call", "assert"],
)
def test_a_reason_can_be_written_as_text(judge: Judge, problem: dict[str, Any]) -> None:
    judgement = judge.judge(problem, python("def f(x): raise ValueError('\\ud800')"))
    assert judgement.verdict is Verdict.RUNTIME_ERROR
    assert json.dumps(judgement.reason, ensure_ascii=False).encode()


def test_a_function_of_the_test_may_change_what_the_program_gave_it(judge: Judge) -> None:
    problem = assert_problem(asserts=["assert f(lambda rows: rows.reverse()) == [[2], [1]]"])
    source = "def f(g):\n    rows = [[1], [2]]\n    g(rows)\n    return rows"
    judgement = judge.judge(problem, python(source))
    assert judgement.accepted, judgement


def test_threads_of_a_program_may_call_the_tests_function(judge: Judge) -> None:
    problem = assert_problem(asserts=["assert f(lambda x: x * x, [1, 2, 3] * 10) == [1, 4, 9] * 10"])
    source = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def f(g, xs):\n    with ThreadPoolExecutor(8) as pool: return list(pool.map(g, xs))"
    )
    judgement = judge.judge(problem, python(source))
    assert judgement.accepted, judgement


COUNTING = "def f(n=0):\n    while True:\n        yield n\n        n += 1"
FAILING = "def f():\n    for n in range(100):\n        yield n\n    raise KeyError('end')"


@pytest.mark.parametrize(
    ("code", "source"),
    [
        ("from itertools import islice\nassert list(islice(f(), 50)) == list(range(50))", COUNTING),
        ("assert [a for a, _ in zip(f(), range(30))] == list(range(30))", COUNTING),
        ("for x in f():\n    if x == 40: break\nassert x == 40 and 77 in f()", COUNTING),
        ("g = f()\nassert next(g) == 0\nfor x in g:\n    if x == 20: break\nassert next(g) == 21", COUNTING),
        ("g = f()\nassert [p for p, _ in zip(zip(g, g), 'abc')] == [(0, 1), (2, 3), (4, 5)]", COUNTING),
        (
            "g = f()\nassert list(g) == [0, 1] and list(g) == [] and next(g, 5) == 5",
            "f = lambda: iter([0, 1])",
        ),
        ("n = 0\ntry:\n    for x in f(): n += 1\nexcept KeyError: n += 1000\nassert n == 1100", FAILING),
        ("assert sum(f()) == 4999950000", "def f(): yield from range(100000)"),
    ],
)
def test_an_iterator_is_asked_for_little_more_than_is_used(judge: Judge, code: str, source: str) -> None:
    judgement = judge.judge(assert_problem(asserts=[code]), python(source))
    assert judgement.accepted, judgement


@pytest.mark.parametrize("code", ["assert list(f()) == 2", "assert 2.5 in f()"])
def test_an_endless_iterator_that_is_read_to_its_end_is_a_limit(judge: Judge, code: str) -> None:
    judgement = judge.judge(assert_problem(asserts=[code]), python(COUNTING))
    assert judgement.verdict in (Verdict.TIME_LIMIT, Verdict.MEMORY_LIMIT), judgement


@pytest.mark.drawn(1)
@pytest.mark.parametrize("tag", [b"E", b"C", b"O"])
def test_empty_containers_cannot_fill_the_memory_of_who_reads_them(tag: bytes) -> None:
    """Nine bytes on the wire, many hundreds in memory."""
    empty = tag + bytes(8)
    assert len(decode(b"l" + (100).to_bytes(8, "little") + empty * 100)) == 100
    with pytest.raises(WireError, match="more than"):
        decode(b"l" + (700_000).to_bytes(8, "little") + empty * 700_000)


@pytest.mark.parametrize(
    "problem",
    [
        call_problem("f", ([1], 2)),
        assert_problem(asserts=["assert f(1) == 2"]),
        stdin_problem(("", "2")),
    ],
    ids=["call", "assert", "stdin"],
)
def test_a_text_too_long_to_be_carried_is_a_verdict(judge: Judge, problem: dict[str, Any]) -> None:
    """Longer than a message inside the judge may be: no reason to go without a verdict."""
    source = "#" + "x" * (65 << 20) + "\ndef f(x): return 2\nprint(2)"
    judgement = judge.judge(problem, python(source))
    assert judgement.verdict is Verdict.COMPILE_ERROR, judgement.reason


def test_a_program_is_read_as_python_reads_a_file(judge: Judge) -> None:
    marked = "\ufeff# -*- coding: utf-8 -*-\ndef f(x): return 2\nprint(2)"
    unknown = "# -*- coding: nonsense -*-\ndef f(x): return 2\nprint(2)"
    for problem in (
        call_problem("f", ([1], 2)),
        assert_problem(asserts=["assert f(1) == 2"]),
        stdin_problem(("", "2")),
    ):
        assert judge.judge(problem, python(marked)).accepted
        assert judge.judge(problem, python(unknown)).verdict is Verdict.COMPILE_ERROR


def test_an_assertion_that_the_test_sees_fail_in_its_own_function_is_the_tests_affair(judge: Judge) -> None:
    code = (
        "def refuse(x): assert x > 5, 'secret 1234'\n"
        "try:\n    f(refuse, 1)\n    raise ValueError\nexcept AssertionError:\n    pass\n"
        "assert f(refuse, 6) == 7"
    )
    honest = "def f(g, x):\n    g(x)\n    return x + 1"
    assert judge.judge(assert_problem(asserts=[code]), python(honest)).accepted
    catching = "def f(g, x):\n    try: g(x)\n    except AssertionError: pass\n    return x + 1"
    assert judge.judge(assert_problem(asserts=[code]), python(catching)).verdict is Verdict.WRONG_ANSWER


@pytest.mark.parametrize(
    "raised", ["ExceptionGroup('a', [ValueError(1)])", "UnicodeDecodeError('a', b'b', 1, 2, 'c')"]
)
def test_exceptions_without_a_plain_constructor_keep_their_class(judge: Judge, raised: str) -> None:
    name = raised.partition("(")[0]
    code = f"try:\n    f()\n    assert False\nexcept TypeError:\n    assert False\nexcept {name}:\n    pass"
    judgement = judge.judge(assert_problem(asserts=[code]), python(f"def f(): raise {raised}"))
    assert judgement.accepted, judgement


@pytest.mark.parametrize(
    "body",
    [
        "return type('x' * 10**6, (), {})()",
        "raise ValueError('\\x1b[2J\\n\\x07' + 'x' * 10**6)",
        "print('\\x1b]0;title\\x07' * 10**4, file=sys.stderr, flush=True); os._exit(1)",
        "os.write(7, b'l' + S(2) + text(b'raised') + text(b'\\n' * 10**6)); os._exit(0)",
    ],
)
def test_a_reason_is_one_short_line_whatever_a_program_puts_there(judge: Judge, body: str) -> None:
    """Reasons go to files, pages and terminals by the million."""
    source = (
        "import os, struct, sys\ndef S(n): return struct.pack('<Q', n)\n"
        f"def text(s): return b's' + S(len(s)) + s\ndef f(x): {body}"
    )
    problem = {**call_problem("f", ([1], 2)), "limits": {"cpu_s": 2.0, "output_mb": 2.0}}
    judgement = judge.judge(problem, python(source))
    assert judgement.verdict in (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR)
    for reason in (judgement.reason, judgement.cases[0].reason):
        assert 0 < len(reason) <= 10 * 500
        assert reason.isprintable()
