"""Cases in sequence in one process: the verdicts of a fork per case, for less, and marked."""
# ruff: noqa: E501 (programs on one line each read better than wrapped)

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import AMPLE_LIMITS, call_problem, python, stdin_problem
from whetstone.cli.main import main
from whetstone.core.problem import AssertTests, Program, case_count
from whetstone.data.dataset import load_problems
from whetstone.judge import Judge, Verdict

COUNT = 4
SUM = stdin_problem(*[(f"{n} {n + 1}\n", f"{2 * n + 1}\n") for n in range(COUNT)])
ADD = call_problem("add", *[([n, n + 1], 2 * n + 1) for n in range(COUNT)])
ANSWER = "print(sum(map(int, input().split())))\n"
ADDED = "def add(a, b): return a + b\n"

DATA = data_beside(__file__)
# Honest programs that leave something behind which must not disturb the next case.
TIDY: dict[str, str] = DATA["tidy"]
# Honest programs that work only once in a process, or end it: each case needs a fork of its own.
UNTIDY: dict[str, str] = DATA["untidy"]
# Whole programs, because they read or write in their own way.
WHOLE: dict[str, str] = DATA["whole"]


@pytest.fixture(scope="module")
def sequential() -> Iterator[Judge]:
    with Judge(workers=2, fork_per_case=False) as judge:
        yield judge


@pytest.mark.process
@pytest.mark.parametrize("name", TIDY)
def test_a_case_finds_nothing_of_the_previous_one(sequential: Judge, name: str) -> None:
    judged = sequential.judge(SUM, python(TIDY[name] + ANSWER))
    assert (judged.verdict, judged.reason) == (Verdict.ACCEPTED, "")
    assert judged.shared_process
    assert [case.index for case in judged.cases] == list(range(COUNT))


@pytest.mark.process
@pytest.mark.parametrize("name", UNTIDY)
def test_a_program_that_needs_a_process_for_each_case_gets_it(sequential: Judge, name: str) -> None:
    judged = sequential.judge(SUM, python(UNTIDY[name] + ANSWER))
    assert (judged.verdict, judged.reason) == (Verdict.ACCEPTED, "")
    assert not judged.shared_process


@pytest.mark.process
@pytest.mark.parametrize("name", WHOLE)
def test_honest_programs_are_accepted_whatever_they_do(sequential: Judge, name: str) -> None:
    judged = sequential.judge(SUM, python(WHOLE[name]))
    assert (judged.verdict, judged.reason) == (Verdict.ACCEPTED, "")


@pytest.mark.process
def test_calls_share_a_process_too(sequential: Judge) -> None:
    judged = sequential.judge(ADD, python(ADDED))
    assert judged.accepted
    assert judged.shared_process
    wrong = sequential.judge(ADD, python("def add(a, b): return 1"))
    assert [case.verdict for case in wrong.cases] == [Verdict.ACCEPTED] + [Verdict.WRONG_ANSWER] * 3
    once = "calls = []\ndef add(a, b):\n    calls.append(a)\n    return a + b + len(calls) - 1"
    assert sequential.judge(ADD, python(once)).accepted
    # What a program keeps in a module of Python's own it finds again, and its answer is its answer.
    counting = "import math\nmath.n = getattr(math, 'n', -1) + 1\nn = math.n\ndef add(a, b): return a + b + n"
    assert sequential.judge(ADD, python(counting)).score == 0.25


@pytest.mark.process
def test_operations_on_an_object_begin_anew_for_each_case(sequential: Judge) -> None:
    operations = {"operations": ["C", "add"], "args": [[], [3]], "expected": [None, 3]}
    tests = {"kind": "call", "class": "C", "cases": [operations] * 3}
    problem = {"id": "t/class", "statement": "", "tests": tests}
    kept = "class C:\n    all: List[int] = []\n    def add(self, n):\n        self.all.append(n)\n        return sum(self.all)"
    judged = sequential.judge(problem, python(kept))
    assert judged.accepted
    assert judged.shared_process


@pytest.mark.process
def test_one_case_shares_nothing(sequential: Judge) -> None:
    judged = sequential.judge(stdin_problem(("1 2", "3")), python(ANSWER))
    assert judged.accepted
    assert not judged.shared_process


@pytest.mark.process
def test_cases_together_keep_the_limits_of_one(sequential: Judge) -> None:
    """Each case is within its limit; all together are not, and no case is to suffer from that."""
    burn = "import time\nwhile time.process_time() - begun < 0.2: pass\n"
    judged = sequential.judge(SUM, python("import time\nbegun = time.process_time()\n" + burn + ANSWER))
    assert judged.accepted
    assert all(0.1 < case.cpu_s < 0.5 for case in judged.cases)
    kept = "import math\nkept = math.__dict__.setdefault('kept', [])\nkept.append(b'x' * (100 << 20))\n"
    # A process stops between two cases at half of its CPU time, so that limit must be far away.
    judged = sequential.judge({**SUM, "limits": AMPLE_LIMITS}, python(kept + ANSWER))
    assert judged.accepted
    assert not judged.shared_process


