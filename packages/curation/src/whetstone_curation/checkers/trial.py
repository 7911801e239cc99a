"""The trial of a checker: tests that decide whether a problem keeps it.

It must accept every reference that runs and the expected outputs, with any white space. It must reject
trivial programs, known wrong programs, invalid answers, and most mutants of a reference and changed answers.
It must also accept something that the comparison rejects: a checker that only compares is no gain. It runs in
the sandbox of the judge, and any failure to decide rejects it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from whetstone.core.problem import Checker, Problem, Program, PythonChecker, StdinCase, StdinTests, case_count
from whetstone.data.validate.mutants import MUTANT_SEED, mutants
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.references import MOST_MEMORY_MB, with_limits
from whetstone.data.validate.runs import Runs, is_python
from whetstone.data.validate.strength import trivial_programs
from whetstone.judge import Judgement, Verdict
from whetstone.judge.answers.text import compare
from whetstone_curation.checkers.evidence import CheckerEvidence

# Other answers are made from so many different expected outputs, the shortest ones.
_CASES = 5
_LONGEST_ANSWER = 20_000
_LAYOUTS_OF_WRONG = 2
# The checker must reject this share of at least so many mutants and changed answers. Some of them are right.
_FEWEST_WRONG = 4
_REFUSED_SHARE = 0.5
# CPU seconds for one decision. The prompt asks for one second.
_DECISION_S, _MEMORY_MB = 2.0, 1024.0
_OUT_OF_LIMITS = (Verdict.TIME_LIMIT, Verdict.MEMORY_LIMIT, Verdict.OUTPUT_LIMIT)
_CHECK_CALL = "\n\nimport json as _json, sys as _sys\ncheck(*_json.loads(_sys.stdin.read()))\n"
# Verdicts of a reference whose output reached the checker.
_RAN = (Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.JUDGE_ERROR)


class CheckerRejected(Exception):
    """The checker is not kept. ``reason`` is a word to count by, the message one line of explanation."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def run_trial(problem: Problem, checker: Checker, runs: Runs, policy: Policy) -> CheckerEvidence:
    """Return the evidence of the checker for a ``stdin`` problem. Raises CheckerRejected if it fails the
    trial."""
    return _Trial(problem, checker, runs, policy).evidence()


