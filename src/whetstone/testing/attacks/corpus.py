"""The attack corpus: problems and attacks on them, read from the TOML files in this folder.

``corpus/problems.toml`` holds problems in the published schema, keyed by name. Every other file of the folder
is one class of attacks, an array of tables ``[[attack]]`` (see ``Attack``). It may define problems that only
this class uses, as ``[problem.NAME]``. The ``tests`` of a problem may be JSON text, because TOML has no null.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from whetstone.core.errors import UserError
from whetstone.core.problem import NonEmpty, Problem, problem_from
from whetstone.core.verdict import Verdict
from whetstone.sandbox import Tier

PROBLEMS_FILE = "problems.toml"
SHARED_PROCESS = "shared_process"
_TEXT = "TEXT"
_TIERS = frozenset(tier.label for tier in Tier)


class Attack(Struct, frozen=True, forbid_unknown_fields=True):
    """One attack: ``program`` is judged on ``problem`` and must get a verdict other than accepted.

    ``aim`` describes in one line what the attack tries. ``twin`` is an honest program that uses the same
    features and must be accepted, on ``twin_problem`` if it is given, otherwise on the same problem. The
    ``earlier`` programs are judged just before, on the same worker and problem, so that the attack could find
    what they leave behind. ``verdicts`` are the only permitted verdicts; if empty, all except accepted and
    judge_error are. An ``unreferenced`` attack is judged on its problem without references. ``texts``:
    ``program`` is judged once for each text, which replaces TEXT as a Python literal; ``twin_texts`` do the
    same for the twin. ``not_stopped`` gives the reason why an attack is not stopped, by isolation tier, or
    for ``shared_process`` judgements.
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
        for forbidden in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR):
            if forbidden in self.verdicts:
                raise ValueError(
                    f"`{self.name}`: {forbidden} is no permitted verdict of an attack; use `not_stopped`"
                )
        for where in self.not_stopped.keys() - _TIERS - {SHARED_PROCESS}:
            known = ", ".join((*sorted(_TIERS), SHARED_PROCESS))
            raise ValueError(f"`{self.name}`: `{where}` is no isolation tier; use one of {known}")
        if self.twin_problem is not None and self.twin is None:
            raise ValueError(f"`{self.name}`: `twin_problem` needs `twin`")
        for texts, source in ((self.texts, self.program), (self.twin_texts, self.twin or "")):
            if bool(texts) != (_TEXT in source):
                raise ValueError(f"`{self.name}`: a program needs texts if, and only if, it contains {_TEXT}")

    def programs(self) -> list[str]:
        """Return the sources of the attack: one, or one for each of ``texts``."""
        return _with_texts(self.program, self.texts)

    def twins(self) -> list[str]:
        """Return the sources of the twin: none, one, or one for each of ``twin_texts``."""
        return [] if self.twin is None else _with_texts(self.twin, self.twin_texts)


def _with_texts(source: str, texts: list[str]) -> list[str]:
    # `ascii` gives a literal that every source encoding can represent.
    return [source.replace(_TEXT, ascii(text)) for text in texts] if texts else [source]


class _ClassFile(Struct, frozen=True, forbid_unknown_fields=True):
    attack: Annotated[list[Attack], Meta(min_length=1)]
    problem: dict[str, dict[str, Any]] = {}


class Corpus(Struct, frozen=True):
    """The problems by name, and the attacks of each class by the name of the class."""

    problems: dict[str, Problem]
    classes: dict[str, list[Attack]]


def load_corpus() -> Corpus:
    """Read the shipped corpus. Raises UserError, which names the file and the invalid field."""
    folder = resources.files("whetstone.testing.attacks") / "corpus"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda f: f.name)
    problems: dict[str, Problem] = {}
    classes: dict[str, list[Attack]] = {}
    for file in files:
        if file.name == PROBLEMS_FILE:
            described = _read(file)
        else:
            content = _read_class(file)
            classes[file.name.removesuffix(".toml")] = content.attack
            described = content.problem
        for name, value in described.items():
            if name in problems:
                raise UserError(f"{file.name}: two problems are called `{name}`; rename one")
            problems[name] = _read_problem(file.name, name, value)
    _check_names(problems, classes)
    return Corpus(problems, classes)


def _read(file: Traversable) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file.name}: {error}") from None


def _read_class(file: Traversable) -> _ClassFile:
    try:
        return msgspec.convert(_read(file), _ClassFile)
    except msgspec.ValidationError as error:
        raise UserError(f"{file.name}: {error}") from None


def _read_problem(file: str, name: str, value: dict[str, Any]) -> Problem:
    if isinstance(tests := value.get("tests"), str):
        try:
            value = {**value, "tests": msgspec.json.decode(tests)}
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise UserError(f"{file}: the tests of `{name}` are not valid JSON: {error}") from None
    problem = problem_from({"id": f"attacks/{name}", "statement": "", **value})
    if not problem.references:
        raise UserError(f"{file}: `{name}` needs a reference, which must be accepted")
    return problem


def _check_names(problems: dict[str, Problem], classes: dict[str, list[Attack]]) -> None:
    """Raise UserError for an unknown problem, or for a name that is used twice."""
    seen: set[str] = set()
    for name, attacks in classes.items():
        for attack in attacks:
            for problem in (attack.problem, attack.twin_problem or attack.problem):
                if problem not in problems:
                    raise UserError(f"{name}.toml: `{attack.name}` names an unknown problem `{problem}`")
            if attack.name in seen:
                raise UserError(f"{name}.toml: two attacks are called `{attack.name}`; rename one")
            seen.add(attack.name)
