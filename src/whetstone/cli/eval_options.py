"""The options of ``whetstone eval``."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.settings import Natural, NonEmpty, Section
from whetstone.evaluate.plan_file import Harness, ReplyChoices


class Measurement(Section):
    """The benchmarks to measure, and the folder of the results."""

    TITLE: ClassVar[str] = "what to measure"

    benchmark: Annotated[
        tuple[NonEmpty, ...],
        Flag("separated by commas; `whetstone recipes --benchmarks` lists them", "NAMES"),
    ] = ()
    plan: Annotated[
        NonEmpty | None,
        Flag(
            "a YAML file with benchmarks, prompts and sampling, or the name of a shipped plan "
            "(`whetstone recipes --plans`); other flags then apply to all its benchmarks",
            "FILE",
        ),
    ] = None
    data: Annotated[
        tuple[NonEmpty, ...],
        Flag(
            "the published file or folder of the benchmark; for `problems` a problem file or a set such as "
            "builtin:heldout; NAME= selects one of several benchmarks (default: download from the hub)",
            "[NAME=]FILE",
            repeat=True,
        ),
    ] = ()
    harness: Harness | None = None
    limit: Annotated[Natural, Flag("only the first N problems; 0 (default): all", "N")] = 0
    out: Annotated[
        NonEmpty | None, Flag("write manifest, samples.jsonl and evaluation.json to DIR/BENCHMARK", "DIR")
    ] = None
    restart: Annotated[bool, Flag("delete the contents of --out instead of resuming")] = False
    json_: Annotated[bool, Flag("print the results as one JSON object; everything else goes to stderr")] = (
        False
    )


class ReplyOptions(ReplyChoices):
    """The prompts and the sampling of replies."""

    recipe: Annotated[
        NonEmpty | None, Flag("use the environment, stop texts and length of a recipe", "FILE")
    ] = None


def option_named(key: str) -> str:
    """Return the flag of a setting. The index of a list is left out."""
    return "--" + key.partition(".")[0].replace("_", "-")


def benchmark_files(data: tuple[str, ...], names: list[str]) -> dict[str, str | None]:
    """Return the value of --data for each of the benchmarks ``names``, or None.

    ``NAME=PATH`` is for benchmark NAME, or for all its parts (``NAME:PART``). ``PATH`` is for the only
    benchmark.
    """
    files: dict[str, str | None] = dict.fromkeys(names)
    for text in data:
        name, equals, path = text.partition("=")
        matching = [known for known in names if equals and name in {known, known.partition(":")[0]}]
        if matching:
            files.update(dict.fromkeys(matching, path))
        elif len(files) == 1:
            files[names[0]] = text
        else:
            raise UserError(f"--data {text}: there are several benchmarks; name one: NAME=PATH")
    return files


def values_of_flags(measurement: Measurement, replies: ReplyOptions) -> dict[str, Any]:
    r"""Return the values that the flags give to every measurement. ``\n`` in texts becomes a line break."""
    values = replies.model_dump(exclude_none=True, exclude={"recipe"})
    for name in ("prompt", "prefix"):
        if name in values:
            values[name] = _unescape(values[name])
    if "stop" in values:
        values["stop"] = tuple(map(_unescape, values["stop"]))
    return {
        **values,
        **({"harness": measurement.harness} if measurement.harness else {}),
        **({"limit": measurement.limit} if measurement.limit else {}),
    }


def _unescape(text: str) -> str:
    return text.replace("\\n", "\n")
