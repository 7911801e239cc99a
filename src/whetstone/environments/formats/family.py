"""The families of models, the row that fits a tokenizer, and the settings of its chat template."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.toml_files import read_toml

THINK, END_THINK = "<think>", "</think>"
GENERIC = "generic"


class CallMarks(Struct, frozen=True, forbid_unknown_fields=True):
    """How a family writes a tool call, between ``open`` and ``close`` (empty: up to its last character).

    form: the arguments.

    - ``json``: a name and a JSON object, with ``separators`` between them; or objects with both.
    - ``tags``: ``function`` and ``parameter`` with their ends, where NAME stands for the name.
    - ``pairs``: a name, then each argument's name and value in the four ``separators``.
    - ``braces``: ``call:NAME{argument:value}``, with texts between two ``quote``.
    - ``python``: a list of Python calls with keyword arguments.
    """

    form: Literal["json", "tags", "pairs", "braces", "python"]
    open: str
    close: str = ""
    separators: list[str] = []
    quote: str = ""
    function: str = ""
    parameter: str = ""

    def marks(self) -> list[str]:
        """Return the texts that the family writes as marks."""
        return [mark for mark in (self.open, self.close, self.quote, *self.separators) if mark]


class Channels(Struct, frozen=True, forbid_unknown_fields=True):
    """A reply of several messages: ``start`` role ``channel`` name ``message`` text, and one of ``ends``.

    The program is in the channel ``answer``. A message with a recipient (``to=functions.NAME``) is a call.
    All other messages are thinking.
    """

    start: str
    channel: str
    message: str
    ends: list[str]
    answer: str


class Family(Struct, frozen=True, forbid_unknown_fields=True):
    """How a family of models writes replies.

    models: who writes so. template: groups of texts; a chat template with all texts of a group is of this
    family. thinking: the marks around the thinking. opened_by: ends of a prompt that begin the thinking;
    without any, the opening mark. calls: None if calls are read from the text (``tool_calls``). drop: marks
    without a meaning here. ends: tokens that end a reply. arguments: what its chat template takes.
    """

    name: str
    models: str
    template: list[list[str]] = []
    thinking: tuple[str, str] = (THINK, END_THINK)
    opened_by: list[str] = []
    calls: CallMarks | None = None
    channels: Channels | None = None
    drop: list[str] = []
    ends: list[str] = []
    arguments: list[str] = []

    def fits(self, template: str) -> bool:
        """Return whether a chat template is of this family."""
        return any(all(text in template for text in group) for group in self.template)


_ROWS = read_toml("whetstone.environments.formats", "families.toml", dict[str, dict[str, Any]])
FAMILIES = {name: msgspec.convert({"name": name, **row}, Family) for name, row in _ROWS.items()}
"""All families by name, in the order in which they are tried."""


class ChatSettings(Struct, frozen=True):
    """``model.format`` and ``model.template_arguments``; see ``use_chat_settings``."""

    format: str = ""
    arguments: Mapping[str, Any] = {}


def use_chat_settings(tokenizer: Any, format: str, arguments: Mapping[str, Any]) -> None:
    """Make everything that uses a tokenizer's chat template pass ``arguments``, and read replies by
    ``format`` (empty: the family of its chat template).

    Raises UserError for an unknown format, and for arguments that the chat template does not have.
    """
    tokenizer.whetstone_chat_settings = ChatSettings(format, arguments)
    family = family_of(tokenizer)
    template = template_text(tokenizer)
    for name in arguments if template else ():
        if not re.search(rf"\b{re.escape(name)}\b", template):
            known = [each for each in family.arguments if each in template]
            raise UserError(
                f"`model.template_arguments`: the model's chat template has no argument `{name}`"
                f"{did_you_mean(name, known)}; known here: {', '.join(known) or 'none'}"
            )


def chat_settings(tokenizer: Any) -> ChatSettings:
    """Return the settings of a tokenizer's chat template."""
    return getattr(tokenizer, "whetstone_chat_settings", None) or ChatSettings()


def family_of(tokenizer: Any) -> Family:
    """Return the family that is set for a tokenizer, or else that of its chat template. The generic one has
    the marks of thinking of a response template."""
    if name := chat_settings(tokenizer).format:
        family = family_named(name)
    else:
        template = template_text(tokenizer)
        family = next((each for each in FAMILIES.values() if each.fits(template)), FAMILIES[GENERIC])
    match getattr(tokenizer, "response_template", None):
        # The marks are found here, because the template does not fit every reply.
        case {"fields": {"thinking": {"open": str() as opening, "close": str() as closing}}} if (
            family.name == GENERIC and opening and closing
        ):
            return msgspec.structs.replace(family, thinking=(opening, closing))
        case _:
            return family


def family_named(name: str) -> Family:
    """Return a family. Raises UserError for an unknown name."""
    if name not in FAMILIES:
        raise UserError(
            f"`model.format`: no format `{name}`{did_you_mean(name, FAMILIES)}; known: {', '.join(FAMILIES)}"
        )
    return FAMILIES[name]


def template_text(tokenizer: Any) -> str:
    """Return the text of a tokenizer's chat template, or of all of them; empty without one."""
    template: Any = getattr(tokenizer, "chat_template", None) or ""
    return "\n".join(template.values()) if isinstance(template, dict) else str(template)