class _Trial:
    def __init__(self, problem: Problem, checker: Checker, runs: Runs, policy: Policy) -> None:
        # A reference that needs more time than the problem allows still shows right answers.
        generous = with_limits(
            problem,
            max(problem.limits.cpu_s, policy.most_cpu_s),
            max(problem.limits.memory_mb, MOST_MEMORY_MB),
        )
        self._compared = generous
        self._checked = msgspec.structs.replace(generous, checker=checker)
        self._checker, self._runs, self._policy = checker, runs, policy
        self._freer = ""

    def evidence(self) -> CheckerEvidence:
        self._check_time()
        answers = list(self._short_answers())
        accepted_layouts = self._check_layouts(answers)
        references = self._check_references()
        trivial = self._check_rejected(
            ((trivial.program, f"one that {trivial.does}") for trivial in trivial_programs(self._compared)),
            "accepts_trivial",
        )
        for case, _ in answers:
            for answer in invalid_answers(case.output):
                if self._decide(case, answer.text).accepted:
                    raise CheckerRejected("accepts_trivial", f"it accepts {answer.change}")
        wrong = self._check_rejected(
            ((program, f"wrong[{number}]") for number, program in enumerate(self._compared.wrong)),
            "accepts_wrong",
        )
        of_mutants, of_answers = self._try_mutants(references), self._try_changed_answers(answers)
        tried = of_mutants[1] + of_answers[1]
        if tried < _FEWEST_WRONG or of_mutants[0] + of_answers[0] < _REFUSED_SHARE * tried:
            raise CheckerRejected(
                "too_lenient",
                f"it refuses {of_mutants[0]} of {of_mutants[1]} mutants "
                f"and {of_answers[0]} of {of_answers[1]} spoiled answers",
            )
        if not self._freer:
            raise CheckerRejected(
                "no_freer", "it accepts nothing that the comparison refuses: it may only compare"
            )
        return CheckerEvidence(len(references), case_count(self._compared), accepted_layouts, trivial, wrong,
                        of_mutants, of_answers, self._freer)  # fmt: skip

    def _check_time(self) -> None:
        """Check the time of a decision on two tests, the shortest and the longest."""
        if not isinstance(self._checker, PythonChecker):
            return
        assert isinstance(self._compared.tests, StdinTests)
        by_size = sorted(self._compared.tests.cases, key=lambda case: len(case.input) + len(case.output))
        program = Program("python", self._checker.source + _CHECK_CALL)
        # A set with one test has the same shortest and longest one.
        for case in dict.fromkeys((by_size[0], by_size[-1])):
            given = json.dumps([case.input, case.output, case.output])
            alone = with_limits(
                Problem(self._compared.id, "", StdinTests([StdinCase(given, "")])), _DECISION_S, _MEMORY_MB
            )
            judgement = self._judge(alone, program)
            if judgement.verdict in _OUT_OF_LIMITS:
                raise CheckerRejected("does_not_decide", f"{judgement.verdict.value} over an expected output")

    def _short_answers(self) -> Iterator[tuple[StdinCase, int]]:
        """Yield cases with short and different outputs, and their numbers."""
        assert isinstance(self._compared.tests, StdinTests)
        cases = sorted(enumerate(self._compared.tests.cases), key=lambda pair: len(pair[1].output))
        seen: set[str] = set()
        for number, case in cases:
            # Equal outputs would repeat the same trial.
            if case.output.strip() and len(case.output) <= _LONGEST_ANSWER and case.output not in seen:
                seen.add(case.output)
                yield case, number
            if len(seen) == _CASES:
                return

    def _check_layouts(self, answers: list[tuple[StdinCase, int]]) -> int:
        """Return the number of forms of expected outputs. Raises CheckerRejected unless all are accepted."""
        if not answers:
            raise CheckerRejected("too_little_evidence", "every expected output is empty or too long to vary")
        count = 0
        for case, number in answers:
            for answer in [CandidateAnswer(case.output, "as it is"), *layouts(case.output)]:
                judgement = self._decide(case, answer.text)
                if not judgement.accepted:
                    what = f"the expected output of case {number}, {answer.change}"
                    raise CheckerRejected(*_rejection("refuses_answer", judgement, what))
                count += 1
        return count

    def _check_references(self) -> list[Program]:
        """Return the references that run. Raises CheckerRejected unless all of them are accepted."""
        running: list[Program] = []
        for number, program in enumerate(self._compared.references):
            judgement = self._judge(self._checked, program)
            # The reference failed by itself, which shows nothing about the checker.
            if judgement.verdict not in _RAN:
                continue
            if not judgement.accepted:
                raise CheckerRejected(*_rejection("refuses_reference", judgement, f"references[{number}]"))
            running.append(program)
            if not self._freer and not self._judge(self._compared, program).accepted:
                self._freer = f"what references[{number}] prints"
        if not running:
            raise CheckerRejected("no_reference_runs", "no reference got as far as an answer")
        return running

    def _check_rejected(self, programs: Iterable[tuple[Program, str]], reason: str) -> int:
        """Return the number of programs. Raises CheckerRejected unless all are rejected."""
        count = 0
        for program, name in programs:
            judgement = self._judge(self._checked, program)
            if judgement.verdict is Verdict.JUDGE_ERROR:
                raise CheckerRejected(*_rejection("fails", judgement, name))
            if judgement.accepted:
                raise CheckerRejected(reason, f"it accepts {name}")
            count += 1
        return count

    def _try_mutants(self, references: list[Program]) -> tuple[int, int]:
        """Return how many mutants are rejected, of those that the comparison rejects."""
        # Mutants are made from the syntax tree of a Python program.
        first = next((program for program in references if is_python(program)), None)
        if first is None:
            return 0, 0
        refused = tried = 0
        for mutant in mutants(first.source, self._policy.mutants, f"{MUTANT_SEED}:{self._compared.id}"):
            program = Program(first.language, mutant.source)
            # A mutant that passes the comparison is equivalent, or the tests are too weak to tell.
            if self._judge(self._compared, program).verdict is not Verdict.WRONG_ANSWER:
                continue
            judgement = self._judge(self._checked, program)
            if judgement.verdict is Verdict.JUDGE_ERROR:
                raise CheckerRejected(*_rejection("fails", judgement, f"a mutant ({mutant.change})"))
            tried += 1
            refused += not judgement.accepted
            if judgement.accepted:
                self._freer = self._freer or f"a mutant ({mutant.change})"
        return refused, tried

    def _try_changed_answers(self, answers: list[tuple[StdinCase, int]]) -> tuple[int, int]:
        """Return how many changed answers are rejected, with any white space, of those that the comparison
        rejects."""
        refused = tried = again = 0
        for case, number in answers:
            for answer in changed_answers(case.output, f"{MUTANT_SEED}:{self._compared.id}:{number}"):
                # The comparison accepts the change, so it is probably not wrong.
                if compare(answer.text.encode(), case.output, self._compared.compare)[0]:
                    continue
                judgement = self._decide(case, answer.text)
                if judgement.verdict is Verdict.JUDGE_ERROR:
                    raise CheckerRejected(*_rejection("fails", judgement, f"an answer ({answer.change})"))
                tried += 1
                refused += not judgement.accepted
                if judgement.accepted:
                    self._freer = self._freer or f"case {number}: {answer.change}"
                # Each form is another run, so only a few answers are tried with them.
                elif again < _LAYOUTS_OF_WRONG:
                    again += 1
                    self._check_layouts_of_wrong(case, answer)
        return refused, tried

    def _check_layouts_of_wrong(self, case: StdinCase, answer: CandidateAnswer) -> None:
        for other in layouts(answer.text):
            # A checker that white space can change would accept wrong answers.
            if self._decide(case, other.text).accepted:
                raise CheckerRejected(
                    "accepts_layout",
                    f"it refuses an answer ({answer.change}), and accepts it with {other.change}",
                )

    def _decide(self, case: StdinCase, text: str) -> Judgement:
        """Return the decision of the checker on a text, which a program prints."""
        # A problem of this case only, so that the text is judged against it alone.
        alone = msgspec.structs.replace(
            self._checked, tests=StdinTests([case]), references=[], scoring=type(self._checked.scoring)()
        )
        return self._judge(alone, Program("python", f"import sys\nsys.stdout.write({text!r})\n"))

    def _judge(self, problem: Problem, program: Program) -> Judgement:
        # A time limit need not be confirmed: nothing here depends on its exact value.
        return self._runs.run(problem, program, stop_at_first_failure=True, confirm_time_limit=False)


