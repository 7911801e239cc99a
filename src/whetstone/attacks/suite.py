"""Running the corpus through the judge, and saying of each program whether it got what it must get."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from whetstone.attacks.corpus import SHARED_PROCESS, Attack, Corpus
from whetstone.judge import Judge, Judgement, Verdict
from whetstone.judge.kinds.by_calls import is_asked
from whetstone.judge.languages.toolchains import runs_here
from whetstone.problem import AssertTests, Problem, Program
from whetstone.verdict import SHARED_INTERPRETER

Role = Literal["attack", "twin", "reference"]
PROBLEMS_CLASS = "problems"
"""The class under which the references of the problems are listed."""


class Trial(Struct, frozen=True):
    """One program to judge, and the part it plays. ``attack`` is None for a problem's reference."""

    class_name: str
    name: str
    role: Role
    problem: Problem
    program: Program
    attack: Attack | None = None


class Outcome(Struct, frozen=True):
    """What became of a trial.

    ``failure`` says why it is not what it must be; empty when it is. ``known`` is the reason why an
    attack is not stopped on this machine, when the corpus says so beforehand.
    """

    trial: Trial
    judgement: Judgement
    failure: str = ""
    known: str = ""


def trials(corpus: Corpus) -> list[Trial]:
    """All programs of the corpus in a language that this machine runs: references, attacks, twins."""
    found: list[Trial] = []
    for name, problem in corpus.problems.items():
        for reference in problem.references:
            found.append(Trial(PROBLEMS_CLASS, name, "reference", problem, reference))
    for class_name, attacks in corpus.classes.items():
        for attack in attacks:
            found += _trials(corpus, class_name, attack)
    return [t for t in found if runs_here(t.program.language)]


def _trials(corpus: Corpus, class_name: str, attack: Attack) -> Iterator[Trial]:
    roles: tuple[tuple[Role, list[str], str], ...] = (
        ("attack", attack.programs(), attack.problem),
        ("twin", attack.twins(), attack.twin_problem or attack.problem),
    )
    for role, sources, problem in roles:
        for number, source in enumerate(sources, 1):
            name = f"{attack.name} {number}" if len(sources) > 1 else attack.name
            program = Program(attack.language, source)
            met = corpus.problems[problem]
            if attack.unreferenced and role == "attack":
                met = replace(met, references=[])
            yield Trial(class_name, name, role, met, program, attack)
            if is_asked(met):
                yield Trial(class_name, f"{name}, by a testing process", role, _apart(met), program, attack)


def _apart(problem: Problem) -> Problem:
    """The same problem with a test that does more than the judge can ask itself."""
    tests = problem.tests
    assert isinstance(tests, AssertTests)
    return replace(problem, id=f"{problem.id}/apart", tests=replace(tests, setup=f"{tests.setup}\napart = 1"))


def run_trials(
    trials: Sequence[Trial], *, tier: str | None = None, workers: int = 0, fork_per_case: bool = True
) -> Iterator[Outcome]:
    """Judge every trial and yield the outcomes, at ``tier`` or the strongest that this machine offers.

    Attacks that need an earlier program, and their twins, run one after the other on a worker of their
    own, all others on ``workers`` of them (0: four for each core, because some wait for half a minute). A
    language that the tier refuses is left out. Raises SandboxUnavailable, UserError.
    """
    ordered = [t for t in trials if t.attack is not None and t.attack.earlier]
    free = [t for t in trials if t not in ordered]
    # A time limit needs no confirming here: no honest program of the corpus comes near one.
    workers = workers or 4 * len(os.sched_getaffinity(0))
    with Judge(workers, tier=tier, confirm_time_limit=False, fork_per_case=fork_per_case) as judge:
        free = [t for t in free if runs_here(t.program.language, judge.isolation)]
        # All at once: `judge_many` reads only a little ahead, so that all workers would wait for one trial.
        judgements = [judge.submit(t.problem, t.program) for t in free]
        for trial, judgement in zip(free, judgements, strict=True):
            yield outcome(trial, judgement.result())
    if ordered:
        with Judge(1, tier=tier, confirm_time_limit=False, fork_per_case=fork_per_case) as judge:
            for trial in ordered:
                if runs_here(trial.program.language, judge.isolation):
                    yield outcome(trial, _after_the_earlier(judge, trial))


def _after_the_earlier(judge: Judge, trial: Trial) -> Judgement:
    assert trial.attack is not None
    earlier = (Program(trial.attack.language, source) for source in trial.attack.earlier)
    *_, judgement = judge.judge_many((trial.problem, program) for program in chain(earlier, [trial.program]))
    return judgement


def outcome(trial: Trial, judgement: Judgement) -> Outcome:
    """Hold a judgement against what the trial must get."""
    if trial.role != "attack" or trial.attack is None:
        wrong = "" if judgement.accepted else f"must be accepted, got {_said(judgement)}"
        return Outcome(trial, judgement, wrong)
    if (wrong := _escaped(trial.attack, judgement)) and (known := _known(trial.attack, judgement)):
        return Outcome(trial, judgement, known=known)
    return Outcome(trial, judgement, wrong)


def _escaped(attack: Attack, judgement: Judgement) -> str:
    """Why an attack counts as one that got through; empty when it was stopped.

    A verdict that could be forged earns nothing, whatever it is: nothing is gained by forging it.
    """
    if judgement.unpaid == SHARED_INTERPRETER:
        return ""
    if judgement.verdict is Verdict.JUDGE_ERROR:
        return f"escaped its verdict: {_said(judgement)}"
    if any(case.verdict is Verdict.ACCEPTED for case in judgement.cases) or judgement.accepted:
        return f"had a case accepted: {_said(judgement)}"
    if attack.verdicts and judgement.verdict not in attack.verdicts:
        return f"must get {' or '.join(attack.verdicts)}, got {_said(judgement)}"
    return ""


def _known(attack: Attack, judgement: Judgement) -> str:
    """The corpus's reason why this attack is not stopped here; empty when it must be."""
    if judgement.verdict is Verdict.JUDGE_ERROR:
        return ""
    if judgement.shared_process and SHARED_PROCESS in attack.not_stopped:
        return attack.not_stopped[SHARED_PROCESS]
    return attack.not_stopped.get(judgement.isolation, "")


def _said(judgement: Judgement) -> str:
    return judgement.verdict.value + (f" ({judgement.reason})" if judgement.reason else "")
