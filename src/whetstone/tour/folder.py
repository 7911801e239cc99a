"""The folder of a tour's run. A tour starts afresh each time, and replaces no folder but one of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from whetstone.errors import UserError
from whetstone.launch.run_lock import is_locked

MARK = ".tour"
"""The file by which a tour knows a folder of its own."""


def check_folder(folder: Path) -> None:
    """Raise UserError for a folder that is in use, or holds something that is not a tour's."""
    if is_locked(folder):
        raise UserError(
            f"{folder}: another process trains in this folder; wait for it, or give another --out"
        )
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise UserError(f"{folder} holds something that is not a tour's; give another --out")


def fresh_folder(folder: Path) -> None:
    """Make ``folder`` empty but for the mark. Raises UserError as ``check_folder`` does."""
    check_folder(folder)
    try:
        if folder.is_dir():
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).touch()
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; give another --out") from None
