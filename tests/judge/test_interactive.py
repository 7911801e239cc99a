"""Interactive problems: program and interactor joined by pipes, and who is blamed for what."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import LIMITS, python
from whetstone.judge import Judge, Program, Verdict

pytestmark = [pytest.mark.process, pytest.mark.isolation]

TEXTS: dict[str, Any] = data_beside(__file__)["texts"]
GUESS = TEXTS["guess"]
SEARCH = TEXTS["search"]


def interactive_problem(
    interactor: str | dict[str, Any], *inputs: str, reference: str | None = None, **limits: float
) -> dict[str, Any]:
    side = {"type": "python", "source": interactor} if isinstance(interactor, str) else interactor
    tests = {"kind": "interactive", "cases": [{"input": i} for i in inputs], "interactor": side}
    references = [{"language": "python", "source": reference}] if reference else []
    every = {**LIMITS, **limits}
    return {"id": "t/talk", "statement": "", "tests": tests, "limits": every, "references": references}


def test_a_right_program_is_accepted_in_every_case(judge: Judge) -> None:
    problem = interactive_problem(GUESS, "1", "50", "77", "100")
    judgement = judge.judge(problem, python(SEARCH))
    assert judgement.accepted
    assert len(judgement.cases) == 4


@pytest.mark.parametrize(
    ("source", "verdict", "reason"),
    [
        (SEARCH.replace('"!", low', '"!", low + 1'), Verdict.WRONG_ANSWER, "refused by the interactor"),
        ("print('! 7')", Verdict.WRONG_ANSWER, "refused by the interactor"),
        ("pass", Verdict.WRONG_ANSWER, "output ended too early"),
        ("input(); print('! 50', flush=True)\n1 / 0", Verdict.RUNTIME_ERROR, "ZeroDivisionError"),
        ("input(); 1 / 0", Verdict.RUNTIME_ERROR, "ZeroDivisionError"),
        ("import os; os._exit(0)", Verdict.WRONG_ANSWER, "output ended too early"),
        ("print('! 50'); raise SystemExit(3)", Verdict.RUNTIME_ERROR, "exit code 3"),
        ("while True: print('? 1')", Verdict.WRONG_ANSWER, "refused by the interactor"),
        ("while True: print(end='? 1' * 1000)", Verdict.OUTPUT_LIMIT, "more than allowed"),
        ("while True: pass", Verdict.TIME_LIMIT, "CPU time"),
        ("def (", Verdict.COMPILE_ERROR, ""),
        (SEARCH + "import sys; sys.stdout.write('x' * 100000); sys.stdout.flush()", Verdict.ACCEPTED, ""),
        (SEARCH + "assert not input()", Verdict.RUNTIME_ERROR, "EOFError"),
    ],
)
def test_failing_programs_have_their_verdicts(
    judge: Judge, source: str, verdict: Verdict, reason: str
) -> None:
    judgement = judge.judge(interactive_problem(GUESS, "50", cpu_s=0.3), python(source))
    assert (judgement.verdict, reason in judgement.reason) == (verdict, True), judgement


@pytest.mark.parametrize(
    ("interactor", "reason"),
    TEXTS["failing_interactors"],
)
def test_an_interactor_that_fails_is_no_verdict(judge: Judge, interactor: str, reason: str) -> None:
    judgement = judge.judge(interactive_problem(interactor, "1"), python("print(1)"))
    assert judgement.verdict is Verdict.JUDGE_ERROR
    assert reason in judgement.reason


def test_nonsense_is_refused_where_a_reference_shows_that_the_interactor_works(judge: Judge) -> None:
    """An exception over what the program wrote is its refusal, but only with that evidence."""
    confirmed = interactive_problem(GUESS, "50", reference=SEARCH)
    assert judge.judge(confirmed, python("print('nonsense')")).verdict is Verdict.WRONG_ANSWER
    unconfirmed = interactive_problem(GUESS, "50")
    assert judge.judge(unconfirmed, python("print('nonsense')")).verdict is Verdict.JUDGE_ERROR
    broken = interactive_problem("def interact(input, read, write): read(1)", "50", reference=SEARCH)
    assert judge.judge(broken, python("print('nonsense')")).verdict is Verdict.JUDGE_ERROR


def test_the_answer_goes_to_an_interactor_that_asks_for_it(judge: Judge) -> None:
    interactor = "def interact(input, answer, read, write):\n    return read() == answer"
    problem = interactive_problem(interactor, "1")
    problem["tests"]["cases"][0]["answer"] = "42"
    assert judge.judge(problem, python("print(42)")).accepted
    assert not judge.judge(problem, python("print(43)")).accepted


def test_a_program_does_not_see_the_secret_of_the_interactor(judge: Judge) -> None:
    """Whatever it looks through: its files, arguments, environment and memory do not hold the secret."""
    spy = TEXTS["spy"]
    assert (
        judge.judge(interactive_problem(GUESS, "918273", memory_mb=1024), python(spy)).verdict
        is not Verdict.ACCEPTED
    )


TESTLIB_LIKE = TEXTS["testlib_like"]
needs_cpp = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")


@needs_cpp
def test_an_interactor_may_be_a_program_with_testlibs_exit_codes(judge: Judge) -> None:
    side = {"type": "program", "language": "cpp", "source": TESTLIB_LIKE, "protocol": "testlib"}
    problem = interactive_problem(side, "63", cpu_s=2.0)
    assert judge.judge(problem, python(SEARCH)).accepted
    for source in ("print('! 1')", "print('what')", "pass"):
        assert judge.judge(problem, python(source)).verdict is Verdict.WRONG_ANSWER
    assert judge.judge(problem, python("1 / 0")).verdict is Verdict.RUNTIME_ERROR
    crash = {**side, "source": "#include <cstdlib>\nint main() { abort(); }"}
    assert judge.judge(interactive_problem(crash, "1"), python(SEARCH)).verdict is Verdict.JUDGE_ERROR
    program = Program("cpp", '#include <iostream>\nint main() { std::cout << "! 63\\n"; }')
    assert judge.judge(problem, program).accepted


KATTIS_LIKE = TEXTS["kattis_like"]


def test_an_interactor_may_be_a_program_with_kattis_exit_codes(judge: Judge) -> None:
    side = {"type": "program", "language": "python", "source": KATTIS_LIKE, "protocol": "kattis"}
    problem = interactive_problem(side, "sesame")
    assert judge.judge(problem, python("input(); print('sesame')")).accepted
    assert judge.judge(problem, python("input(); print('43')")).verdict is Verdict.WRONG_ANSWER
    assert judge.judge(problem, python("import sys; sys.exit(42)")).verdict is Verdict.RUNTIME_ERROR
    odd = {**side, "source": "import sys; sys.exit(1)"}
    assert judge.judge(interactive_problem(odd, "x"), python("print(1)")).verdict is Verdict.JUDGE_ERROR


def test_two_sides_that_wait_for_each_other_end_at_the_programs_limit() -> None:
    """Both read, or both write into full pipes: nothing moves any more, and the program is to blame."""
    shout = "def interact(input, read, write):\n    write('y' * 10**7)\n    return read() == 'x'"
    pairs = [
        (interactive_problem(GUESS, "50", cpu_s=0.1), python("input(); input()")),
        (interactive_problem(shout, "1", cpu_s=0.1, output_mb=64), python("print('x' * 10**7, flush=True)")),
    ]
    with Judge(workers=2, confirm_time_limit=False) as impatient:
        for judgement in impatient.judge_many(pairs):
            assert judgement.verdict is Verdict.TIME_LIMIT
            assert "wall clock" in judgement.reason


# The interactor decides upon the first line alone, and refuses every one but the right.
STRICT = {
    "callable": "def interact(input, read, write):\n    return read() == input",
    "testlib": "import sys\nsys.exit(input() != open(sys.argv[1]).read())",
    "kattis": "import sys\nsys.exit(42 + (input() != open(sys.argv[1]).read()))",
}
SPIN, CRASH, FLOOD = "while True: pass", "1 / 0", "import os\nwhile True: os.write(1, b'x' * 65536)"
WAIT, KILL = "import time; time.sleep(99)", "import os; os.kill(os.getpid(), 9)"
# Just before a limit of 1 s. The rest is for the start of the process, which counts too.
LATE = "import os, time\nwhile time.process_time() < 0.95: pass\nos.write(1, b'wrong\\n')\nwhile True: pass"
SHUT = (
    "import os, time\nprint('wrong', flush=True); os.close(0); os.close(1)\ntime.sleep(0.7)\nwhile True: pass"
)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("protocol", STRICT)
def test_a_refusal_stands_whatever_the_program_does_afterwards(protocol: str) -> None:
    """What it does when it is not refused yet is its own failure, in the same words everywhere."""
    source = STRICT[protocol]
    side = source if protocol == "callable" else {
        "type": "program", "language": "python", "source": source, "protocol": protocol
    }  # fmt: skip
    problem, longer = (interactive_problem(side, "right", cpu_s=cpu_s) for cpu_s in (0.3, 1.0))
    wrong, right = "print('wrong', flush=True)\n", "print('right', flush=True)\n"
    expected = [
        *[(wrong + then, Verdict.WRONG_ANSWER) for then in (SPIN, CRASH, FLOOD, WAIT, KILL, "input()")],
        *[(source, Verdict.WRONG_ANSWER) for source in (LATE, SHUT, "pass", "import os; os.close(1)")],
        (SPIN, Verdict.TIME_LIMIT),
        (CRASH, Verdict.RUNTIME_ERROR),
        (KILL, Verdict.RUNTIME_ERROR),
        (FLOOD, Verdict.OUTPUT_LIMIT),
        (right + SPIN, Verdict.TIME_LIMIT),
        (right + CRASH, Verdict.RUNTIME_ERROR),
        (right + FLOOD, Verdict.OUTPUT_LIMIT),
        (right, Verdict.ACCEPTED),
    ]
    with Judge(workers=2, confirm_time_limit=False) as judge:
        pairs = [(longer if source == LATE else problem, python(source)) for source, _ in expected]
        found = [
            (source, j.verdict) for (source, _), j in zip(expected, judge.judge_many(pairs), strict=True)
        ]
    assert found == expected


def test_a_program_that_is_refused_does_not_run_on(judge: Judge) -> None:
    problem = interactive_problem(STRICT["callable"], "right", cpu_s=60.0)
    judged = judge.judge(problem, python("print('wrong', flush=True)\nwhile True: pass"))
    assert (judged.verdict, judged.reason) == (Verdict.WRONG_ANSWER, "refused by the interactor")
    assert judged.cases[0].cpu_s < 30
