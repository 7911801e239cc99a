"""Command-line flags from settings classes: a class declares its options once, for YAML files and for flags.

A command is a function whose parameters are settings classes: pydantic sections, or msgspec structs where
the import of pydantic would cost too much. ``command`` adds a flag for every field of these classes, and
``bound_command`` returns the function with the validated settings.
"""

from __future__ import annotations

import argparse
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from whetstone.core.errors import UserError
from whetstone.core.flag import Flag

_UNION = (Union, types.UnionType)
_Command = TypeVar("_Command", bound=Callable[..., int])
# The functions that declare the commands of each module.
_COMMANDS: dict[str, list[Callable[[Any], object]]] = {}


class _Field(NamedTuple):
    name: str
    kind: Any
    flag: Flag
    default: Any
    required: bool

    @property
    def option(self) -> str:
        return "--" + (self.flag.name or self.name.rstrip("_").replace("_", "-"))

    @property
    def title(self) -> str:
        """The field as the user knows it, for error messages."""
        return (self.flag.metavar or self.name.upper()) if self.flag.positional else self.option


def add_command(
    actions: Any,
    name: str,
    run: Callable[..., int],
    *,
    help: str = "",
    description: str = "",
    epilog: str = "",
) -> argparse.ArgumentParser:
    """Declare a command. Its flags are the fields of the settings classes in the signature of ``run``."""
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=help,
        description=description or help,
        epilog=epilog,
    )
    set_command(parser, run)
    return parser


def command(
    name: str, *, help: str = "", description: str = "", epilog: str = ""
) -> Callable[[_Command], _Command]:
    """Mark a function as a command of its module, which ``add_commands`` declares."""

    def mark(run: _Command) -> _Command:
        declare = partial(add_command, name=name, run=run, help=help, description=description, epilog=epilog)
        _COMMANDS.setdefault(run.__module__, []).append(declare)
        return run

    return mark


def add_commands(actions: Any, *modules: types.ModuleType) -> None:
    """Declare the commands of modules, in the order of their definition."""
    for module in modules:
        for declare in _COMMANDS[module.__name__]:
            declare(actions)


def set_command(parser: argparse.ArgumentParser, run: Callable[..., int]) -> None:
    """Add the flags of the settings classes of ``run``, which ``bound_command`` reads."""
    for kind in _settings_of(run):
        add_flags(parser, kind)
    parser.set_defaults(command=run)


def bound_command(args: argparse.Namespace) -> Callable[[], int]:
    """Return the command of a parsed command line with its settings; it returns its exit status.

    ``main`` calls it, so that a traceback leads from there to the command. Raises UserError for invalid
    values.
    """
    run: Callable[..., int] = args.command
    return partial(run, *(read_flags(kind, args) for kind in _settings_of(run)))


