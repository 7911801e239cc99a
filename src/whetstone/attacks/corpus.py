"""The corpus: problems and attacks on them, read from the TOML files that ship beside this module.

``corpus/problems.toml`` holds problems in the published schema, keyed by name; every other file of the
folder is one class of attacks, an array of tables ``[[attack]]`` (see ``Attack``), with the problems that
only this class needs as ``[problem.NAME]``. A problem's ``tests`` may be JSON text: TOML has no null.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from whetstone.errors import UserError
from whetstone.problem import NonEmpty, Problem, problem_from
from whetstone.sandbox import Tier
from whetstone.verdict import Verdict

PROBLEMS_FILE = "problems.toml"
SHARED_PROCESS = "shared_process"
_TEXT = "TEXT"
_TIERS = frozenset(tier.label for tier in Tier)


class Attack(Struct, frozen=True, forbid_unknown_fields=True):
    """One attack: ``program`` is judged on ``problem`` and must get a verdict other than accepted.

    ``aim`` says in one line what it tries. ``twin`` is an honest program that uses the same features and
    must be accepted, on ``twin_problem`` or else the same problem. ``earlier`` programs are judged just
    before either, on the same worker and problem: what they leave behind, the attack would find.
    ``verdicts``, when given, are the only ones it may get; otherwise any but accepted and judge_error.
    ``unreferenced`` attacks are judged on their problem as it is without references.
    With ``texts``, ``program`` is judged once for each, which stands as a Python literal where it says
    TEXT; ``twin_texts`` are those of the twin.
    ``not_stopped`` names what does not stop it, with the reason: an isolation tier, or ``shared_process``
    for a judgement that carries this mark.
    """

    name: NonEmpty
    problem: NonEmpty
    aim: NonEmpty
    program: NonEmpty
    language: str = "python"
    twin: str | None = None
    twin_problem: str | None = None
    earlier: list[str] = []
    verdicts: list[Verdict] = []
    unreferenced: bool = False
    texts: list[str] = []
    twin_texts: list[str] = []
    not_stopped: dict[str, NonEmpty] = {}

    def __post_init__(self) -> None:
        for refused in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR):
            if refused in self.verdicts:
                raise ValueError(f"`{self.name}`: {refused} is no verdict on an attack; say `not_stopped`")
        for where in self.not_stopped.keys() - _TIERS - {SHARED_PROCESS}:
            raise ValueError(f"`{self.name}`: `{where}` is no tier")
        if self.twin_problem is not None and self.twin is None:
            raise ValueError(f"`{self.name}`: a twin_problem needs a twin")
        for texts, source in ((self.texts, self.program), (self.twin_texts, self.twin or "")):
            if bool(texts) != (_TEXT in source):
                raise ValueError(f"`{self.name}`: texts are given exactly where a program says {_TEXT}")

    def programs(self) -> list[str]:
        """The sources of the attack: one, or one for each of ``texts``."""
        return _filled(self.program, self.texts)

    def twins(self) -> list[str]:
        """The sources of the twin: none, one, or one for each of ``twin_texts``."""
        return [] if self.twin is None else _filled(self.twin, self.twin_texts)


def _filled(source: str, texts: list[str]) -> list[str]:
    return [source.replace(_TEXT, ascii(text)) for text in texts] if texts else [source]


class _ClassFile(Struct, frozen=True, forbid_unknown_fields=True):
    attack: Annotated[list[Attack], Meta(min_length=1)]
    problem: dict[str, dict[str, Any]] = {}


class Corpus(Struct, frozen=True):
    """``problems`` by name, and the attacks of each class by the class's name."""

    problems: dict[str, Problem]
    classes: dict[str, list[Attack]]


def load_corpus() -> Corpus:
    """Read the corpus that ships. Raises UserError naming the file and field that does not fit."""
    folder = resources.files("whetstone.attacks") / "corpus"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda f: f.name)
    problems: dict[str, Problem] = {}
    classes: dict[str, list[Attack]] = {}
    for file in files:
        if file.name == PROBLEMS_FILE:
            described = _read(file)
        else:
            content = _class_file(file)
            classes[file.name.removesuffix(".toml")] = content.attack
            described = content.problem
        for name, value in described.items():
            if name in problems:
                raise UserError(f"{file.name}: there is another problem called `{name}`")
            problems[name] = _problem(file.name, name, value)
    _check(problems, classes)
    return Corpus(problems, classes)


def _read(file: Traversable) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file.name}: {error}") from None


def _class_file(file: Traversable) -> _ClassFile:
    try:
        return msgspec.convert(_read(file), _ClassFile)
    except msgspec.ValidationError as error:
        raise UserError(f"{file.name}: {error}") from None


def _problem(file: str, name: str, value: dict[str, Any]) -> Problem:
    if isinstance(tests := value.get("tests"), str):
        try:
            value = {**value, "tests": msgspec.json.decode(tests)}
        except msgspec.DecodeError as error:
            raise UserError(f"{file}: the tests of `{name}` are no JSON: {error}") from None
    problem = problem_from({"id": f"attacks/{name}", "statement": "", **value})
    if not problem.references:
        raise UserError(f"{file}: `{name}` needs a reference, which must be accepted")
    return problem


def _check(problems: dict[str, Problem], classes: dict[str, list[Attack]]) -> None:
    """Every problem is known, and no name is used twice."""
    seen: set[str] = set()
    for name, attacks in classes.items():
        for attack in attacks:
            for problem in (attack.problem, attack.twin_problem or attack.problem):
                if problem not in problems:
                    raise UserError(f"{name}.toml: `{attack.name}` names an unknown problem `{problem}`")
            if attack.name in seen:
                raise UserError(f"{name}.toml: there is another attack called `{attack.name}`")
            seen.add(attack.name)
