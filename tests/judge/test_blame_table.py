"""Who is blamed for what a checker or interactor does: every cell of the table in docs/judging.md.

Each decider here does what one word says, in every protocol. ``own``: the program wrote the word, so the
decider works on the expected output and with the reference. ``always``: the case's input holds it, so it
never works.
"""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import LIMITS, python, stdin_problem
from whetstone.judge import Judge, Verdict
from whetstone.judge.answers.protocols import Protocol, callable_event, event_of
from whetstone.judge.answers.responsibility import (
    BLAME,
    Blame,
    CheckerEvent,
    Event,
    decide_blame,
    output_failure_prefix,
)
from whetstone.sandbox import EndReason, RunResult

AC, WA, JE = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.JUDGE_ERROR
TEXTS: dict[str, Any] = data_beside(__file__)["texts"]
ACT = TEXTS["act"]
CALLABLE = ACT + TEXTS["callable_checker"]
BY_EXIT = (
    ACT
    + """
def word_of(given, output):
    return (output if given == "own" else given).strip()
"""
)
TESTLIB = BY_EXIT + "sys.exit(0 if act(word_of(open(sys.argv[1]).read(), open(sys.argv[2]).read())) else 1)"
KATTIS = BY_EXIT + "sys.exit(42 if act(word_of(open(sys.argv[1]).read(), sys.stdin.read())) else 43)"
SCALEBOX = BY_EXIT + "sys.exit(not act(word_of(open('stdin.txt').read(), open('answer.txt').read())))"


def program(protocol: str, source: str, language: str = "python") -> dict[str, Any]:
    return {"type": "program", "language": language, "source": source, "protocol": protocol}


CHECKERS: dict[str, dict[str, Any]] = {
    "callable": {"type": "python", "source": CALLABLE},
    "testlib": program("testlib", TESTLIB),
    "kattis": program("kattis", KATTIS),
    "scalebox": program("scalebox", SCALEBOX),
}
TALKS = {
    "callable": {
        "type": "python",
        "source": CALLABLE + "def interact(input, read, write):\n    return check(input, read(), '')\n",
    },
    "testlib": program(
        "testlib", BY_EXIT + "sys.exit(0 if act(word_of(open(sys.argv[1]).read(), input())) else 1)"
    ),
    "kattis": program(
        "kattis", BY_EXIT + "sys.exit(42 if act(word_of(open(sys.argv[1]).read(), input())) else 43)"
    ),
}
# What it does: the verdict without evidence that it works, and with it. Then what differs, by protocol.
FAILS = (JE, WA)
TABLE: dict[str, tuple[Verdict, Verdict]] = {
    "accept": (AC, AC),
    "refuse": (WA, WA),
    "thread": (AC, AC),
    **dict.fromkeys(("raises", "asserts", "interrupts", "closes", "memory", "deep"), FAILS),
    **dict.fromkeys(("quits", "aborts", "kills", "segfaults", "floods"), FAILS),
    **dict.fromkeys(("exits0", "exits1", "exits2", "exits3", "exits4", "exits5"), FAILS),
    **dict.fromkeys(("exits8", "exits42", "exits43", "exits77"), FAILS),
    **dict.fromkeys(("_exits0", "_exits1", "_exits3", "_exits42", "_exits43", "_exits77"), FAILS),
}
WORDS: dict[str, dict[str, tuple[Verdict, Verdict]]] = {
    "callable": dict.fromkeys(("none", "number", "text", "lazy"), FAILS),
    "testlib": {
        **dict.fromkeys(("exits0", "_exits0"), (AC, AC)),
        **dict.fromkeys(("exits1", "exits2", "exits4", "exits8", "_exits1", "quits"), (WA, WA)),
    },
    "kattis": {
        **dict.fromkeys(("exits42", "_exits42"), (AC, AC)),
        **dict.fromkeys(("exits43", "_exits43"), (WA, WA)),
    },
    "scalebox": {
        **dict.fromkeys(("exits0", "_exits0"), (AC, AC)),
        **dict.fromkeys(
            [f"{how}{n}" for how in ("exits", "_exits") for n in (1, 2, 3, 4, 5, 8, 42, 43, 77)], (WA, WA)
        ),
        "quits": (WA, WA),
    },
}


