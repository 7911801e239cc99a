"""The environment ``repository``: the model works on a code base with tools, and hidden tests decide."""

from __future__ import annotations

import json
import random
from typing import Annotated

from msgspec.structs import replace
from pydantic import BeforeValidator, Field

from whetstone.core.problem import Problem
from whetstone.core.settings import NonEmpty, Share
from whetstone.data.validate.mutants import mutants
from whetstone.environments.conversation import Reply
from whetstone.environments.episode import Episode, Rollout
from whetstone.environments.prompt import Prompt
from whetstone.environments.repository_tools import EndOfWork, edited, numbered_lines
from whetstone.environments.repository_work import (
    Repositories,
    RepositoryLimits,
    cached_base,
    current_work,
    working,
)
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import Outcome, SingleTurn, reward_of, sample_of
from whetstone.environments.tools import ToolUse, ToolUseOptions
from whetstone.judge.repository.task import RepositoryTask

_PLACE = "whetstone.environments.repository_tools"
_TOOLS = {name: f"{_PLACE}.{name.title()}Tool" for name in ("bash", "view", "edit", "submit")}
_WRONG_EDITS = 6


def _full_names(names: object) -> object:
    """Return the names of tools with those of this environment in full."""
    return [_TOOLS.get(str(name), name) for name in names] if isinstance(names, list | tuple) else names


class RepositoryOptions(RepositoryLimits, ToolUseOptions):
    """The model works on repository tasks.

    tools: of ``bash``, ``view``, ``edit`` and ``submit``, and your own (docs/environments.md).
    calls: the most calls of an episode. It has at most one reply more.
    describe_tools: whether the prompt describes the tools if there is no chat template. A model that learned
        demonstrations needs no description.
    wrong_demonstrations: the share of demonstrations with a wrong edit, so that RL can improve the model.
    """

    tools: Annotated[tuple[NonEmpty, ...], BeforeValidator(_full_names)] = tuple(_TOOLS.values())
    calls: Annotated[int, Field(ge=1, le=1024)] = 32
    describe_tools: bool = True
    wrong_demonstrations: Share = 0.0


class Repository(ToolUse):
    """Up to ``calls`` calls of tools in a workspace. Its changes are judged by the hidden tests of the task.

    A sample's metrics are its ``turns``, ``tool_errors`` (results that were errors), ``files_read``,
    ``commands``, ``test_runs`` (commands that name a test runner), ``edits``, ``patch_lines`` (lines added
    and removed), and whether it was ``submitted``.
    """

    Options = RepositoryOptions

    def __init__(self, settings: EnvironmentSection, options: RepositoryOptions) -> None:
        super().__init__(settings, options)
        self._own = options
        self._shared = Repositories(options)

    def check(self, problem: Problem) -> None:
        """See Environment. Raises UserError for a problem that is no repository task."""
        self._shared.task(problem)

    def prompt(self, problem: Problem) -> Prompt | None:
        """See Environment. ``{instruction}`` says which changes count."""
        shown = replace(problem, statement=task_text(self.settings, problem, self._shared.task(problem)))
        if self.settings.chat or self._own.describe_tools:
            return super().prompt(shown)
        return SingleTurn.prompt(self, shown)

    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        """See Environment."""
        async with working(self._shared, problem, episode.program_judge) as work:
            submitted = False
            try:
                rollout = await super().rollout(problem, episode)
            except EndOfWork:
                submitted = True
                conversation = episode.conversations[0]
                outcome = await self.score(episode, conversation.reply)
                rollout = Rollout({self.models[0]: [sample_of(conversation, outcome)]})
            results = [message for turn in episode.conversations[0].turns for message in turn.messages]
            metrics = {
                "turns": float(len(episode.conversations[0].turns)),
                "tool_errors": float(sum(each["content"].startswith("error: ") for each in results)),
                "submitted": float(submitted),
                **work.metrics(),
            }
        samples = rollout.samples[self.models[0]]
        return Rollout({self.models[0]: [replace(sample, metrics=metrics) for sample in samples]})

    async def score(self, episode: Episode, reply: Reply) -> Outcome:
        """Judge and reward the changes in the workspace; a failed reply gets no verdict."""
        if reply.finish_reason == "failed":
            return Outcome()
        return await scored(self.settings, episode.problem, reply.text)

    def demonstration(self, problem: Problem, rng: random.Random) -> list[tuple[str, str]] | None:
        """See Environment. For a reference that changes text files: each is viewed and edited."""
        task, files = self._shared.task(problem), cached_base(self._shared.archive(problem))
        wrong = rng.random() < self._own.wrong_demonstrations
        dialogue: list[tuple[str, str]] = []
        for path, data in task.reference.items():
            if data is None or path not in files:
                return None
            old = files[path].decode()
            others = mutants(data, _WRONG_EDITS, str(rng.random())) if wrong else []
            new_text = next((other.source for other in others if other.source != old), data)
            search, new, line = smallest_edit(old, new_text)
            lines = numbered_lines(old, 1, None, self._own.output_chars)
            dialogue += [("assistant", _call("view", path=path)), ("tool", lines)]
            dialogue += [("assistant", _call("edit", path=path, search=search, replace=new))]
            dialogue += [("tool", edited(path, line))]
        return [*dialogue, ("assistant", _call("submit"))]

    async def close(self) -> None:
        """See Environment."""
        await super().close()
        self._shared.close()


def task_text(settings: EnvironmentSection, problem: Problem, task: RepositoryTask) -> str:
    """Return the statement of a task, with what counts if the prompt has the place ``{instruction}``."""
    if "{instruction}" not in settings.prompt:
        return problem.statement
    paths = ", ".join(f"`{path}`" for path in task.may_change)
    return f"{problem.statement.rstrip()}\n\nOnly changes of {paths} count. Hidden tests decide."


async def scored(settings: EnvironmentSection, problem: Problem, text: str) -> Outcome:
    """Judge and reward the work of the current episode. ``text``: the last reply."""
    judgement = await current_work().finish()
    accepted = None if judgement.score is None else judgement.accepted
    return Outcome(None, judgement, reward_of(problem, text, judgement, settings.reward), accepted)


def smallest_edit(old: str, new: str) -> tuple[str, str, int]:
    """Return the lines of a text to replace, which occur once in it, the lines for them, and the first's
    number."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    while True:
        search = "".join(before[start : len(before) - end])
        if (search and old.count(search) == 1) or not (start or end):
            return search, "".join(after[start : len(after) - end]), start + 1
        start, end = max(0, start - 1), max(0, end - 1)


def _call(name: str, **arguments: str) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"
