"""Creates the judge of a run: worker processes on this machine, or servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whetstone.core.optional_packages import installed_comparisons
from whetstone.judge import AsyncJudge
from whetstone.run.recipe import Recipe

if TYPE_CHECKING:
    from whetstone.service.async_client import AsyncJudgeClient

    RunJudge = AsyncJudge | AsyncJudgeClient


def run_judge(recipe: Recipe, workers: int) -> RunJudge:
    """Return the judge of a run, equal in every process of the run.

    Raises SandboxUnavailable if this machine (or a server of ``judge.url``) cannot isolate as strictly as
    ``judge.minimum_tier`` requires, and UserError for a missing environment or an unreachable server.
    """
    settings: dict[str, Any] = {
        "stop_at_first_failure": not recipe.environment.needs_all_cases,
        **recipe.judge.for_judge(),
    }
    if recipe.judge.url:
        # This import needs an HTTP client, which is optional.
        from whetstone.service.async_client import AsyncJudgeClient

        return AsyncJudgeClient(recipe.judge.url, **settings)
    return AsyncJudge(workers, comparisons=installed_comparisons(), **settings)
