"""A problem can name a grader's comparison; only who makes the judge can say what code that is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from whetstone.core.errors import UserError
from whetstone.core.problem import problem_from
from whetstone.judge import Judge, Program, Verdict

pytestmark = pytest.mark.process

PRINTS_ONE_LINE = Program("python", "print('YES')")


def stdin(mode: str, **compare: Any) -> dict[str, Any]:
    tests = {"kind": "stdin", "cases": [{"input": "", "output": "yes\nno"}]}
    return {"id": "p", "statement": "", "tests": tests, "compare": {"mode": mode, **compare}}


def test_a_grader_decides_where_it_was_given_and_named(judge: Judge) -> None:
    assert judge.judge(stdin("grader:scalebox"), PRINTS_ONE_LINE).accepted
    assert judge.judge(stdin("tokens"), PRINTS_ONE_LINE).verdict is Verdict.WRONG_ANSWER


def test_a_judge_that_was_given_none_refuses_and_says_where_they_are() -> None:
    with Judge(workers=1) as plain:
        with pytest.raises(
            UserError,
            match=r"uses the comparison `grader:lcb`.*pip install -c constraints.txt \./packages/graders",
        ):
            plain.judge(stdin("grader:lcb"), PRINTS_ONE_LINE)
        with pytest.raises(UserError, match="comparisons: No module named 'nowhere'"):
            Judge(workers=1, comparisons=["nowhere"])


def test_an_unknown_comparison_or_oracle_is_refused_with_a_suggestion(judge: Judge) -> None:
    with pytest.raises(UserError, match="did you mean `grader:scalebox`"):
        judge.judge(stdin("grader:scalbox"), PRINTS_ONE_LINE)
    with pytest.raises(UserError, match="is for `call` tests only"):
        judge.judge(stdin("grader:evalplus"), PRINTS_ONE_LINE)
    with pytest.raises(UserError, match="no oracle `same_sett`; did you mean `same_set`"):
        judge.judge(stdin("grader:evalplus", oracle="same_sett"), PRINTS_ONE_LINE)


@pytest.mark.parametrize(("mode", "said"), [("lcb", "`grader:lcb`"), ("tokns", "did you mean `tokens`")])
def test_a_stored_problem_with_an_older_or_misspelt_mode_says_the_way_out(mode: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        problem_from(stdin(mode))
    assert problem_from(stdin("tokens", oracle=None)).compare.oracle is None  # as files have it


def test_a_comparison_of_ones_own_reaches_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_rule.py").write_text(
        "from whetstone.judge.answers.comparisons import Comparison\n"
        "def texts(out, wanted, _): return len(out) == len(wanted), ''\n"
        "COMPARISONS = {'grader:length': Comparison(texts=texts)}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Judge(workers=1, comparisons=["own_rule"]) as judge:
        assert judge.judge(stdin("grader:length"), Program("python", "print('abc'); print('f')")).accepted
        assert not judge.judge(stdin("grader:length"), PRINTS_ONE_LINE).accepted
    sys.modules.pop("own_rule")
