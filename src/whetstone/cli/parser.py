"""The parser of all commands: help of at most 80 columns, short usages, and suggestions for wrong words.

It imports nothing beyond the standard library, because every command builds it first.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Any

from whetstone.core.errors import did_you_mean

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


_MIN_TEXT_WIDTH = 20


def hanging_lines(start: str, text: str, width: int) -> list[str]:
    """Return ``start`` followed by ``text``, wrapped to ``width`` characters. Later lines are indented to the
    text."""
    # Not at hyphens: a line may contain a command to copy.
    lines = textwrap.wrap(text, max(width - len(start), _MIN_TEXT_WIDTH), break_on_hyphens=False)
    indent = " " * len(start)
    return [f"{start}{lines[0]}", *(f"{indent}{line}" for line in lines[1:])] if lines else [start.rstrip()]


# The first columns of a row, and the text in the last one. Columns are two spaces apart.
_ROW = re.compile(r"( +\S+ {2,}(?:\S+ {2,})*)(.*)")


class Help(argparse.HelpFormatter):
    """A help whose texts are filled to the width of the terminal.

    Indented lines stay lines of their own: rows of a table, whose last column is wrapped, and commands, which
    continue after a backslash.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts: list[str] = []
        for is_prose, lines in groupby(text.split("\n"), lambda line: line[:1].strip() != ""):
            if is_prose:
                parts += textwrap.wrap(" ".join(lines), width, break_on_hyphens=False)
            else:
                parts += [part for line in lines for part in self._wrapped(line, width)]
        return "\n".join(parts)

    def _wrapped(self, line: str, width: int) -> list[str]:
        if len(line) <= width:
            return [line]

        if row := _ROW.match(line):
            return hanging_lines(row[1], row[2], width)
        # An option stays in one line with its value.
        joined = re.sub(r" (--\S+) (?=[^-])", r" \1\0", line.strip())
        pieces = textwrap.wrap(
            joined,
            width - 2,
            initial_indent="  ",
            subsequent_indent=" " * 6,
            break_on_hyphens=False,
            break_long_words=False,
        )
        return " \\\n".join(pieces).replace("\0", " ").split("\n")

    def _format_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Iterable[Any], prefix: str | None
    ) -> str:
        """Return a usage with the required words. The options below it need no list of their own."""
        every = list(actions)
        shown = [action for action in every if action.required or not action.option_strings]
        program = self._prog
        if len(shown) < len(every):
            self._prog = f"{program} [options]"
        try:
            return super()._format_usage(usage, shown, [], prefix)
        finally:
            self._prog = program


class Parser(argparse.ArgumentParser):
    """A parser that suggests the closest word for a wrong one, and reports a failed write of the help.

    Without any word, a command that needs an action prints its help.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=Help, **options)

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]  # argparse has overloads
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """See argparse. An unknown option is an error of the command that has no such option."""
        words = list(sys.argv[1:] if args is None else args)
        actions = next((action for action in self._actions if action.nargs == argparse.PARSER), None)
        if not words and actions is not None and actions.required:
            self.print_help()
            self.exit()
        # The options of an action come after its name.
        names = tuple(actions.choices or ()) if actions else ()
        own = takewhile(lambda word: word != "--" and word not in names, words)
        for word in own if "-" in self.prefix_chars else ():
            name = word.partition("=")[0]
            if name.startswith("--"):
                known = self._option_string_actions
                # argparse accepts the start of an option.
                if not any(option.startswith(name) for option in known):
                    self.error(f"there is no option `{name}`{did_you_mean(name, known)}")
        return super().parse_known_args(words, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(name) for name in action.choices]
        if action.nargs == argparse.PARSER:
            message = f"there is no command `{self.prog} {value}`{did_you_mean(str(value), names)}"
            self.exit(2, f"whetstone: {message} (`{self.prog} --help` lists them)\n")
        message = f"`{value}` is not one of {', '.join(names)}{did_you_mean(str(value), names)}"
        raise argparse.ArgumentError(action, message)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        # argparse ignores a failed write of the help and ends with status 0.
        if file is sys.stdout:
            sys.stdout.write(message)
        else:
            super()._print_message(message, file)
