"""A task set of programming problems for verifiers and prime-rl, rewarded by Whetstone's judge."""

from collections.abc import Iterator
from typing import Any

import msgspec
import verifiers.v1 as vf
from pydantic import Field

from whetstone.data.dataset import open_problems
from whetstone.environments.prompt_text import prompt_of
from whetstone.environments.settings import EnvironmentSection
from whetstone.integrations.rewards import shared
from whetstone.integrations.verifiers import scored


class CodeData(vf.TaskData):
    problem: str
    """The whole problem as JSON. It stands in traces, never in the prompt."""


class CodeConfig(vf.TaskConfig):
    reward: dict[str, Any] = Field(default_factory=dict)
    """The settings of the reward: the sections `environment` and `judge` of a recipe."""


class CodeTask(vf.Task[CodeData, vf.State, CodeConfig]):
    @vf.reward
    async def code_reward(self, trace: vf.Trace) -> float:
        found = await scored(trace, self.data.problem, self.config.reward)
        trace.info["verdict"] = found.judgement.verdict.value if found.judgement else "none"
        return shared(self.config.reward).number(found)


class CodeTasksetConfig(vf.TasksetConfig):
    task: CodeConfig = CodeConfig()
    problems: str = "builtin:train"
    """A set of Whetstone's: a file of problems, or FOLDER:SPLIT of a dataset."""


class CodeTaskset(vf.Taskset[CodeTask, CodeTasksetConfig]):
    def load(self) -> Iterator[CodeTask]:
        environment = EnvironmentSection.model_validate(self.config.task.reward.get("environment", {}))
        for problem in open_problems(self.config.problems):
            prompt = prompt_of(problem, environment)
            whole = msgspec.json.encode(problem).decode()
            data = CodeData(id=problem.id, prompt=prompt.user, system_prompt=prompt.system, problem=whole)
            yield CodeTask(data, self.config.task)


__all__ = ["CodeTaskset"]
