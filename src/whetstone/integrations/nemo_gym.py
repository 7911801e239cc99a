"""NeMo-Gym: a resources server whose reward is that of the judge, and rows for it. Read in nemo-gym 0.4.0.

    code_server().run_webserver()          # app.py of the server's folder, see examples/nemo_gym

A reply without a verdict fails the request for its reward, and with it the rollout. No message contains a
value of a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import msgspec
from pydantic import create_model

from whetstone.core.settings import read_settings
from whetstone.data.dataset import open_problems
from whetstone.environments.prompt_text import prompt_of
from whetstone.environments.settings import EnvironmentSection
from whetstone.integrations.rewards import shared
from whetstone.integrations.settings import reward_settings


def code_rows(problems: str, **environment: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a problem set; ``environment``: settings of the section ``environment``.

    ``problems``: a file of problems, or FOLDER:SPLIT of a dataset. The whole problem is in a row, but not
    in NeMo-Gym's file of rollouts. Raises UserError for a set that cannot be read, and for wrong settings.
    """
    settings = read_settings(EnvironmentSection, environment, where="the prompts of NeMo-Gym")
    for problem in open_problems(problems):
        whole = msgspec.json.encode(problem).decode()
        yield {
            "responses_create_params": {"input": prompt_of(problem, settings).messages()},
            "verifier_metadata": {"id": problem.id, "problem": whole},
        }


def code_server() -> Any:
    """Return the class of the server. The key ``reward`` of its configuration has settings of
    ``RewardSettings``."""
    base = import_module("nemo_gym.base_resources_server")
    config: Any = create_model(
        "CodeServerConfig", __base__=base.BaseResourcesServerConfig, reward=(dict[str, Any], {})
    )
    request: Any = create_model(
        "CodeVerifyRequest", __base__=base.BaseVerifyRequest, verifier_metadata=(dict[str, Any], ...)
    )
    result: Any = create_model(
        "CodeVerifyResponse", __base__=base.BaseVerifyResponse, verdict=(str, ""), explanation=(str, "")
    )

    def model_post_init(self: Any, context: Any) -> None:
        # Wrong settings must end the server when it starts, before replies are sampled.
        reward_settings(self.config.reward)

    async def verify(self: Any, body: Any) -> Any:
        messages = [item.model_dump() for item in body.response.output if item.type == "message"]
        told = await shared(self.config.reward).told(messages, body.verifier_metadata.get("problem"))
        return result(responses_create_params=body.responses_create_params, response=body.response, **told)

    # FastAPI reads the types of requests and answers from them, which a class statement here cannot name.
    verify.__annotations__ = {"body": request, "return": result}
    members = {"__annotations__": {"config": config}, "model_post_init": model_post_init, "verify": verify}
    return type("CodeServer", (base.SimpleResourcesServer,), {"__module__": __name__, **members})
