"""What every part's settings are made of: a strict section, bounded numbers, and how replies are drawn.

Each part of the package declares its own section beside its code; ``launch/recipe.py`` joins them.
Files of settings are YAML, with ``key.path=value`` overrides from the command line.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from whetstone.errors import UserError, did_you_mean
from whetstone.shipped_recipes import recipe_file, shipped_names

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
TopP = Annotated[float, Field(gt=0, le=1)]
NonEmpty = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """Settings of one part: frozen, strict about their keys, and every number finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _note_unknown_keys(cls, values: Any, info: ValidationInfo) -> Any:
        """Leave the keys there are for ``read_settings``, which cannot know which class was chosen."""
        if isinstance(values, dict) and info.context is not None:
            fields = list(cls.model_fields)
            info.context.update({key: fields for key in cast("dict[str, Any]", values) if key not in fields})
        return values


AnySection = TypeVar("AnySection", bound=Section)


class Sampling(Section):
    """How replies are drawn.

    ``temperature`` 0 is greedy. ``top_k`` 0 and ``top_p`` 1 switch truncation off. Generation ends
    at an end-of-sequence token (kept in the reply), at a stop string (its tokens are kept), or at
    ``max_tokens``.
    """

    temperature: NonNegative = 1.0
    top_p: TopP = 1.0
    top_k: Natural = 0
    max_tokens: Count = 256
    stop: tuple[NonEmpty, ...] = ()


def stream_seed(*parts: object) -> int:
    """A 63-bit seed that depends on all ``parts`` and on nothing else (not on hash randomisation)."""
    return random.Random("/".join(map(str, parts))).getrandbits(63)


def _quoted(key: str) -> str:
    return f"`{key}`"


def read_settings(
    kind: type[AnySection], values: object, *, where: str = "", name: Callable[[str], str] = _quoted
) -> AnySection:
    """``values`` as settings of ``kind``.

    Raises UserError naming every key that is wrong and its bound, and the closest key for an unknown one;
    ``where``, such as a file, begins the message, and ``name`` says a dotted key in the reader's words.
    """
    fields: dict[str, list[str]] = {}
    try:
        return kind.model_validate(values, context=fields)
    except ValidationError as error:
        faults = "; ".join(_explain(fault, fields, name) for fault in error.errors())
    raise UserError(f"{where}: {faults}" if where else faults)


def read_mapping(
    path: str | Path, overrides: Sequence[str] = (), *, what: str, example: str, kind: str = ""
) -> dict[str, Any]:
    """The keys of a YAML file with ``key.path=value`` overrides (values are YAML; an item of a list goes by
    its number). ``path`` may be the name of a recipe that ships; ``kind``: of which sort.

    Raises UserError; ``what`` the file is and an ``example`` of it are for the message.
    """
    file = recipe_file(path, kind)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        near = did_you_mean(str(path), shipped_names(kind))
        raise UserError(f"{file}: {error.strerror}; give {what}, such as {example}{near}") from None
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"{file}: not YAML: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{file}: {what} is a mapping of keys; see {example}")
    for override in overrides:
        _override(data, override)
    return cast("dict[str, Any]", data)


def mapping_of(overrides: Sequence[str]) -> dict[str, Any]:
    """The keys that ``key.path=value`` overrides give by themselves. Raises UserError."""
    data: dict[str, Any] = {}
    for override in overrides:
        _override(data, override)
    return data


def _override(data: Any, override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise UserError(f"override `{override}` is not of the form key.path=value")
    *parents, last = key.split(".")
    node: Any = data
    for parent in parents:
        at = _place(node, parent, override)
        child: Any = node.setdefault(at, {}) if isinstance(node, dict) else node[at]
        if child is None:
            child = node[at] = {}
        if not isinstance(child, dict | list):
            raise UserError(f"override `{override}`: `{parent}` is not a section")
        node = child
    try:
        node[_place(node, last, override)] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UserError(f"override `{override}`: the value is not YAML: {error}") from None


def _place(node: Any, key: str, override: str) -> str | int:
    """A key of a section, or the number of an item that is in a list."""
    if not isinstance(node, list):
        return key
    items = cast("list[Any]", node)
    if not key.isdecimal() or int(key) >= len(items):
        raise UserError(f"override `{override}`: `{key}` is no item of a list of {len(items)}, from 0")
    return int(key)


_OTHER_NAMES = {
    "beta": "kl_coef",
    "gradient_checkpointing": "activation_checkpointing",
    "learning_rate": "lr",
    "max_completion_length": "max_tokens",
    "max_grad_norm": "grad_clip",
    "max_new_tokens": "max_tokens",
    "max_prompt_length": "max_prompt_tokens",
    "max_steps": "steps",
    "model_name_or_path": "path",
    "num_generations": "samples_per_prompt",
    "num_train_epochs": "passes",
    "output_dir": "out",
    "train_batch_size": "prompts_per_step",
}
"""Names that other trainers give to settings of ours. The spelling alone would suggest another key."""


def _suggestion(name: str, fields: Sequence[str], section: str) -> str:
    """``"; did you mean `section.field`?"`` for an unknown key ``name`` of a section, or an empty string."""
    other = _OTHER_NAMES.get(name, name)
    word = other if other in fields else name
    return did_you_mean(section + word, [section + field for field in fields])


def _explain(error: Any, fields: Mapping[str, list[str]], name: Callable[[str], str]) -> str:
    location = [str(part) for part in error["loc"]]
    key = ".".join(location)
    if error["type"] == "extra_forbidden":
        section = key.removesuffix(location[-1])
        return f"unknown key {name(key)}{_suggestion(location[-1], fields[location[-1]], section)}"
    message = error["msg"].removeprefix("Value error, ")
    return f"{name(key)}: {message}" if key else message
