"""``whetstone completion``: print the script with which a shell completes commands, options and files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Struct

from whetstone.cli.flags import command
from whetstone.core.flag import Flag

# Words in the names of values that are files or folders.
_PLACES = ("FILE", "DIR", "FOLDER", "PROGRAM", "PROBLEM", "RUN", "SET", "SRC", "DST", "recipe", "model")


class _Shell(Struct, frozen=True, kw_only=True):
    """The shell that reads the script."""

    shell: Annotated[Literal["bash", "zsh", "fish", "tcsh"], Flag("the shell", positional=True)]


@command(
    "completion",
    description="Print the script with which a shell completes commands, options and files. It names the "
    "commands of the packages that are installed now.",
    epilog="""\
examples:
  source <(whetstone completion bash)
  whetstone completion bash > ~/.local/share/bash-completion/completions/whetstone
  whetstone completion fish > ~/.config/fish/completions/whetstone.fish
""",
)
def print_completion(args: _Shell) -> int:
    """Print the script."""
    import shtab

    from whetstone.cli.main import VERBS, build_parser

    parser = build_parser(*VERBS)
    for action in _actions(parser):
        name = action.metavar if isinstance(action.metavar, str) else action.dest
        if action.choices is None and any(place in name for place in _PLACES):
            setattr(action, "complete", shtab.FILE)  # noqa: B010  # an attribute that argparse does not have
    print(shtab.complete(parser, args.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options of a parser, and those of its commands."""
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]  # there is no public list
        yield action
        commands = action.choices if action.nargs == argparse.PARSER else None
        for inner in commands.values() if isinstance(commands, dict) else ():
            yield from _actions(inner)