def cells(deciders: dict[str, dict[str, Any]]) -> list[tuple[str, str, Verdict, Verdict]]:
    return [
        (protocol, word, *verdicts)
        for protocol in deciders
        for word, verdicts in {**TABLE, **WORDS[protocol]}.items()
    ]


@pytest.mark.drawn(40)
@pytest.mark.parametrize(("protocol", "word", "alone", "proved"), cells(CHECKERS))
def test_a_checker(judge: Judge, protocol: str, word: str, alone: Verdict, proved: Verdict) -> None:
    def verdict(given: str, printed: str) -> tuple[Verdict, str]:
        problem = stdin_problem((given, "refuse"), checker=CHECKERS[protocol])
        judged = judge.judge(problem, python(f"print({printed!r})"))
        return judged.verdict, judged.reason

    failed = output_failure_prefix("checker")
    own, always = verdict("own", word), verdict(word, "whatever")
    assert (own[0], own[1].startswith(failed)) == (proved, alone is not proved), own
    assert (always[0], always[1].startswith(failed)) == (alone, False), always


@pytest.mark.drawn(40)
@pytest.mark.parametrize(("protocol", "word", "alone", "proved"), cells(TALKS))
def test_an_interactor(judge: Judge, protocol: str, word: str, alone: Verdict, proved: Verdict) -> None:
    def verdict(given: str, printed: str, *references: str) -> tuple[Verdict, str]:
        tests = {"kind": "interactive", "cases": [{"input": given}], "interactor": TALKS[protocol]}
        known = [{"language": "python", "source": f"print({said!r})"} for said in references]
        problem = {"id": "t", "statement": "", "tests": tests, "limits": LIMITS, "references": known}
        judged = judge.judge(problem, python(f"print({printed!r})"))
        return judged.verdict, judged.reason

    failed = output_failure_prefix("interactor")
    own, always = verdict("own", word, "refuse", "accept"), verdict(word, "whatever", "accept")
    assert (own[0], own[1].startswith(failed)) == (proved, alone is not proved), own
    assert (always[0], always[1].startswith(failed)) == (alone, False), always
    assert verdict("own", word)[0] is alone, "without a reference nothing shows that it works"


@pytest.mark.parametrize("deciders", [CHECKERS, TALKS])
def test_one_that_is_broken_is_never_the_programs_fault(
    judge: Judge, deciders: dict[str, dict[str, Any]]
) -> None:
    for decider in deciders.values():
        broken = ["def (", "import nowhere_at_all", "raise SystemExit(77)"]
        for source in [*broken, "pass"] if decider["type"] == "python" else broken:
            problem = stdin_problem(("own", "accept"), checker={**decider, "source": source})
            if deciders is TALKS:
                side = problem.pop("checker")
                problem["tests"] = {"kind": "interactive", "cases": [{"input": "own"}], "interactor": side}
            problem["references"] = [{"language": "python", "source": "print('accept')"}]
            scaleboxed = decider.get("protocol") == "scalebox" and "77" in source
            found = judge.judge(problem, python("print('x')")).verdict
            assert found is (WA if scaleboxed else JE), (decider, source)


def test_a_references_output_is_evidence_where_the_expected_one_is_none(judge: Judge) -> None:
    reads = "def check(input, output, expected):\n    return sum(map(int, output.split())) == int(input)\n"
    problem = stdin_problem(("5", "any two numbers"), checker={"type": "python", "source": reads})
    assert judge.judge(problem, python("print('x')")).verdict is JE
    for reference, verdict in (("print(2, 3)", WA), ("print(2, 2)", JE), ("1 / 0", JE)):
        known = {**problem, "references": [{"language": "python", "source": reference}]}
        assert judge.judge(known, python("print('x')")).verdict is verdict