def add_flags(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add a flag for every field of ``kind`` with a ``Flag``, in a group with the title ``kind.TITLE`` if it
    has one.

    Two classes of a command may have a field of the same name. One flag then sets both.
    """
    title = getattr(kind, "TITLE", "")
    group: Any = parser.add_argument_group(title) if title else parser
    # argparse has no public list of its options, and raises an error for an option that is added twice.
    known = {action.dest for action in parser._actions}  # pyright: ignore[reportPrivateUsage]
    for field in _fields(kind):
        if field.name not in known:
            _add_flag(group, field)


def read_flags(kind: type[Any], args: argparse.Namespace) -> Any:
    """Return the settings of class ``kind`` from a parsed command line.

    Raises UserError that names the flag of each invalid value.
    """
    fields = {field.name: field for field in _fields(kind)}
    flag_values = {name: value for name in fields if (value := getattr(args, name, None)) is not None}
    missing = [field.title for name, field in fields.items() if field.required and name not in flag_values]
    if missing:
        raise UserError(f"{', '.join(missing)}: missing; see --help")

    def title_of(key: str) -> str:
        field = fields.get(key.partition(".")[0])
        return field.title if field else key

    if issubclass(kind, msgspec.Struct):
        return _read_struct(kind, flag_values, title_of)
    from whetstone.core.settings import read_settings

    # Pydantic reads values by alias, and flags have the names of fields.
    aliases = {name: cast("Any", kind).model_fields[name].alias or name for name in flag_values}
    return read_settings(kind, {aliases[name]: value for name, value in flag_values.items()}, name=title_of)


def _read_struct(kind: type[Any], flag_values: dict[str, Any], title_of: Callable[[str], str]) -> Any:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.name in flag_values:
            try:
                value = flag_values[field.name]
                if isinstance(value, str) and get_origin(_base_type(field.type)) is Mapping:
                    # A mapping is given as JSON text.
                    value = msgspec.json.decode(value)
                # Not strict, because all values of a command line are text.
                values[field.name] = msgspec.convert(value, field.type, strict=False)
            except (msgspec.DecodeError, UnicodeEncodeError) as error:
                raise UserError(f"{title_of(field.name)} is {flag_values[field.name]}: {error}") from None
    return kind(**values)


def _settings_of(run: Callable[..., int]) -> list[type]:
    hints = get_type_hints(run)
    # Annotations are text in modules with postponed evaluation, so `get_type_hints` evaluates them.
    hints.pop("return", None)
    return list(hints.values())


def _fields(kind: type[Any]) -> Iterator[_Field]:
    if issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind, include_extras=True)
        for field in msgspec.structs.fields(kind):
            metadata = get_args(hints[field.name])[1:] if get_origin(hints[field.name]) is Annotated else ()
            if flag := _flag(hints[field.name], metadata):
                yield _Field(field.name, hints[field.name], flag, field.default, field.required)
        return
    for name, field in kind.model_fields.items():
        if flag := _flag(field.annotation, field.metadata):
            yield _Field(name, field.annotation, flag, field.default, field.is_required())


def _flag(kind: Any, metadata: Any) -> Flag | None:
    """Return the last flag, which overrides that of a type alias. None if the field has no flag."""
    for item in reversed(list(metadata)):
        if isinstance(item, Flag):
            return item
    if get_origin(kind) in _UNION or get_origin(kind) is Annotated:
        parts = [part for part in get_args(kind) if get_origin(part) is Annotated]
        return next((flag for part in parts if (flag := _flag(part, get_args(part)[1:]))), None)
    return None


def _add_flag(group: Any, field: _Field) -> None:
    kind, flag = _base_type(field.kind), field.flag
    shown: dict[str, Any] = {"help": _help(field)}
    if get_origin(kind) is Literal:
        shown["choices"] = get_args(kind)
    else:
        shown["metavar"] = flag.metavar
    several = get_origin(kind) in (tuple, dict) and field.flag.metavar != "JSON"
    if flag.positional:
        many = ("+" if field.required else "*") if several else (None if field.required else "?")
        group.add_argument(field.name, nargs=many, **shown)
        if many == "*":  # `main` adds the words that follow an option
            group.set_defaults(words=field.name)
    elif kind is bool:
        shown.pop("metavar")
        group.add_argument(field.option, dest=field.name, action=argparse.BooleanOptionalAction, **shown)
    elif several and flag.repeat:
        group.add_argument(field.option, dest=field.name, action="append", **shown)
    else:
        split: dict[str, Any] = {"type": _split} if get_origin(kind) is tuple else {}
        if flag.bare is not None:
            split |= {"nargs": "?", "const": flag.bare}
        group.add_argument(field.option, dest=field.name, required=field.required, **split, **shown)


def _base_type(kind: Any) -> Any:
    """Return the type without ``None`` and annotations."""
    if get_origin(kind) is Annotated:
        return _base_type(get_args(kind)[0])
    if get_origin(kind) in _UNION:
        return _base_type(next(part for part in get_args(kind) if part is not type(None)))
    return kind


def _help(field: _Field) -> str:
    """Return the help of a flag. The default is appended unless the help names it."""
    text, default = field.flag.help, field.default
    empty = field.required or default in (None, True, "", False, (), msgspec.NODEFAULT)
    if not empty and "default" not in text:
        shown = (
            ",".join(map(str, cast("tuple[Any, ...]", default))) if isinstance(default, tuple) else default
        )
        text = f"{text} (default: {shown})".strip()
    # argparse formats help texts with the % operator.
    return text.replace("%", "%%")


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
