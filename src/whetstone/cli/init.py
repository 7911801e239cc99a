"""``whetstone init``: write a folder with a recipe, parts of one's own, problems and tests."""

from __future__ import annotations

import json
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from whetstone.cli.flags import command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag

_TEMPLATE = Path(__file__).parent / "assets" / "project"
# In the template, the word stands for the folder: its path before the name of a file, and its name alone.
_PLACEHOLDER = "FOLDER"


class _NewProject(Struct, frozen=True, kw_only=True):
    """The folder to write."""

    folder: Annotated[str, Flag("the folder to write: a new or an empty one", "FOLDER", positional=True)]


@command(
    "init",
    description="Write a folder to start from: a recipe that trains a tiny model on a CPU in minutes, an "
    "environment and a reward of your own, problems, and tests of all of them. Then print the commands "
    "that use it.",
    epilog="example: whetstone init my-project",
)
def write_project(args: _NewProject) -> int:
    """Run the verb. Raises UserError for a folder that cannot be written or is not empty."""
    folder = Path(args.folder)
    # A lone surrogate stands for a byte that is not UTF-8. The folder becomes an entry of PYTHONPATH.
    if ":" in args.folder or not args.folder.isprintable():
        raise UserError(f"{args.folder!r}: the path has a colon or is not printable; give another one")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UserError(f"{folder} is not empty; give a folder that does not exist yet")
        for file in sorted(path for path in _TEMPLATE.iterdir() if path.is_file()):
            (folder / file.name).write_text(_text_for(file, folder), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; give another folder") from None
    place = shlex.quote(str(folder))
    print(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}\n")
    install = "" if find_spec("pytest") else "  pip install pytest\n"
    print(
        f"What to do next:\n{install}"
        f"  pytest {place}\n"
        f"  whetstone data validate {place}/problems.jsonl\n"
        f"  PYTHONPATH={place} whetstone train {place}/recipe.yaml"
    )
    return 0


def _text_for(file: Path, folder: Path) -> str:
    """Return a file of the template; a recipe gets the name of ``folder`` and the path of its problems."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".yaml":
        return text
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        key, found, file_name = line.rstrip("\n").partition(_PLACEHOLDER)
        if found:
            value = str(folder) + file_name if file_name else folder.resolve().name
            # JSON text is also YAML, with any character in it.
            lines[number] = f"{key}{json.dumps(value, ensure_ascii=False)}\n"
    return "".join(lines)
