"""Run the attack corpus through the judge, and check the verdict of each program."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from whetstone.core.problem import AssertTests, Problem, Program, deciding_program
from whetstone.core.verdict import SHARED_INTERPRETER
from whetstone.judge import Judge, Judgement, Verdict
from whetstone.judge.kinds.assert_conversation import is_judged_by_calls
from whetstone.judge.languages.toolchains import runs_here
from whetstone.testing.attacks.corpus import SHARED_PROCESS, Attack, Corpus

Role = Literal["attack", "twin", "reference"]
# The class that lists the references of the problems.
PROBLEMS_CLASS = "problems"


class AttackTrial(Struct, frozen=True):
    """One program to judge, with its role. ``attack`` is None for the reference of a problem."""

    class_name: str
    name: str
    role: Role
    problem: Problem
    program: Program
    attack: Attack | None = None


class TrialOutcome(Struct, frozen=True):
    """The result of a trial.

    ``failure`` explains an unexpected judgement; it is empty otherwise. ``known`` is the reason from the
    corpus why the attack is not stopped on this machine.
    """

    trial: AttackTrial
    judgement: Judgement
    failure: str = ""
    known: str = ""


def corpus_trials(corpus: Corpus) -> list[AttackTrial]:
    """Return the references, attacks and twins of the corpus whose languages this machine runs."""
    found: list[AttackTrial] = []
    for name, problem in corpus.problems.items():
        for reference in problem.references:
            found.append(AttackTrial(PROBLEMS_CLASS, name, "reference", problem, reference))
    for class_name, attacks in corpus.classes.items():
        for attack in attacks:
            found += _attack_trials(corpus, class_name, attack)
    return [t for t in found if can_judge(t.problem, t.program)]


def can_judge(problem: Problem, program: Program, isolation: str = "") -> bool:
    """Return whether this machine (in this tier) runs the languages of a program and of its checker."""
    decides = deciding_program(problem)
    languages = [program.language, *([decides.language] if decides else [])]
    return all(runs_here(language, isolation) for language in languages)


def _attack_trials(corpus: Corpus, class_name: str, attack: Attack) -> Iterator[AttackTrial]:
    roles: tuple[tuple[Role, list[str], str], ...] = (
        ("attack", attack.programs(), attack.problem),
        ("twin", attack.twins(), attack.twin_problem or attack.problem),
    )
    for role, sources, problem in roles:
        for number, source in enumerate(sources, 1):
            name = f"{attack.name} {number}" if len(sources) > 1 else attack.name
            program = Program(attack.language, source)
            judged_on = corpus.problems[problem]
            if attack.unreferenced and role == "attack":
                judged_on = replace(judged_on, references=[])
            yield AttackTrial(class_name, name, role, judged_on, program, attack)
            # The judge has two implementations for such tests, and attacks must fail against both.
            if is_judged_by_calls(judged_on):
                yield AttackTrial(
                    class_name,
                    f"{name}, in a test process",
                    role,
                    _with_test_process(judged_on),
                    program,
                    attack,
                )


def _with_test_process(problem: Problem) -> Problem:
    """Return the problem with a setup statement that the judge cannot run itself, so that it starts a test
    process."""
    tests = problem.tests
    assert isinstance(tests, AssertTests)
    return replace(problem, id=f"{problem.id}/apart", tests=replace(tests, setup=f"{tests.setup}\napart = 1"))


def run_trials(
    trials: Sequence[AttackTrial],
    *,
    tier: str | None = None,
    workers: int = 0,
    fork_per_case: bool = True,
    environment: str | os.PathLike[str] | None = None,
) -> Iterator[TrialOutcome]:
    """Judge every trial and yield the outcomes, at ``tier`` or the strongest tier of this machine.

    ``environment``: the packages and the Python of the programs (None: the default ones). Attacks with
    earlier programs, and their twins, run one after another on a single worker. All others run on ``workers``
    workers (0: four for each core, because some trials wait for half a minute). Trials in a language that the
    tier refuses are left out. Raises SandboxUnavailable, UserError.
    """
    ordered = [t for t in trials if t.attack is not None and t.attack.earlier]
    free = [t for t in trials if t not in ordered]
    # Time limits are not confirmed by a second run: no honest program of the corpus comes near its limit.
    workers = workers or 4 * len(os.sched_getaffinity(0))
    usual: dict[str, Any] = {"tier": tier, "fork_per_case": fork_per_case, "environment": environment}
    with Judge(workers, confirm_time_limit=False, **usual) as judge:
        free = [t for t in free if can_judge(t.problem, t.program, judge.isolation)]
        # All trials are submitted at once. `judge_many` reads only a little ahead, so one slow trial would
        # hold up all workers.
        judgements = [judge.submit(t.problem, t.program) for t in free]
        for trial, judgement in zip(free, judgements, strict=True):
            yield trial_outcome(trial, judgement.result())
    if ordered:
        with Judge(1, confirm_time_limit=False, **usual) as judge:
            for trial in ordered:
                if can_judge(trial.problem, trial.program, judge.isolation):
                    yield trial_outcome(trial, _judge_after_earlier(judge, trial))


def _judge_after_earlier(judge: Judge, trial: AttackTrial) -> Judgement:
    assert trial.attack is not None
    earlier = (Program(trial.attack.language, source) for source in trial.attack.earlier)
    *_, judgement = judge.judge_many((trial.problem, program) for program in chain(earlier, [trial.program]))
    return judgement


def trial_outcome(trial: AttackTrial, judgement: Judgement) -> TrialOutcome:
    """Compare a judgement with the expected result of its trial."""
    if trial.role != "attack" or trial.attack is None:
        wrong = "" if judgement.accepted else f"must be accepted, got {_verdict_text(judgement)}"
        return TrialOutcome(trial, judgement, wrong)
    if (wrong := _escape_error(trial.attack, judgement)) and (
        known := _known_reason(trial.attack, judgement)
    ):
        return TrialOutcome(trial, judgement, known=known)
    return TrialOutcome(trial, judgement, wrong)


def _escape_error(attack: Attack, judgement: Judgement) -> str:
    """Return why an attack counts as successful; empty if it was stopped.

    A judgement in a shared interpreter never gives a reward, so forging its verdict gains nothing.
    """
    if judgement.unpaid == SHARED_INTERPRETER:
        return ""
    if judgement.verdict is Verdict.JUDGE_ERROR:
        return f"escaped its verdict: {_verdict_text(judgement)}"
    if any(case.verdict is Verdict.ACCEPTED for case in judgement.cases) or judgement.accepted:
        return f"had a case accepted: {_verdict_text(judgement)}"
    if attack.verdicts and judgement.verdict not in attack.verdicts:
        return f"must get {' or '.join(attack.verdicts)}, got {_verdict_text(judgement)}"
    return ""


def _known_reason(attack: Attack, judgement: Judgement) -> str:
    """Return the reason from the corpus why this attack is not stopped here; empty if it must be stopped."""
    if judgement.verdict is Verdict.JUDGE_ERROR:
        return ""
    if judgement.shared_process and SHARED_PROCESS in attack.not_stopped:
        return attack.not_stopped[SHARED_PROCESS]
    return attack.not_stopped.get(judgement.isolation, "")


def _verdict_text(judgement: Judgement) -> str:
    return judgement.verdict.value + (f" ({judgement.reason})" if judgement.reason else "")
