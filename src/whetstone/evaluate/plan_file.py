"""Plans: the benchmarks to measure, with prompts, sampling and judging, in one YAML file.

A plan has ``benchmarks``, a list of entries, and ``defaults``, which apply to all of them. The shipped plans
are those of published tables (``plans/``). A comment in each cites the source of its values.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.flag import Flag
from whetstone.core.settings import (
    Count,
    MaxTokens,
    Natural,
    NonEmpty,
    Sampling,
    Section,
    StopTexts,
    Temperature,
    TopK,
    TopP,
    read_settings,
)
from whetstone.core.yaml_text import parse_yaml
from whetstone.environments.official_prompts import OFFICIAL_PROMPTS
from whetstone.environments.settings import EnvironmentSection
from whetstone.evaluate.plan import SamplingPlan
from whetstone.judge.extract import ExtractionRule

SAMPLING = ("n", "k", "temperature", "top_p", "top_k", "max_tokens", "stop", "seed")
ASKING = ("chat", "prompt", "prefix", "system", "extraction", "max_prompt_tokens")


class ReplyChoices(Section):
    """The prompts and the sampling of an entry; null is not given."""

    TITLE: ClassVar[str] = "prompts and sampling"

    n: Annotated[Count | None, Flag("replies per problem (default: 8)", "N")] = None
    k: Annotated[tuple[Count, ...] | None, Flag("the k of pass@k, such as 1,8 (default: 1 and n)", "K,…")] = (
        None
    )
    temperature: Annotated[Temperature | None, Flag("of the sampling; 0 is greedy (default: 0.8)", "T")] = (
        None
    )
    top_p: TopP | None = None
    top_k: TopK | None = None
    max_tokens: Annotated[
        MaxTokens | None,
        Flag("longest reply in tokens, thinking included (default: the recipe's, or 512)", "N"),
    ] = None
    stop: StopTexts | None = None
    seed: Annotated[int | None, Flag("seed of the replies (default: 0)", "N")] = None
    chat: Annotated[
        bool | None, Flag("use the chat template; without it, the prompt is plain text (default: chat)")
    ] = None
    prompt: Annotated[
        str | None,
        Flag(
            r"template with {problem}, {statement}, {starter} or {instruction}; \n is a line break; or the "
            "name of an official one: " + ", ".join(OFFICIAL_PROMPTS),
            "TEXT",
        ),
    ] = None
    prefix: Annotated[str | None, Flag(r"text that every reply starts with; \n is a line break", "TEXT")] = (
        None
    )
    system: Annotated[str | None, Flag("system message", "TEXT")] = None
    extraction: Annotated[
        ExtractionRule | None,
        Flag("where the program stands in the reply (default: program, chosen by what the tests need)"),
    ] = None
    max_prompt_tokens: Annotated[
        Count | None, Flag("longer prompts count as failed (default: 2048)", "N")
    ] = None


Harness = Annotated[
    Literal["ours", "official"],
    Flag(
        "whose rules decide: ours (default), or official, those of the graders of LiveCodeBench and "
        "EvalPlus (for livecodebench, humanevalplus, mbppplus)"
    ),
]


class _Choices(ReplyChoices):
    """The settings of a measurement; null is not given.

    limit: only the first so many problems; null and 0 take all.
    data: the published file or folder, or a problem set; null downloads from the hub.
    """

    harness: Harness | None = None
    limit: Natural | None = None
    data: str | None = None


class PlannedBenchmark(_Choices):
    """One measurement.

    benchmark: its name, as `whetstone recipes --benchmarks` lists it; ``problems`` for any problem set.
    name: the name of its folder and of its results; null is the benchmark's.
    """

    benchmark: NonEmpty
    name: NonEmpty | None = None

    @property
    def title(self) -> str:
        """The name of the result."""
        return self.name or self.benchmark.replace(":", "-")


class _EvaluationPlan(Section):
    """A plan as written in a file.

    defaults: the settings of every entry that does not set its own.
    benchmarks: the measurements.
    """

    defaults: _Choices = _Choices()
    benchmarks: tuple[PlannedBenchmark, ...]

    def entries(self) -> list[PlannedBenchmark]:
        """Return the measurements, with the defaults applied."""
        given = _given_values(self.defaults)
        return [
            PlannedBenchmark.model_validate({**given, **_given_values(entry)}) for entry in self.benchmarks
        ]


def _given_values(choices: _Choices) -> dict[str, Any]:
    return choices.model_dump(exclude_none=True)


def read_plan(name_or_path: str) -> _EvaluationPlan:
    """Return the plan in a file, or a shipped plan by name.

    Raises UserError with the wrong key, and for two results with one name.
    """
    text, place = _text(name_or_path)
    try:
        content = parse_yaml(text)
    except yaml.YAMLError as error:
        raise UserError(f"{place}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or not content.get("benchmarks"):
        raise UserError(f"{place}: a plan is a mapping with a list of `benchmarks`; see docs/evaluation.md")
    plan = read_settings(_EvaluationPlan, content, where=place)
    titles = [entry.title for entry in plan.benchmarks]
    if twice := [title for title in titles if titles.count(title) > 1]:
        raise UserError(f"{place}: two benchmarks are called `{twice[0]}`; give one a `name`")
    if bad := [title for title in titles if title != Path(title).name or title in {".", ".."}]:
        raise UserError(f"{place}: the name `{bad[0]}` is that of a folder; leave out slashes")
    return plan


def shipped_plans() -> dict[str, str]:
    """Return the names of the shipped plans, each with the first line of its comment."""
    found = [place for place in _folder().iterdir() if place.name.endswith(".yaml")]
    texts = {place.name.removesuffix(".yaml"): place.read_text(encoding="utf-8") for place in found}
    return {name: texts[name].partition("\n")[0].removeprefix("#").strip() for name in sorted(texts)}


def _text(name_or_path: str) -> tuple[str, str]:
    path = Path(name_or_path)
    if path.is_file():
        return path.read_text(encoding="utf-8"), str(path)
    known = shipped_plans()
    if name_or_path in known:
        return (_folder() / f"{name_or_path}.yaml").read_text(encoding="utf-8"), f"plan {name_or_path}"
    hint = did_you_mean(name_or_path, known)
    raise UserError(f"--plan {name_or_path}: no such file, and no plan that ships{hint} ({', '.join(known)})")


def _folder() -> Any:
    return resources.files("whetstone.evaluate") / "plans"


DEFAULT_N = 8
_DEFAULTS: dict[str, Any] = {"n": DEFAULT_N, "temperature": 0.8, "top_p": 1.0, "top_k": 0, "seed": 0}


def sampling_of(
    entry: PlannedBenchmark,
    training: Sampling | None,
    name: Callable[[str], str],
    defaults: dict[str, Any] | None = None,
) -> SamplingPlan:
    """Return the sampling plan of an entry.

    The entry's values come first, then the stop strings of its prompt, then ``defaults``, and the length and
    stop strings of training. Raises UserError; ``name`` converts a key for messages.
    """
    drawn = _DEFAULTS | (defaults or {})
    official = OFFICIAL_PROMPTS.get(entry.prompt or "")
    if training:
        drawn |= {"max_tokens": training.max_tokens, "stop": training.stop}
    if official and official.stop:
        drawn["stop"] = official.stop
    given = entry.model_dump(exclude_none=True)
    drawn |= {key: given[key] for key in SAMPLING if key in given}
    if "n" in given or "k" not in drawn:
        drawn["k"] = given.get("k", tuple(sorted({1, max(drawn["n"], 1)})))
    return read_settings(SamplingPlan, drawn, name=name)


def asking_of(
    entry: PlannedBenchmark, training: EnvironmentSection | None, prompt: str, name: Callable[[str], str]
) -> EnvironmentSection:
    """Return the prompt settings of an entry.

    The entry's values come first, then those of training, or else the benchmark's own ``prompt``. An official
    prompt uses no texts of training. Raises UserError; ``name`` converts a key for messages.
    """
    given = entry.model_dump(exclude_none=True)
    fields: dict[str, Any] = {"prompt": prompt, "max_prompt_tokens": 2048}
    if training:
        fields = training.model_dump(exclude_defaults=entry.prompt is not None)
    if entry.prompt in OFFICIAL_PROMPTS:
        fields = {key: fields[key] for key in ("chat", "max_prompt_tokens") if key in fields}
    fields |= {key: given[key] for key in ASKING if key in given}
    return read_settings(EnvironmentSection, fields, name=name)
