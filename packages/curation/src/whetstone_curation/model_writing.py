"""The options of a model that writes checkers or generators, and the display of its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple

from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.progress import Progress, Work
from whetstone.core.settings import Count, MaxTokens, NonEmpty, Temperature, TopP
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.settings import EndpointSettings


class CheckerReplies(SamplingPlan):
    """The model and the sampling of its replies."""

    TITLE: ClassVar[str] = "model"

    model: Annotated[
        NonEmpty | None, Flag("the name that the endpoint serves, if it serves several", "NAME")
    ] = None
    n: Annotated[Count, Flag("replies per problem, at most", "N", name="attempts")] = 2
    temperature: Temperature = 0.6
    top_p: TopP = 0.95
    max_tokens: MaxTokens = 8192


class GeneratorReplies(CheckerReplies):
    """The model that writes generators."""

    TITLE: ClassVar[str] = "model that writes generators, with --endpoint"

    n: Annotated[Count, Flag("generators per problem", "N", name="attempts")] = 1


class _WriterModel(NamedTuple):
    """A model that writes. ``how`` has everything that the replies depend on, for a journal of replies."""

    label: str
    writer: Any
    how: dict[str, Any]


def model_of(plan: CheckerReplies, endpoint: EndpointSettings) -> _WriterModel:
    """Return the model at an endpoint. Raises UserError for a missing endpoint and for one that does not
    answer."""
    from whetstone.environments.settings import EnvironmentSection
    from whetstone.evaluate.replies.endpoint import EndpointModel

    if not endpoint.endpoint:
        raise UserError("--endpoint is missing: the address of a server, such as http://127.0.0.1:8000/v1")
    model = EndpointModel(endpoint.endpoint, plan.model, endpoint)
    label = str(model.manifest["source"])
    how = {"model": label, "plan": plan.model_dump(mode="json", exclude={"k", "model"})}
    return _WriterModel(label, model.writer(plan, EnvironmentSection(prompt="{statement}")), how)


def progress_callbacks(progress: Progress) -> tuple[Callable[[str, int, int], None], Callable[[str], None]]:
    """Return a function that shows the progress of a named work, and one that prints a line."""
    works: dict[str, Work] = {}

    def watch(name: str, done: int, total: int) -> None:
        if name not in works:
            works[name] = progress.begin(name, total)
        works[name].update(done)
        if done >= total:
            progress.end(works[name])

    return watch, progress.say
