"""How a problem is put to a model, and how a reply is read and rewarded."""

from __future__ import annotations

from string import Formatter
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from whetstone.errors import did_you_mean
from whetstone.judge.extract import ExtractionRule
from whetstone.settings import Count, NonEmpty, Section
from whetstone.workflow.official_prompts import OFFICIAL_PROMPTS
from whetstone.workflow.own import own_workflow, reward_function
from whetstone.workflow.shipped import (
    CODEGEN_VERIFIER,
    CODER,
    NAMES,
    OPTIONS,
    POLICY,
    SINGLE_TURN,
    VERIFIER,
    RepairOptions,
)


class Shot(Section):
    """A problem with its answer, which a prompt shows before its own problem."""

    statement: NonEmpty
    starter: str = ""
    answer: NonEmpty


class OutcomeRewards(Section):
    """What a reply earns whose program is accepted; whose program is not; and one without a program, or of
    another form than ``answer_format`` asks for. Code-R1 pays 1.1, 0.1 and -1.1."""

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
            f"{error}; rewards by outcome are written {{accepted: 1.1, failed: 0.1, bad_format: -1.1}}"
        ) from None
    return value


Reward = Annotated[str | OutcomeRewards, BeforeValidator(_reward)]
"""``all``, ``fraction``, by outcome, or the name of a function of the user's."""


def _options(value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    kind = info.data.get("kind")
    if kind in OPTIONS:
        OPTIONS[kind].model_validate(value, context=info.context)
    elif value and kind == SINGLE_TURN:
        raise ValueError(f"`{SINGLE_TURN}` has no options; they are those of another `workflow.kind`")
    return value


PLACEHOLDERS = ("problem", "statement", "starter", "instruction")


def placeholders(template: str) -> set[str]:
    """The names of the placeholders of a prompt. Raises ValueError for one that cannot be filled in."""
    known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    rule = f"the placeholders are {known}, and a literal brace is doubled"
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
        raise ValueError("the problem is not shown; write {problem}, or {statement}, where it belongs")
    return template


def _verbatim(text: str | None, info: ValidationInfo) -> str | None:
    filled = {"starter"} if info.field_name == "prefix" else set[str]()
    for name in PLACEHOLDERS:
        if text and name not in filled and f"{{{name}}}" in text:
            raise ValueError(f"{{{name}}} is not filled in here; write it into `prompt`")
    return text


class WorkflowSection(Section):
    """How a problem becomes a prompt, and a reply a program and a reward.

    kind: ``single_turn``; ``repair``, where refused programs are mended; ``codegen_verifier``, with a second
        model that writes tests (docs/workflows.md); or a workflow of your own (docs/own_parts.md).
    options: those of that workflow (``workflow/shipped.py``), or keywords of yours.
    chat: use the tokenizer's chat template; otherwise ``prompt`` is the whole text.
    prompt: user text. Filled in are ``{problem}``, the statement and below it the code to start from, where a
        problem has such code; ``{statement}`` and ``{starter}``, each by itself; ``{instruction}``, how the
        tests will call the program. Or the name of an official prompt (``official_prompts``), which then also
        says what ``chat``, ``system``, ``prefix`` and ``extraction`` are where they are not given.
    shots: examples shown before the problem; of those with and without a starter, the ones that are like it.
    prefix: text that the assistant's reply starts with (given, not sampled); ``{starter}`` is filled in.
    answer_format: ``plain``, or ``think_answer``: <think>…</think> then <answer>…</answer>.
    extraction: where the program stands in the reply; see ``whetstone.judge.extract``.
    reward: ``all`` is 1 for an accepted program and 0 otherwise; ``fraction`` is the share of cases passed;
        or rewards by outcome, see ``OutcomeRewards``, or a function of yours (docs/own_parts.md). No
        verdict, no reward, whichever it is.
    """

    kind: NonEmpty = SINGLE_TURN
    options: Annotated[dict[str, Any], AfterValidator(_options)] = Field(default_factory=dict[str, Any])
    chat: bool = True
    system: Annotated[str | None, AfterValidator(_verbatim)] = None
    prompt: Annotated[str, AfterValidator(_prompt)] = "{problem}\n\n{instruction}"
    shots: tuple[Shot, ...] = ()
    prefix: Annotated[str, AfterValidator(_verbatim)] = ""
    answer_format: Literal["plain", "think_answer"] = "plain"
    extraction: ExtractionRule = "program"
    reward: Reward = "all"
    max_prompt_tokens: Count = 1024

    @property
    def pays_by_case(self) -> bool:
        """Whether reward or feedback may depend on more than whether all cases passed: all must be run."""
        options = self.shipped_options
        tells = isinstance(options, RepairOptions) and options.detail == "cases"
        return tells or (isinstance(self.reward, str) and self.reward != "all")

    @property
    def shipped_options(self) -> Section | None:
        """The options of a workflow that ships and has some."""
        return OPTIONS[self.kind].model_validate(self.options) if self.kind in OPTIONS else None

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models that an episode asks."""
        return (CODER, VERIFIER) if self.kind == CODEGEN_VERIFIER else (POLICY,)

    @property
    def turns(self) -> int:
        """How many replies a sample may hold."""
        options = self.shipped_options
        return options.turns if isinstance(options, RepairOptions) else 1

    @model_validator(mode="before")
    @classmethod
    def _as_the_official_prompt_says(cls, values: Any) -> Any:
        official = OFFICIAL_PROMPTS.get(str(values.get("prompt"))) if isinstance(values, dict) else None
        return {**official.settings, **cast("dict[str, Any]", values)} if official else values

    @model_validator(mode="after")
    def _kind_is_there(self) -> WorkflowSection:
        if self.kind not in NAMES:
            own_workflow(self.kind, self.options)
        return self

    @model_validator(mode="after")
    def _shots_are_shown(self) -> WorkflowSection:
        official = OFFICIAL_PROMPTS.get(self.prompt)
        if self.shots and official is not None and official.answered is None:
            raise ValueError(f"the prompt `{self.prompt}` shows no examples; leave `shots` out")
        return self
