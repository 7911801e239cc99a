"""The judge of a run. Not imported by ``whetstone.judge``, which needs no pydantic."""

from __future__ import annotations

from typing import Any, Literal

from whetstone.core.settings import Natural, NonEmpty, Section


class JudgeSection(Section):
    """The judge of a run.

    workers: processes that judge; 0 is one for each core. Lower it on a machine that other processes share.
    minimum_tier: the weakest isolation that is allowed; the run is refused where there is only a weaker one.
    max_cases: training judges at most this number of a problem's cases, 0 for all. It is a seeded subset, the
        same for all replies to a prompt, and another one when the problem comes again. Evaluation judges all.
    environment: the packages that programs may import, and their Python: the name of an environment that
        `whetstone judge environment create` created, or the folder of a virtual environment. Empty for the
        installed packages of Whetstone's extra `programs`. A problem can name another environment.
    fork_per_case: false runs the cases of a Python program in one process. This is several times cheaper, but
        each case sees what earlier ones left behind.
    url: one or several servers (`whetstone judge serve`) that judge instead of this machine, with workers of
        their own. Their token is in WHETSTONE_JUDGE_TOKEN, never in a recipe.
    score_shared_interpreter: true rewards verdicts that a program could have forged: those of test code that
        must run in the program's process. Without it they give no reward, and are counted.
    """

    url: str | tuple[NonEmpty, ...] = ""
    workers: Natural = 0
    minimum_tier: Literal["root", "userns", "restricted"] = "restricted"
    max_cases: Natural = 0
    fork_per_case: bool = True
    environment: str = ""
    score_shared_interpreter: bool = False

    def for_judge(self) -> dict[str, Any]:
        """Return the settings that ``Judge(…)`` accepts: all but the url, the workers and the cases of
        training."""
        return self.model_dump(exclude={"url", "workers", "max_cases"})
