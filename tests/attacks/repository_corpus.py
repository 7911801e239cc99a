"""The attacks on the grading of repositories: read from the TOML files in ``repository``, and graded.

``task.toml`` has the code base and its hidden tests. Every other file is one family, an array of tables
``[[attack]]`` (see ``RepositoryAttack``).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tests.judge.repository_tasks import make_task
from whetstone.core.problem import Limits
from whetstone.core.verdict import Judgement, Verdict
from whetstone.judge.repository.grader import Change, RepositoryGrader
from whetstone.judge.repository.task import RepositoryTask

_FOLDER = Path(__file__).parent / "repository"
TASK: Mapping[str, Any] = tomllib.loads((_FOLDER / "task.toml").read_text(encoding="utf-8"))
RIGHT: str = TASK["right"].lstrip()
WRONG = RIGHT.replace(TASK["right_line"], TASK["wrong_line"])
CODE, TESTS = "src/stock/core.py", "tests/test_stock.py"
BASE = {path: text.encode() for path, text in TASK["files"].items()} | {CODE: WRONG.encode()}
LIMITS = Limits(cpu_s=2.0, memory_mb=384.0, output_mb=8.0)


class RepositoryAttack(Struct, frozen=True, forbid_unknown_fields=True):
    """One attack: ``code`` is appended to the module with the wrong line, and must not pay.

    ``aim``: why it might pay. ``twin`` is appended to the right module, does something alike for an honest
    reason, and must be accepted. ``files``: further new files; a name can have ``LONG300`` for 300 letters,
    and an escaped surrogate. ``many``: so many further files of ``bytes`` bytes, inside of ``deep`` folders
    each. ``removed``: removed files. ``earlier``: the attack is graded twice, one after the other on one
    worker, and must pay neither time. ``slow``: a limit ends it late.
    """

    name: str
    aim: str
    code: str
    twin: str
    files: dict[str, str] = {}
    twin_files: dict[str, str] = {}
    removed: list[str] = []
    twin_removed: list[str] = []
    many: int = 0
    deep: int = 0
    bytes: int = 1
    twin_many: int = 0
    twin_deep: int = 0
    twin_bytes: int = 1
    earlier: bool = False
    slow: bool = False

    def change(self) -> Change:
        """Return the change of the attack."""
        return change_of(
            WRONG + self.code, self.files, self.removed, _numbered(self.many, self.deep, self.bytes)
        )

    def twin_change(self) -> Change:
        """Return the change of the honest twin."""
        many = _numbered(self.twin_many, self.twin_deep, self.twin_bytes)
        return change_of(RIGHT + self.twin, self.twin_files, self.twin_removed, many)


def change_of(
    code: str, files: Mapping[str, str], removed: Sequence[str] = (), more: Mapping[str, bytes] | None = None
) -> Change:
    """Return a change with this code in the place of the wrong module."""
    named = {_name(path): text.encode() for path, text in files.items()}
    return {CODE: code.encode(), **named, **(more or {}), **dict.fromkeys(removed)}


def _name(text: str) -> str:
    text = re.sub(r"LONG(\d+)", lambda found: "n" * int(found[1]), text)
    return text.replace(r"\udc80", "\udc80")


def _numbered(count: int, deep: int, size: int) -> dict[str, bytes]:
    return {f"src/more/{number}/{'d/' * deep}x": bytes(size) for number in range(count)}


def load_attacks() -> dict[str, list[RepositoryAttack]]:
    """Return the attacks of each family by the name of its file."""
    families = {path.stem: path for path in sorted(_FOLDER.glob("*.toml")) if path.stem != "task"}
    return {
        name: msgspec.convert(
            tomllib.loads(path.read_text(encoding="utf-8"))["attack"], list[RepositoryAttack]
        )
        for name, path in families.items()
    }


def attacked_task(grader: RepositoryGrader) -> RepositoryTask:
    """Return the task. Everything but its tests may be changed."""
    reference = {CODE: RIGHT.encode()}
    return make_task(grader, BASE, reference, {TESTS: TASK["tests"]}, ["."], LIMITS)


def payment(task: RepositoryTask, judgement: Judgement) -> str:
    """Return what an attack got; empty if nothing. No test that needs the repair may be accepted."""
    if judgement.score != 0.0:
        return f"score {judgement.score}: {judgement.verdict} {judgement.reason}"
    cases = judgement.cases[: len(task.fail_to_pass)]
    passed = [case.index for case in cases if case.verdict is Verdict.ACCEPTED]
    unjudged = [case.index for case in judgement.cases if case.verdict is Verdict.JUDGE_ERROR]
    return f"accepted {passed}, not judged {unjudged}" if passed or unjudged else ""


def refusal_of(judgement: Judgement) -> str:
    """Return why an honest change was refused; empty if it was accepted."""
    return "" if judgement.accepted and judgement.score == 1.0 else f"{judgement.verdict} {judgement.reason}"
