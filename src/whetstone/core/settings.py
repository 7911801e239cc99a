"""The base of all settings: strict sections, bounded numbers, sampling parameters, and reading of YAML.

Each part of the package declares its own section next to its code, and ``run/recipe.py`` combines them.
Settings are YAML files, with ``key.path=value`` overrides from the command line.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.flag import Flag
from whetstone.core.shipped_recipes import recipe_file, shipped_names
from whetstone.core.yaml_text import parse_yaml

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
NonEmpty = Annotated[str, Field(min_length=1)]

Temperature = Annotated[NonNegative, Flag("of the sampling; 0 is greedy", "T")]
TopP = Annotated[PositiveShare, Flag("sample from the likeliest tokens of this total probability", "SHARE")]
TopK = Annotated[Natural, Flag("sample from the K likeliest tokens; 0 takes all", "K")]
MaxTokens = Annotated[Count, Flag("longest reply in tokens, thinking included", "N")]
StopTexts = Annotated[
    tuple[NonEmpty, ...],
    Flag(r"end a reply at this text; repeatable; \n is a line break", "TEXT", repeat=True),
]
"""The options of sampling, with their bounds and help. Classes differ in the defaults alone."""


def checked(find: Callable[[str], object]) -> AfterValidator:
    """Return a validator of a name that ``find`` must know. Its UserError becomes the message for
    the field."""

    def check(name: str) -> str:
        try:
            find(name)
        except UserError as error:
            raise ValueError(str(error)) from None
        return name

    return AfterValidator(check)


class Section(BaseModel):
    """Settings of one part: frozen, without unknown keys, and with finite numbers only."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _note_unknown_keys(cls, values: Any, info: ValidationInfo) -> Any:
        """Record the valid keys for ``read_settings``, which cannot know the chosen class of a union."""
        if isinstance(values, dict) and info.context is not None:
            fields = list(cls.model_fields)
            info.context.update({key: fields for key in cast("dict[str, Any]", values) if key not in fields})
        return values


AnySection = TypeVar("AnySection", bound=Section)


class Sampling(Section):
    """The sampling parameters of replies.

    ``temperature`` 0 is greedy. ``top_k`` 0 and ``top_p`` 1 switch truncation off. Generation ends
    at an end-of-sequence token (kept in the reply), at a stop string (its tokens are kept), or at
    ``max_tokens``.
    """

    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = 0
    max_tokens: MaxTokens = 256
    stop: StopTexts = ()

    @property
    def truncates(self) -> bool:
        """Whether ``top_p`` or ``top_k`` exclude tokens from sampling."""
        return self.temperature > 0 and (self.top_p < 1 or self.top_k > 0)


def stream_seed(*parts: object) -> int:
    """Return a 63-bit seed that depends on all ``parts`` only, and not on hash randomization."""
    # `hash` of a text differs in every process. Seeding by a text does not.
    return random.Random("/".join(map(str, parts))).getrandbits(63)


def read_settings(
    kind: type[AnySection], values: object, *, where: str = "", name: Callable[[str], str] = "`{}`".format
) -> AnySection:
    """Return ``values`` as settings of ``kind``.

    Raises UserError, which names every invalid key with its bound, and the closest key for an unknown one.
    The message begins with ``where``, such as a file. ``name`` turns a dotted key into the text to print.
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
    """Read a YAML file and apply ``key.path=value`` overrides. Values are YAML; a number selects a list item.

    The key ``base`` names another such file: its keys apply where this file has none, section by section.
    A section that names a ``preset`` replaces that of the base. ``path`` and ``base`` may be the name of a
    recipe that ships; ``kind`` selects its folder.

    Raises UserError, whose message describes the file by ``what`` and an ``example``.
    """
    data = _with_base(recipe_file(path, kind), path, kind, what, example, ())
    for override in overrides:
        _override(data, override)
    return data


def _with_base(
    file: Path, name: str | Path, kind: str, what: str, example: str, derived: tuple[Path, ...]
) -> dict[str, Any]:
    """Return the keys of ``file`` over those of its bases. ``derived`` are the files that build on it."""
    data = _read_mapping(file, name, kind, what, example)
    base = data.pop("base", None)
    if base is None:
        return data
    if not isinstance(base, str) or not base:
        raise UserError(f"{file}: `base` is the name or path of {what}; see {example}")
    # A file next to this one has priority, so that a copied recipe folder uses its own bases.
    sibling = file.parent / f"{base.removesuffix('.yaml')}.yaml"
    base_file = sibling if sibling.is_file() else recipe_file(base, kind)
    if base_file in (file, *derived):
        raise UserError(f"{file}: `base: {base}` leads back to this file; remove one `base`")
    return _merge(_with_base(base_file, base, kind, what, example, (file, *derived)), data)


def _merge(base: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``data``. Mappings are merged, unless they name a ``preset``."""
    merged = {**base, **data}
    for key, value in data.items():
        base_value = base.get(key)
        # A preset brings its own defaults. The base's values of another preset must not override them.
        if isinstance(value, dict) and isinstance(base_value, dict) and "preset" not in value:
            merged[key] = _merge(cast("dict[str, Any]", base_value), cast("dict[str, Any]", value))
    return merged