@pytest.mark.process
def test_a_case_that_takes_too_long_says_so_and_the_others_stand(sequential: Judge) -> None:
    judged = sequential.judge(
        SUM, python("a, b = map(int, input().split())\nwhile a == 2: pass\nprint(a + b)")
    )
    assert [case.verdict.value for case in judged.cases] == ["accepted", "accepted", "time_limit", "accepted"]


@pytest.mark.process
def test_a_crash_after_the_right_answer_is_a_crash(sequential: Judge) -> None:
    for end in (
        "1 / 0",
        "raise SystemExit(3)",
        "import os; os._exit(1)",
        "import os; os.abort()",
        "exit('no')",
    ):
        judged = sequential.judge(SUM, python(ANSWER + "import sys; sys.stdout.flush()\n" + end))
        assert {case.verdict for case in judged.cases} == {Verdict.RUNTIME_ERROR}, end
        assert not judged.shared_process


@pytest.mark.process
def test_a_program_that_guesses_has_no_second_guess_for_a_case(sequential: Judge) -> None:
    """A case that was wrong in the shared process is wrong, whatever the program would say alone."""
    source = (
        "import os\na, b = map(int, input().split())\n"
        "try:\n    shared = bool(os.fstat(200))\nexcept OSError:\n    shared = False\n"
        "print(a + b if shared == (a != 0) else -1)"
    )
    judged = sequential.judge(SUM, python(source))
    assert [case.verdict for case in judged.cases] == [Verdict.WRONG_ANSWER] + [Verdict.ACCEPTED] * 3
    assert judged.shared_process


@pytest.mark.process
def test_a_checker_decides_in_sequence_too(sequential: Judge) -> None:
    checker = {
        "type": "python",
        "source": "def check(given, output, expected): return output == expected[::-1]",
    }
    problem = stdin_problem(("ab", "cd"), ("ef", "gh"), checker=checker)
    table = "print({'ab': 'dc', 'ef': 'hg'}[input()], end='')"
    judged = sequential.judge(problem, python(table))
    assert judged.accepted
    assert judged.shared_process
    assert sequential.judge(problem, python("print('dc', end='')")).score == 0.5


@pytest.mark.process
def test_stopping_at_the_first_failure_and_subsets_mean_the_same() -> None:
    with Judge(workers=1, fork_per_case=False, stop_at_first_failure=True) as judge:
        judged = judge.judge(SUM, python("a, b = map(int, input().split())\nprint(a + b + (a == 1))"))
        assert [case.verdict for case in judged.cases] == [Verdict.ACCEPTED, Verdict.WRONG_ANSWER]
        subset = judge.judge(SUM, python(ANSWER), max_cases=2, subset_seed=3)
    with Judge(workers=1) as judge:
        alone = judge.judge(SUM, python(ANSWER), max_cases=2, subset_seed=3)
    assert [case.index for case in subset.cases] == [case.index for case in alone.cases]
    assert (subset.shared_process, alone.shared_process) == (True, False)


@pytest.mark.process
def test_verdicts_are_those_of_a_fork_per_case(judge: Judge, sequential: Judge) -> None:
    """A sample of what ships: references and wrong programs, every case of them."""
    shipped = [p for p in load_problems("builtin:train") if case_count(p) > 1]
    shipped = [p for p in shipped if not isinstance(p.tests, AssertTests)]  # which know only one way
    sample = random.Random(11).sample(shipped, 40)
    pairs = [(p, program) for p in sample for program in (p.references[0], p.wrong[0])]
    apart = [[c.verdict for c in judged.cases] for judged in judge.judge_many(pairs)]
    judged = list(sequential.judge_many(pairs))
    assert [[c.verdict for c in j.cases] for j in judged] == apart
    assert all(j.shared_process for j in judged if j.accepted)


@pytest.mark.process
def test_the_command_line_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "problems.jsonl").write_text(json.dumps(SUM) + "\n")
    (tmp_path / "programs.jsonl").write_text(json.dumps({"problem_id": SUM["id"], "source": ANSWER}) + "\n")
    files = ["--problems", str(tmp_path / "problems.jsonl"), "--programs", str(tmp_path / "programs.jsonl")]
    for more, shared in (["--no-fork-per-case"], True), ([], False):
        assert main(["judge", "run", *files, "--workers", "1", *more]) == 0
        assert json.loads(capsys.readouterr().out)["shared_process"] is shared


@pytest.mark.process
def test_other_languages_share_nothing(sequential: Judge) -> None:
    judged = sequential.judge(SUM, Program("bash", "read a b\necho $((a + b))"))
    assert judged.accepted
    assert not judged.shared_process
