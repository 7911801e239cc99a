"""A tool that a model may call: its interface, the errors, the check of arguments, and the known tools."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field, model_validator

from whetstone.core.plugins import load_plugin
from whetstone.core.settings import Section
from whetstone.environments.argument_types import has_type, typed, types_of
from whetstone.environments.episode import Episode
from whetstone.environments.tool_calls import Call, MalformedCall, quoted

_BUILT_IN = {"python": "whetstone.environments.python_tool.PythonTool"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class ToolError(Exception):
    """A call that cannot be answered because of the model, such as a wrong argument. It reads the message."""


class ToolFault(Exception):
    """A tool that failed, which is not the model's fault. The sample of the episode gets no reward."""


class ToolLimits(Section):
    """What the calls of an episode may use.

    cpu_s: CPU seconds of a call.
    episode_cpu_s: CPU seconds of an episode. The last call may exceed it by ``cpu_s``.
    memory_mb: resident memory of an episode's processes, in MiB.
    output_chars: the most characters of a result. Of a longer one the model reads the beginning and the end.
    packages: what code may import in the tool ``python``: an environment, as in ``judge.environment``. Empty
        for the default one.
    """

    cpu_s: Annotated[float, Field(gt=0, le=600)] = 5.0
    episode_cpu_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    memory_mb: Annotated[int, Field(ge=64, le=65536)] = 512
    output_chars: Annotated[int, Field(ge=500, le=100_000)] = 4000
    packages: str = ""

    @model_validator(mode="after")
    def _check_cpu(self) -> ToolLimits:
        if self.episode_cpu_s < self.cpu_s:
            raise ValueError("`episode_cpu_s` is less than `cpu_s`; raise it, or lower `cpu_s`")
        return self


@dataclass(frozen=True)
class ToolSession:
    """One tool in one episode.

    ``state`` holds what the tool keeps from call to call. What is entered into ``resources`` is closed at the
    end of the episode, whatever happens. ``episode.problem`` has the hidden tests: a result must not depend
    on them.
    """

    episode: Episode
    limits: ToolLimits
    resources: AsyncExitStack
    state: dict[str, Any] = field(default_factory=dict[str, Any])


class Tool(ABC):
    """A tool. One object serves all episodes at once, so it keeps their state in the ``ToolSession``.

    It is also created to check a recipe, so the constructor has no arguments and must be cheap. Open
    resources of all episodes at the first call, and free them in ``close``.
    """

    name: ClassVar[str]
    """The name in calls and metrics: letters, digits, ``_`` and ``-``."""

    description: ClassVar[str]
    """What the model reads about it."""

    parameters: ClassVar[dict[str, Any]]
    """The JSON schema of the arguments, an object. Required names, types, and ``additionalProperties: false``
    are checked before a call."""

    timeout_s: ClassVar[float] = 600.0
    """The most seconds of a call. One that takes longer is cancelled, and the model reads that it was."""

    @abstractmethod
    async def call(self, arguments: dict[str, Any], session: ToolSession) -> str:
        """Return the result of a call, as the model reads it.

        Raises ToolError for a call that is the model's mistake, and ToolFault if the tool itself failed. Any
        other exception ends the run.
        """

    async def close(self) -> None:
        """Free what the calls opened, at the end of the run."""
        return


def make_tool(name: str) -> Tool:
    """Return a new tool: a built-in one, or a user's by dotted path or entry point (``whetstone.tools``).

    Raises ValueError, which lists the known names, or names the missing attribute.
    """
    found = load_plugin(
        _BUILT_IN.get(name, name), kind="tool", entry_point_group="whetstone.tools", builtin=tuple(_BUILT_IN)
    )
    if not (isinstance(found, type) and issubclass(found, Tool)):
        raise ValueError(f"tool `{name}` is not a subclass of whetstone.environments.tool.Tool")
    given = {attribute: getattr(found, attribute, None) for attribute in ("name", "description")}
    for attribute, value in given.items():
        if not isinstance(value, str) or not value:
            raise ValueError(f"tool `{name}`: the class needs a text `{attribute}`")
    if not _NAME.fullmatch(found.name):
        raise ValueError(f"tool `{name}`: its name {found.name!r} may have letters, digits, `_` and `-` only")
    parameters: Any = getattr(found, "parameters", None)
    if not isinstance(parameters, dict) or cast("dict[str, Any]", parameters).get("type") != "object":
        raise ValueError(f"tool `{name}`: the class needs `parameters`, a JSON schema of type `object`")
    return found()


def schema_of(tool: Tool) -> dict[str, Any]:
    """Return a tool in the JSON form of the OpenAI API."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def checked_arguments(call: Call, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call, with the types of the schema. Raises ToolError."""
    properties: Mapping[str, Any] = parameters.get("properties", {})
    for name in parameters.get("required", ()):
        if name not in call.arguments:
            raise ToolError(f"the argument `{name}` is missing")
    found: dict[str, Any] = {}
    for name, value in call.arguments.items():
        if name not in properties and parameters.get("additionalProperties") is False:
            known = ", ".join(f"`{each}`" for each in properties) or "none"
            raise ToolError(f"there is no argument {quoted(name)}; the arguments are: {known}")
        types = types_of(name, parameters)
        try:
            value = typed(value, types) if call.untyped else value
        except MalformedCall:
            raise ToolError(f"the argument `{name}` is not valid JSON") from None
        if types and not has_type(value, types):
            raise ToolError(f"the argument `{name}` must have the JSON type {' or '.join(types)}")
        found[name] = value
    return found
