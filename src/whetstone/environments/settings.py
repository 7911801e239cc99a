"""Settings of the environment: how a problem becomes a prompt, and how a reply is read and rewarded."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from string import Formatter
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from whetstone.core.errors import did_you_mean
from whetstone.core.plugins import load_plugin
from whetstone.core.settings import Count, NonEmpty, Section
from whetstone.environments.environment import Environment
from whetstone.environments.official_prompts import OFFICIAL_PROMPTS
from whetstone.environments.reward_function import reward_function
from whetstone.judge.extract import ExtractionRule

SINGLE_TURN = "single_turn"

_BUILT_IN = {
    SINGLE_TURN: "whetstone.environments.single_turn.SingleTurn",
    "repair": "whetstone.environments.repair.Repair",
    "agent": "whetstone.environments.agent.CommandAgent",
    "codegen_verifier": "whetstone.environments.codegen_verifier.CodegenVerifier",
    "tools": "whetstone.environments.tools.ToolUse",
    "repository": "whetstone.environments.repository.Repository",
    "repository_agent": "whetstone.environments.repository_agent.RepositoryAgent",
}


def environment_class(kind: str) -> type[Environment]:
    """Return the class with this name. Raises ValueError, which lists the known names."""
    found = load_plugin(
        _BUILT_IN.get(kind, kind),
        kind="environment",
        entry_point_group="whetstone.environments",
        builtin=tuple(_BUILT_IN),
    )
    if not (isinstance(found, type) and issubclass(found, Environment)):
        raise ValueError(
            f"environment `{kind}` is not a subclass of whetstone.environments.environment.Environment; see "
            "docs/environments.md"
        )
    return found


def create_environment(
    kind: str, settings: object, options: Mapping[str, Any], context: Any = None
) -> Environment:
    """Return the environment with this name, ``settings`` and ``options``.

    ``context`` is that of pydantic's validation. Raises ValueError for unknown names and invalid options.
    """
    found = cast("Any", environment_class(kind))
    if found.Options is not None:
        return found(settings, found.Options.model_validate(dict(options), context=context))
    try:
        inspect.signature(found).bind(settings, **options)
    except TypeError as error:
        allowed = [*inspect.signature(found).parameters][1:]
        rule = f"its options are {', '.join(allowed)}" if allowed else f"`{kind}` has no options; remove them"
        raise ValueError(f"options: {error}; {rule}") from None
    return found(settings, **options)


class OutcomeRewards(Section):
    """Rewards by outcome. Code-R1 uses 1.1, 0.1 and -1.1.

    accepted: of a program that passes every test.
    failed: of a program that is rejected.
    bad_format: of a reply without a program, or in the wrong form (see ``answer_format``).
    """

    accepted: float = 1.0
    failed: float = 0.0
    bad_format: float


def _reward(value: object, info: ValidationInfo) -> object:
    if isinstance(value, dict):
        return OutcomeRewards.model_validate(value, context=info.context)
    if value in ("all", "fraction") or isinstance(value, OutcomeRewards):
        return value
    try:
        reward_function(str(value))
    except ValueError as error:
        raise ValueError(
            f"{error}; to give rewards by outcome, write {{accepted: 1.1, failed: 0.1, bad_format: -1.1}}"
        ) from None
    return value


Reward = Annotated[str | OutcomeRewards, BeforeValidator(_reward)]
"""``all``, ``fraction``, rewards by outcome, or the name of a user's function."""


def _kind(name: str) -> str:
    environment_class(name)
    return name


