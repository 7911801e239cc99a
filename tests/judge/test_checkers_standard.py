"""The standard checkers by name: each decides as the second opinion in ``testlib_model`` does."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.beside import data_beside
from tests.judge.judge_problems import python, stdin_problem
from tests.judge.testlib_model import MODELS, model
from whetstone.core.problem import StandardCheckerName
from whetstone.judge import Judge, Verdict
from whetstone.judge.answers.standard_checkers import CHECKERS, check_standard

DATA = data_beside(__file__)
NAMES = sorted(CHECKERS)
_SPACES = st.sampled_from([b" ", b"  ", b"\n", b"\r\n", b"\t", b"\n\n", b" \n"])
_INTEGERS = st.sampled_from(
    b"0 -0 +1 1 -1 01 00 - 7 7.0 2147483647 2147483648 -2147483648 9223372036854775807 9223372036854775808 "
    b"-9223372036854775809 1111111111111111111111111".split()
)
_DOUBLES = st.sampled_from(
    b"1 1.0 1.000001 1.0000011 0.9999 1e0 +1 --1 1e .5 5. . e5 nan inf 0x1 1e400 -1e400 2e300 1_0 1.5e-6 0 "
    b"1000000 1000001".split()
)
_WORDS = st.sampled_from(
    [b"YES", b"yes", b"No", b"NO", b"maybe", b"a", b"A", b"a\vb", b"Case", b"\xff", b"\0"]
)
_HEADS = st.sampled_from([b"Case 1:", b"Case 2:", b"Case 3:", b"case 1:", b"Case", b"Case 02:"])
_TOKENS = {
    "i": _INTEGERS, "n": _INTEGERS, "u": _INTEGERS, "h": _INTEGERS, "r": _DOUBLES, "d": _DOUBLES,
    "a": _DOUBLES, "y": _WORDS, "w": _WORDS | _INTEGERS, "f": _WORDS, "l": _WORDS,
}  # fmt: skip


def _tokens_of(name: str) -> st.SearchStrategy[bytes]:
    if name.startswith("case"):
        return _HEADS | _TOKENS[name[4]]
    return _WORDS if name == "nyesno" else _TOKENS[name[0]]


@st.composite
def _texts(draw: st.DrawFn, name: str) -> tuple[bytes, bytes]:
    """An output and an expected text that are often alike."""
    tokens = draw(st.lists(_tokens_of(name), max_size=4))
    expected = b"".join(token + draw(_SPACES) for token in tokens)
    if draw(st.booleans()):
        expected = expected.rstrip(b" \n\r\t")
    if draw(st.integers(0, 3)) == 0:
        return b"".join(t + draw(_SPACES) for t in draw(st.lists(_tokens_of(name), max_size=4))), expected
    output = bytearray(expected)
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(output)))
        piece = draw(_SPACES | _tokens_of(name) | st.sampled_from([b"", b"\r", b"0", b".", b"\x0b"]))
        output[place : place + draw(st.integers(0, 2))] = piece
    return bytes(output), expected


def test_every_name_of_the_schema_is_there() -> None:
    assert sorted(get_args(StandardCheckerName)) == NAMES == sorted(MODELS)


@pytest.mark.drawn(6)
@pytest.mark.parametrize("name", NAMES)
def test_decides_as_the_second_opinion(name: str) -> None:
    @settings(max_examples=250, deadline=None)
    @given(_texts(name))
    def agree(texts: tuple[bytes, bytes]) -> None:
        assert check_standard(name, *texts)[0] == model(name, *texts)

    agree()


@pytest.mark.parametrize(
    ("name", "output", "expected", "accepted"),
    [
        *(
            (name, output.encode("latin-1"), expected.encode("latin-1"), accepted)
            for name, output, expected, accepted in DATA["rules"]
        ),
        ("hcmp", b"9" * 5000, b"9" * 5000, True),
        # The problem is at fault, because the expected output cannot be read.
        ("icmp", b"2147483648", b"2147483648", None),
        ("ncmp", b"1 2", b"1 x", None),
        ("hcmp", b"1", b"1 2", None),
        ("nyesno", b"x", b"maybe", None),
    ],
)
def test_rules(name: str, output: bytes, expected: bytes, accepted: bool | None) -> None:
    assert check_standard(name, output, expected)[0] is accepted


@pytest.mark.cost
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "hostile",
    [b"9" * 10**6, b"-" * 10**6, b"1." * 500_000, b"0" * 10**6 + b"x", b"\r" * 10**6, b"Case " * 200_000],
)
def test_hostile_output_costs_linear_time(name: str, hostile: bytes) -> None:
    """A quadratic step over a million characters would take hours, which the suite's own time limit ends."""
    expected = {"y": b"YES", "c": b"Case 1: 1"}.get(name[0], b"YES" if name == "nyesno" else b"1")
    assert check_standard(name, hostile, expected)[0] is False


def test_the_judge_uses_them_and_blames_the_problem_for_its_expected_output(judge: Judge) -> None:
    def verdict(name: str, source: str, expected: str) -> Verdict:
        problem = stdin_problem(("", expected), checker={"type": "standard", "name": name})
        return judge.judge(problem, python(source)).verdict

    assert verdict("rcmp6", "print(0.1 + 0.2)", "0.3") is Verdict.ACCEPTED
    assert verdict("rcmp9", "print('nan')", "0.3") is Verdict.WRONG_ANSWER
    assert verdict("icmp", "print(1); raise SystemExit(3)", "1") is Verdict.RUNTIME_ERROR
    assert verdict("icmp", "print(1)", "one") is Verdict.JUDGE_ERROR
