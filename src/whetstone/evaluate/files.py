"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from whetstone.errors import UserError


def replace_file(target: Path, chunks: Iterable[bytes]) -> None:
    """Write the chunks beside ``target`` and put them in its place; they may be read from it.

    Its folder is made. Raises UserError when it cannot be written.
    """
    temporary = target.with_name(target.name + ".tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise unwritable(target.parent, error) from None


def unwritable(folder: Path, error: OSError) -> UserError:
    """What a person is told who named a folder that cannot be written."""
    return UserError(f"{folder}: {error.strerror or error}; name another folder with --out")