def _read_mapping(file: Path, name: str | Path, kind: str, what: str, example: str) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        near = did_you_mean(str(name), shipped_names(kind))
        raise UserError(f"{file}: {error.strerror}; give {what}, such as {example}{near}") from None
    try:
        data = parse_yaml(text)
    except yaml.YAMLError as error:
        raise UserError(f"{file}: not YAML: {error}") from None
    if data is None:
        raise UserError(f"{file}: the file is empty; give {what}, such as {example}")
    if not isinstance(data, dict):
        raise UserError(f"{file}: {what} is a mapping of keys; see {example}")
    return cast("dict[str, Any]", data)


def mapping_of(overrides: Sequence[str]) -> dict[str, Any]:
    """Return ``key.path=value`` overrides as a nested mapping. Raises UserError."""
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
        at = _key_or_index(node, parent, override)
        child: Any = node.setdefault(at, {}) if isinstance(node, dict) else node[at]
        if child is None:
            child = node[at] = {}
        if not isinstance(child, dict | list):
            raise UserError(f"override `{override}`: `{parent}` is not a section")
        node = child
    try:
        node[_key_or_index(node, last, override)] = parse_yaml(value)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        quoted = f"write text in quotes, within those of the shell: '{key}=\"…\"'"
        raise UserError(f"override `{override}`: the value is not YAML: {reason}; {quoted}") from None


def _key_or_index(node: Any, key: str, override: str) -> str | int:
    """Return the key of a section, or the index of an item of a list. Raises UserError."""
    if not isinstance(node, list):
        return key
    items = cast("list[Any]", node)
    if not key.isdecimal() or int(key) >= len(items):
        raise UserError(f"override `{override}`: `{key}` is no item of a list of {len(items)}, from 0")
    return int(key)


# The names of our settings in other trainers and earlier recipes. Their spelling would suggest a wrong key.
_OTHER_NAMES = {
    "beta": "kl_coef",
    "gradient_checkpointing": "activation_checkpointing",
    "layout": "export_format",
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
    "workflow": "environment",
}

# What a recipe's null should have been, by pydantic's type of the error.
_NULL = {
    "string_type": "null is no text; the empty text is ''",
    "tuple_type": "null is no list; the empty list is []",
    "dict_type": "null is no mapping; the empty mapping is {}",
    "model_type": "null is no section; remove the key for its defaults",
}


def _explain(error: Any, fields: Mapping[str, list[str]], name: Callable[[str], str]) -> str:
    location = [str(part) for part in error["loc"]]
    key = ".".join(location)
    if error["type"] == "extra_forbidden":
        unknown, known = location[-1], fields[location[-1]]
        section = key.removesuffix(unknown)
        other = _OTHER_NAMES.get(unknown, unknown)
        word = other if other in known else unknown
        hint = did_you_mean(section + word, [section + field for field in known])
        return f"unknown key {name(key)}{hint}"
    message: str = error["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
    if error["input"] is None:
        message = _NULL.get(error["type"], message)
    return f"{name(key)}: {message}" if key else message
