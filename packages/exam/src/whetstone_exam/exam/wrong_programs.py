"""Wrong programs: references of the corpus with one small change, which their tests reject."""

from __future__ import annotations

from collections.abc import Mapping

from whetstone.core.problem import Problem, Program
from whetstone.core.verdict import Verdict
from whetstone.data.validate.mutants import mutants
from whetstone.judge import Judge
from whetstone.testing.attacks.suite import can_judge
from whetstone_exam.exam.items import ExamItem

# Most mutants of one reference are rejected, so a few candidates for each wanted program are enough.
_CANDIDATES = 3


def wrong_programs(problems: Mapping[str, Problem], count: int, seed: int) -> list[ExamItem]:
    """Return up to ``count`` wrong programs for each problem with a reference in Python.

    This judge selects them: the mutant of a reference is wrong only if the tests give a wrong answer for it.
    """
    candidates = [
        (name, problem, Program("python", mutant.source), mutant.change)
        for name, problem in problems.items()
        for reference in problem.references[:1]
        if reference.language == "python" and count and can_judge(problem, reference)
        for mutant in mutants(reference.source, count * _CANDIDATES, f"{seed}/{name}")
    ]
    found: dict[str, list[ExamItem]] = {}
    with Judge() as judge:
        pending = [judge.submit(problem, program) for _, problem, program, _ in candidates]
        for (name, problem, program, change), future in zip(candidates, pending, strict=True):
            judgement = future.result()
            chosen = found.setdefault(name, [])
            if judgement.verdict is Verdict.WRONG_ANSWER and judgement.score is not None:
                chosen.append(
                    ExamItem(
                        f"wrong/{name}/{seed}.{len(chosen)}",
                        "wrong",
                        "problems",
                        f"be accepted, although a change makes the reference wrong: {change}",
                        problem,
                        program,
                    )
                )
    return [item for items in found.values() for item in items[:count]]