def _rejection(reason: str, judgement: Judgement, what: str) -> tuple[str, str]:
    """Return the reason and the detail for a judgement that should have been another one."""
    if judgement.verdict is Verdict.JUDGE_ERROR:
        return "fails", f"{what}: {judgement.reason}"
    return reason, f"it refuses {what}: {judgement.reason}"


# A word that is not a valid answer to any problem.
GARBAGE = "#?#"
_INTEGER = re.compile(r"-?\d{1,18}")
_OPPOSITES = {"yes": "NO", "no": "YES", "true": "false", "false": "true"}


class CandidateAnswer(Struct, frozen=True):
    """A possible output, and the change of the expected output that makes it."""

    text: str
    change: str


def layouts(text: str) -> list[CandidateAnswer]:
    """Return the same answer with other white space, unless white space may be significant."""
    lines = text.rstrip("\n").split("\n")
    candidates = [
        CandidateAnswer("\n".join(lines), "no newline at the end"),
        CandidateAnswer("\n".join(lines) + "\n\n", "an empty line at the end"),
        CandidateAnswer("\n".join(f"{line} " for line in lines) + "\n", "blanks at the ends of lines"),
        CandidateAnswer("\r\n".join(lines) + "\r\n", "lines that end in CR and LF"),
    ]
    return [answer for answer in candidates if answer.text != text]


def invalid_answers(text: str) -> list[CandidateAnswer]:
    """Return outputs that are wrong for every input."""
    candidates = [CandidateAnswer(GARBAGE + "\n", "a word that is no answer"), CandidateAnswer("", "nothing")]
    return (
        [*candidates, CandidateAnswer(f"{text.rstrip()}\n{GARBAGE}\n", "the answer and more")]
        if text.split()
        else []
    )


def changed_answers(text: str, seed: str) -> list[CandidateAnswer]:
    """Return the answer with one change that usually makes it wrong, each once. The seed fixes
    the changes."""
    tokens = [(found.start(), found[0]) for found in re.finditer(r"\S+", text)]
    if not tokens:
        return []
    draw = random.Random(seed)
    candidates = {answer.text: answer for answer in reversed(list(_changes(text, tokens, draw)))}
    return [answer for answer in reversed(candidates.values()) if answer.text.split() != text.split()]


def _changes(text: str, tokens: list[tuple[int, str]], draw: random.Random) -> Iterator[CandidateAnswer]:
    places = list(dict.fromkeys([0, len(tokens) - 1, int(draw.random() * len(tokens))]))
    for place in places:
        start, word = tokens[place]
        end = start + len(word)
        if _INTEGER.fullmatch(word):
            for step in (1, -1):
                changed = str(int(word) + step)
                yield CandidateAnswer(text[:start] + changed + text[end:], f"{word} made {changed}")
        elif opposite := _OPPOSITES.get(word.casefold()):
            yield CandidateAnswer(text[:start] + opposite + text[end:], f"{word} made {opposite}")
        else:
            yield CandidateAnswer(text[:start] + text[end:], f"without {word}")
    start, word = tokens[-1]
    yield CandidateAnswer(text[:start].rstrip() + "\n", "without its last word")
    yield CandidateAnswer(f"{text.rstrip()} {word}\n", "its last word twice")
    lines = text.rstrip("\n").split("\n")
    if len(lines) > 1:
        yield CandidateAnswer("\n".join(lines[:-1]) + "\n", "without its last line")
        yield CandidateAnswer(
            "\n".join([*lines[:-2], lines[-1], lines[-2]]) + "\n", "its last lines the other way"
        )
    words = [word for _, word in tokens]
    one, other = (int(draw.random() * len(words)) for _ in range(2))
    words[one], words[other] = words[other], words[one]
    if len(lines) == 1:
        yield CandidateAnswer(" ".join(words) + "\n", "two words in each other's place")
        yield CandidateAnswer(" ".join(reversed([word for _, word in tokens])) + "\n", "backwards")
