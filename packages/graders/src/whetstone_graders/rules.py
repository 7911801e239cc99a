"""The rules of the graders of published figures: ``--harness official``.

For problems of LiveCodeBench, HumanEval+ and MBPP+. How a program is found in a reply, how it is run and what
counts as right are the grader's; where it runs, and that no verdict depends on load, are ours.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Iterable

from whetstone.core.errors import UserError
from whetstone.core.problem import AssertTests, Problem, Program
from whetstone.core.verdict import Judgement, Verdict
from whetstone.environments.episode import Episode
from whetstone.environments.prompt_text import reply_prefix
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import SingleTurn
from whetstone.judge import AsyncJudge
from whetstone.judge.extract import strip_thinking
from whetstone.sandbox import SandboxFault
from whetstone_graders import evalplus, livecodebench
from whetstone_graders.calling import Caller, CallFailed
from whetstone_graders.form import OfficialForm
from whetstone_graders.sanitize import sanitized

_LIVECODEBENCH_SOURCES = ("livecodebench", "deepcoder-lcbv5")
EVALPLUS_SOURCES = tuple(evalplus.DATASETS)
_FORMS_KEPT = 32
"""Forms of recent problems that are kept: those of HumanEval+ have some megabytes each."""


def check_official(problems: Iterable[Problem]) -> None:
    """Raise UserError for problems that no official grader is reproduced for."""
    seen: set[str] = set()
    for problem in problems:
        if _is_livecodebench(problem):
            known = livecodebench.official_form(problem) is not None
        else:  # one of a source tells which form of it this is; reading it takes its time
            known = problem.source in seen or evalplus.task_of(problem) is not None
        seen.add(problem.source)
        if not known:
            raise UserError(
                f"problem {problem.id!r}: --harness official reproduces the graders of LiveCodeBench and "
                "EvalPlus, for the benchmarks livecodebench, humanevalplus and mbppplus (these two from the "
                "release's HumanEvalPlus.jsonl.gz and MbppPlus.jsonl.gz; their base inputs are those of "
                "HumanEval and MBPP); use --harness ours here"
            )


class OfficialRules(SingleTurn):
    """The episode with a grader's rules. A context manager: it owns a sandbox for references."""

    check_problems = staticmethod(check_official)

    def __init__(
        self, judge: AsyncJudge, settings: EnvironmentSection, minimum_tier: str = "restricted"
    ) -> None:
        """``settings`` are those of the prompts: with a prefix, or as text to be continued."""
        super().__init__(settings)
        self._async_judge = judge
        self._minimum_tier = minimum_tier
        self._caller: Caller | None = None
        self._forms: OrderedDict[str, OfficialForm | CallFailed] = OrderedDict()
        self._lock = threading.Lock()

    def program_of(self, problem: Problem, reply: str) -> str | None:
        """Return the code that the grader would judge; None for a reply whose thinking never ends.

        LiveCodeBench takes it from the last two fences of the whole reply, EvalPlus from the longest run
        of lines that parses: here, of what comes after the thinking.
        """
        text = reply_prefix(problem, self.settings) + reply
        if _is_livecodebench(problem):
            return livecodebench.code_in(text) or None
        visible = strip_thinking(text)
        entry_point = problem.tests.entry_point if isinstance(problem.tests, AssertTests) else None
        if visible is None or entry_point is None:
            return None
        continued = "" if self.settings.chat else problem.starter or ""
        return sanitized(continued + visible, entry_point).strip() or None

    async def judge(self, episode: Episode, program: Program) -> Judgement:
        """Return the verdict by the grader's rules."""
        form = await asyncio.to_thread(self._form, episode.problem)
        if isinstance(form, CallFailed):
            reason = f"the problem's reference fails in its official form: {form}"
            return Judgement(Verdict.JUDGE_ERROR, [], None, self._async_judge.isolation, reason)
        wrapped = form.program(program.source)
        return await episode.judge(wrapped, problem=form.problem, stop_at_first_failure=True)

    def _form(self, problem: Problem) -> OfficialForm | CallFailed:
        with self._lock:
            known = self._forms.get(problem.id)
            if known is None:
                known = self._forms[problem.id] = self._made(problem)
                while len(self._forms) > _FORMS_KEPT:
                    self._forms.popitem(last=False)
            return known

    def _made(self, problem: Problem) -> OfficialForm | CallFailed:
        if _is_livecodebench(problem):
            form = livecodebench.official_form(problem)
            return form or CallFailed("LiveCodeBench has no problems of this kind")
        task = evalplus.task_of(problem)
        if task is None:
            return CallFailed("EvalPlus' inputs are not in the problem")
        if self._caller is None:
            self._caller = Caller(self._minimum_tier)
        try:
            return evalplus.official_form(problem, task, self._caller)
        except CallFailed as error:
            return error
        except SandboxFault as error:
            return CallFailed(f"the sandbox failed: {error}")

    def __enter__(self) -> OfficialRules:
        return self

    def __exit__(self, *error: object) -> None:
        if self._caller is not None:
            self._caller.close()


def _is_livecodebench(problem: Problem) -> bool:
    return problem.source in _LIVECODEBENCH_SOURCES