def test_numpys_bool_is_a_bool(judge: Judge) -> None:
    pytest.importorskip("numpy")
    source = "import numpy\ndef check(input, output, expected): return numpy.bool_(output.strip() == '1')\n"
    problem = stdin_problem(("", "1"), checker={"type": "python", "source": source})
    assert judge.judge(problem, python("print(1)")).accepted
    assert judge.judge(problem, python("print(2)")).verdict is WA


CPP = TEXTS["cpp"]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
@pytest.mark.parametrize(("protocol", "yes", "no"), [("testlib", 0, 1), ("kattis", 42, 43)])
def test_the_same_in_cpp(judge: Judge, protocol: str, yes: int, no: int) -> None:
    said = "std::ifstream out(argv[2]); out" if protocol == "testlib" else "std::cin"
    source = CPP.replace("YES", str(yes)).replace("NO", str(no))
    checker = program(protocol, source.replace("SAID", said), "cpp")
    talk = program(protocol, source.replace("SAID", "std::cin"), "cpp")
    for word in ("accept", "refuse", "aborts", "segfaults", "raises", "exits3", "exits77"):
        alone, proved = TABLE.get(word, FAILS)
        written = python(f"print({word!r})")
        problem = stdin_problem(("own", "refuse"), checker=checker)
        assert judge.judge(problem, written).verdict is proved, word
        assert judge.judge(stdin_problem((word, "refuse"), checker=checker), written).verdict is alone, word
        tests = {"kind": "interactive", "cases": [{"input": "own"}], "interactor": talk}
        known = [{"language": "python", "source": "print('accept')"}]
        problem = {"id": "t", "statement": "", "tests": tests, "limits": LIMITS, "references": known}
        assert judge.judge(problem, written).verdict is proved, word
        assert judge.judge({**problem, "references": []}, written).verdict is alone, word


def ran(ended: EndReason) -> RunResult:
    return RunResult(ended, None, None, 1.0, 1.0, 1 << 20, b"", b"", b"")


@pytest.mark.parametrize("protocol", ["callable", "testlib", "kattis", "scalebox"])
@pytest.mark.parametrize(
    ("ended", "did"),
    [
        (EndReason.CPU_LIMIT, CheckerEvent.EXHAUSTED),
        (EndReason.WALL_LIMIT, CheckerEvent.EXHAUSTED),
        (EndReason.MEMORY_LIMIT, CheckerEvent.EXHAUSTED),
        (EndReason.PROCESS_LIMIT, CheckerEvent.EXHAUSTED),
        (EndReason.OUTPUT_LIMIT, CheckerEvent.FLOODED),
        (EndReason.SIGNALED, CheckerEvent.CRASHED),
        (EndReason.KILLED, CheckerEvent.STOPPED),
        (EndReason.STARVED, CheckerEvent.STOPPED),
    ],
)
def test_a_limit_means_the_same_in_every_protocol(protocol: Any, ended: EndReason, did: CheckerEvent) -> None:
    """Real ones take a checker's 20 seconds or 2 GiB; what a run's end is called is tested with runs."""
    if protocol == "callable":
        assert callable_event(ran(ended), refused="no").kind is did
    else:
        exact: Protocol = protocol
        assert event_of(exact, ran(ended), python=True).kind is did
        assert event_of(exact, ran(ended), python=False).kind is did


@pytest.mark.parametrize("did", CheckerEvent)
def test_evidence_only_ever_turns_a_failure_into_a_refusal(did: CheckerEvent) -> None:
    alone, proved = BLAME[did]
    assert (alone, proved) in {
        (Blame.NONE, Blame.NONE),
        (Blame.PROGRAM, Blame.PROGRAM),
        (Blame.JUDGE, Blame.PROGRAM),
        (Blame.JUDGE, Blame.JUDGE),
    }
    for works, blame in ((True, proved), (False, alone)):
        assert decide_blame("checker", Event(did, "how"), lambda: works, "unproved").blame is blame  # noqa: B023