def _options(value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    # Pydantic validates fields in their order, so `kind` is known here, unless it is invalid.
    if (kind := info.data.get("kind")) and (options := environment_class(kind).Options) is not None:
        options.model_validate(value, context=info.context)
    return value


PLACEHOLDERS = ("problem", "statement", "starter", "instruction")


def placeholders(template: str) -> set[str]:
    """Return the placeholder names of a prompt. Raises ValueError for an unknown placeholder."""
    known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    rule = f"the placeholders are {known}; double a literal brace"
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{error}; {rule}") from None
    found: set[str] = set()
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if name not in PLACEHOLDERS or form or conversion:
            hint = did_you_mean(name, PLACEHOLDERS)
            official = f"; or give the name of an official prompt: {', '.join(OFFICIAL_PROMPTS)}"
            raise ValueError(f"cannot fill in {name!r}{hint}; {rule}{official}")
        found.add(name)
    return found


def _prompt(template: str) -> str:
    if template not in OFFICIAL_PROMPTS and not placeholders(template) & {"problem", "statement", "starter"}:
        raise ValueError("the prompt does not contain the problem; add {problem} or {statement}")
    return template


def _check_verbatim(text: str | None, info: ValidationInfo) -> str | None:
    filled = {"starter"} if info.field_name == "prefix" else set[str]()
    for name in PLACEHOLDERS:
        if text and name not in filled and f"{{{name}}}" in text:
            raise ValueError(f"{{{name}}} is only filled in within `prompt`; move it there")
    return text


class EnvironmentSection(Section):
    """How a problem becomes a prompt, and a reply a program and a reward.

    kind: the name of the environment: ``single_turn``, another built-in one, or your own class
        (docs/environments.md).
    options: the options of that environment.
    chat: use the tokenizer's chat template; otherwise ``prompt`` is the whole text.
    system: the system message of a chat; null for none.
    prompt: the user text, or the name of an official prompt (``official_prompts``). Placeholders are
        ``{problem}`` (the statement, followed by the starter code if the problem has any), ``{statement}``,
        ``{starter}``, and ``{instruction}``, how the tests call the program. An official prompt also sets
        ``chat``, ``system``, ``prefix`` and ``extraction`` unless they are given.
    prefix: the given start of the assistant's reply, which is not sampled. ``{starter}`` is filled in.
    answer_format: ``plain``, or ``think_answer``: <think>…</think> then <answer>…</answer>.
    extraction: where the program is in the reply; see ``whetstone.judge.extract``.
    reward: ``all`` is 1 for an accepted program and 0 otherwise. ``fraction`` is the share of accepted cases.
        Other values are rewards by outcome, see ``OutcomeRewards``, or your own function
        (docs/own_parts.md). A reply without a verdict never has a reward.
    max_prompt_tokens: the longest prompt in tokens; a problem with a longer one rejects the run, unless
        ``data.drop_long_prompts`` leaves it out.
    """

    kind: Annotated[NonEmpty, AfterValidator(_kind)] = SINGLE_TURN
    options: Annotated[dict[str, Any], AfterValidator(_options)] = Field(default_factory=dict[str, Any])
    chat: bool = True
    system: Annotated[str | None, AfterValidator(_check_verbatim)] = None
    prompt: Annotated[str, AfterValidator(_prompt)] = "{problem}\n\n{instruction}"
    prefix: Annotated[str, AfterValidator(_check_verbatim)] = ""
    answer_format: Literal["plain", "think_answer"] = "plain"
    extraction: ExtractionRule = "program"
    reward: Reward = "all"
    max_prompt_tokens: Count = 1024

    def build(self) -> Environment:
        """Return a new environment with these settings."""
        return create_environment(self.kind, self, self.options)

    @property
    def needs_all_cases(self) -> bool:
        """Whether rewards or messages depend on single cases, so that all cases must be judged."""
        return self.build().needs_all_cases

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models that an episode samples."""
        return self.build().models

    def longest_sample(self, max_tokens: int) -> int:
        """Return the most tokens that a model generates in a sample, for replies of ``max_tokens``."""
        return self.build().longest_sample(max_tokens)

    @model_validator(mode="before")
    @classmethod
    def _apply_official_prompt(cls, values: Any) -> Any:
        official = OFFICIAL_PROMPTS.get(str(values.get("prompt"))) if isinstance(values, dict) else None
        return {**official.settings, **cast("dict[str, Any]", values)} if official else values

    @model_validator(mode="after")
    def _check_options(self) -> EnvironmentSection:
        self.build()
        return self
