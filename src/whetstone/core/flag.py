"""How a setting appears on the command line. ``cli/flags.py`` reads it. This module does not need
pydantic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flag:
    """The help and form of a setting's flag: ``n: Annotated[int, Flag("replies per problem", "N")] = 8``.

    A field without a ``Flag`` has no flag.

    metavar: the name of the value in the help.
    positional: the setting has no flag; its value is given alone.
    repeat: a list is given by one flag for each value; otherwise by one value with commas.
    bare: the value of a flag that is given without a value.
    name: the name of the flag, if it differs from that of the field.
    """

    help: str = ""
    metavar: str | None = None
    positional: bool = False
    repeat: bool = False
    bare: str | None = None
    name: str = ""
