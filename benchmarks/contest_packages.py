"""Contest packages as problems, for the benchmarks that measure on them: folders in the format of Kattis.

Both formats are read: the legacy one, and 2023-07-draft. https://www.kattis.com/problem-package-format/
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, cast

import msgspec
import yaml

from whetstone.core.errors import UserError
from whetstone.core.problem import (
    CaseGroup,
    Compare,
    InteractiveCase,
    InteractiveTests,
    Limits,
    Problem,
    Program,
    ProgramChecker,
    ProgramInteractor,
    Scoring,
    StdinCase,
    StdinTests,
    Tests,
)
from whetstone.core.yaml_text import parse_yaml
from whetstone.data.sources.programs import is_python_2, with_headers
from whetstone.data.sources.row_problem import known
from whetstone.data.sources.source import Skip
from whetstone.judge.languages.table import language_named
from whetstone_curation.input_validator import INPUT_VALIDATOR_KEY, InputValidator

SETTINGS = "problem.yaml"
_LANGUAGES = {"cc": "cpp", "cpp": "cpp", "cxx": "cpp", "c++": "cpp", "py": "python", "py3": "python"}
_REFUSED = ("wrong_answer", "run_time_error", "runtime_exception")
_MOST_PROGRAMS = 20
_TOLERANCES = {
    "float_tolerance": ("abs", "rel"),
    "float_absolute_tolerance": ("abs",),
    "float_relative_tolerance": ("rel",),
}


class Package:
    """The files of a folder, by their names relative to it. They are read on demand."""

    def __init__(self, folder: Path) -> None:
        files = [file for file in folder.rglob("*") if file.is_file()]
        self._folder = folder
        self._names = sorted(file.relative_to(folder).as_posix() for file in files)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def below(self, folder: str, ending: str = "") -> list[str]:
        """Return the names in a folder and its subfolders, in order, without hidden files."""
        names = [name for name in self._names if name.startswith(folder) and name.endswith(ending)]
        return [name for name in names if not PurePosixPath(name).name.startswith(".")]

    def text(self, name: str) -> str:
        """Return the text of a file with its line ends. Raises Skip for a file that is not text."""
        try:
            return (self._folder / name).read_bytes().decode()
        except UnicodeDecodeError as error:
            raise Skip("not_text", f"{name} is not UTF-8: {error}") from None

    def yaml(self, name: str) -> dict[str, Any]:
        """Return the mapping in a YAML file; an empty file is an empty mapping. Raises Skip."""
        try:
            value = parse_yaml(self.text(name))
        except yaml.YAMLError as error:
            raise Skip("broken_yaml", f"{name}: {' '.join(str(error).split())}") from None
        if value is not None and not isinstance(value, dict):
            raise Skip("broken_yaml", f"{name} is not a mapping")
        return cast("dict[str, Any]", value or {})


def stdin_problems(folders: list[Path]) -> Iterator[tuple[Problem, int]]:
    """Yield the problems with stdin tests of the packages in folders, each with the number of its samples.

    Packages that cannot be read are printed with the reason.
    """
    for folder in folders:
        for place in sorted(folder.iterdir()):
            if not (place / SETTINGS).is_file():
                continue
            package = Package(place)
            try:
                problem = _problem(package, f"{folder.name}/{place.name}")
            except (Skip, UserError) as error:
                print(f"{place}: left out: {error}", flush=True)
                continue
            if isinstance(problem.tests, StdinTests):
                yield problem, len(package.below("data/sample/", ".in"))


def _problem(package: Package, own_id: str) -> Problem:
    """Return a package as a problem. Raises Skip for one that cannot be a problem."""
    settings = package.yaml(SETTINGS)
    kinds = _kinds(settings)
    if "multi-pass" in kinds:
        raise Skip("multi_pass", "the program is run several times for each test")
    cases, folders = _cases(package)
    flags = _flags(package, settings)
    custom = "custom" in kinds or package.below("output_validator/")
    compare, checker = Compare(), None
    if "interactive" in kinds:
        tests: Tests = _interactive(package, cases, flags)
    else:
        tests = StdinTests(cases)
        if custom:
            checker = ProgramChecker(*_validator(package), "kattis", flags)
        else:
            compare = _compare(flags)
    accepted, left_out = _programs(package, ("accepted",))
    wrong, _ = _programs(package, _REFUSED)
    return Problem(
        id=f"kattis/{own_id}",
        statement=_statement(package),
        tests=tests,
        compare=compare,
        checker=checker,
        scoring=_scoring(package, folders) if "scoring" in kinds else Scoring(),
        limits=_limits(package, settings),
        references=accepted,
        wrong=wrong,
        source="kattis",
        meta=_meta(settings, left_out, _input_validator(package, folders)),
    )


def _kinds(settings: dict[str, Any]) -> set[str]:
    """Return the words for special kinds of validation: interactive, custom, scoring, multi-pass."""
    said = settings.get("type", "pass-fail")
    words = cast("list[Any]", said) if isinstance(said, list) else str(said).split()
    return {str(word) for word in (*words, *str(settings.get("validation", "default")).split())}


def _cases(package: Package) -> tuple[list[StdinCase], list[str]]:
    """Return the tests, samples first, and the folder of each. An interactive sample is no test."""
    cases: list[StdinCase] = []
    folders: list[str] = []
    for group in ("data/sample/", "data/secret/"):
        for name in package.below(group, ".in"):
            answer = name.removesuffix(".in") + ".ans"
            if answer not in package:
                raise Skip("malformed_tests", f"{name} has no answer file")
            cases.append(StdinCase(package.text(name), package.text(answer)))
            folders.append(str(PurePosixPath(name).parent))
    if not cases:
        raise Skip("no_tests", "data/ contains no test")
    return cases, folders


def _flags(package: Package, settings: dict[str, Any]) -> list[str]:
    """Return the validator's arguments. Raises Skip if they are not the same for all tests."""
    said = [settings.get("validator_flags")]
    for name in ("data/testdata.yaml", "data/secret/testdata.yaml", "data/test_group.yaml"):
        group = package.yaml(name) if name in package else {}
        said += [group.get("output_validator_flags"), group.get("output_validator_args")]
    given = [flags.split() if isinstance(flags, str) else flags for flags in said if flags]
    different = [flags for flags in given if flags != given[0]]
    # One checker serves all tests of a problem, so flags of single groups cannot be represented.
    inner = [n for n in package.below("data/secret/", "testdata.yaml") if n.count("/") > 2]
    if different or any(package.yaml(name).get("output_validator_flags") for name in inner):
        raise Skip("flags_by_group", "the validator's flags are not the same for all tests")
    return [str(flag) for flag in given[0]] if given else []


def _compare(flags: list[str]) -> Compare:
    """Return the comparison of the default validator with its flags."""
    words, found = list(flags), dict[str, Any]()
    while words:
        word = words.pop(0)
        if word in _TOLERANCES and words:
            found.update(dict.fromkeys(_TOLERANCES[word], float(words.pop(0))))
        elif word in ("case_sensitive", "space_change_sensitive"):
            found[word] = True
        else:
            raise Skip("unknown_flag", f"the default validator has no flag `{word}`")
    return Compare(mode="kattis", **found)


def _interactive(package: Package, cases: list[StdinCase], flags: list[str]) -> InteractiveTests:
    if flags:
        raise Skip("interactor_flags", "the interactor takes flags")
    language, source = _validator(package)
    written = [InteractiveCase(case.input, case.output) for case in cases]
    return InteractiveTests(written, ProgramInteractor(language, source, "kattis"))


def _input_validator(package: Package, folders: list[str]) -> InputValidator | None:
    """Return the first validator of inputs that is one program; None if there is none.

    Further ones are left out: an input that the first accepts may break a rule of these.
    """
    places = ("input_validators/", "input_format_validators/", "input_validator/")
    names = [name for place in places for name in package.below(place)]
    validators = dict.fromkeys("/".join(name.split("/")[:2]) for name in names)
    for validator in validators:
        try:
            inside = [name for name in names if name == validator or name.startswith(f"{validator}/")]
            program = _only_program(package, inside, "input")
            return InputValidator(*program, _input_arguments(package, folders))
        except Skip:
            continue
    return None


def _input_arguments(package: Package, folders: list[str]) -> list[list[str]]:
    """Return the different arguments of the validator of inputs, those of the last groups first.

    folders: of the tests. A group without arguments has those of the folder above; at the top there are none.
    """
    found: dict[str, list[str]] = {}
    for folder in sorted(set(folders), reverse=True):
        arguments: list[str] = []
        for above in (folder, *map(str, PurePosixPath(folder).parents)):
            given = _group_arguments(package, above)
            if given is not None:
                arguments = given
                break
        found.setdefault(" ".join(arguments), arguments)
    return [] if list(found) == [""] else list(found.values())


def _group_arguments(package: Package, folder: str) -> list[str] | None:
    """Return the arguments of the validator of inputs that a folder of tests names; None without any."""
    for name in ("testdata.yaml", "test_group.yaml"):
        group = package.yaml(f"{folder}/{name}") if f"{folder}/{name}" in package else {}
        given = group.get("input_validator_flags", group.get("input_validator_args"))
        words = given.split() if isinstance(given, str) else given
        if isinstance(words, list):
            return [str(word) for word in cast("list[Any]", words)]
    return None


def _validator(package: Package) -> tuple[str, str]:
    """Return language and source of the only output validator, with its headers inserted."""
    names = [*package.below("output_validators/"), *package.below("output_validator/")]
    return _only_program(package, names, "output")


def _only_program(package: Package, names: list[str], of: str) -> tuple[str, str]:
    """Return language and source of the only program in files, with its headers inserted. Raises Skip."""
    texts = {name: package.text(name) for name in names if not name.endswith((".md", ".txt"))}
    headers = {PurePosixPath(n).name: text for n, text in texts.items() if n.endswith((".h", ".hpp"))}
    sources = [name for name in texts if PurePosixPath(name).name not in headers]
    if len(sources) != 1:
        raise Skip("several_files", f"the {of} validator has {len(sources)} source files, not one")
    language = _language(sources[0])
    if language is None:
        raise Skip("unknown_language", f"the {of} validator is {PurePosixPath(sources[0]).name}")
    return language, with_headers(texts[sources[0]], headers)


def _programs(package: Package, verdicts: tuple[str, ...]) -> tuple[list[Program], dict[str, int]]:
    """Return submissions of one file in languages that the judge runs, and the number of others by reason."""
    found: list[Program] = []
    left_out: dict[str, int] = {}
    for verdict in verdicts:
        for name in package.below(f"submissions/{verdict}/"):
            language = _language(name)
            text = package.text(name)
            reason = ""
            if name.count("/") > 2:
                reason = "several_files"
            elif language is None:
                reason = PurePosixPath(name).suffix.lstrip(".") or "unknown"
            elif language == "python" and (is_python_2(text) or "python2" in text.partition("\n")[0]):
                reason = "python2"
            if reason or language is None:
                left_out[reason] = left_out.get(reason, 0) + 1
            else:
                found.append(Program(language, text))
    return found[:_MOST_PROGRAMS], dict(sorted(left_out.items()))


def _language(name: str) -> str | None:
    ending = PurePosixPath(name).suffix.lstrip(".").lower()
    try:
        return language_named(_LANGUAGES.get(ending, ending), name).name if ending else None
    except UserError:
        return None


def _scoring(package: Package, folders: list[str]) -> Scoring:
    """Return groups with a score, each with the samples. Without groups, every test counts the same."""
    groups: list[CaseGroup] = []
    samples = [i for i, folder in enumerate(folders) if folder.startswith("data/sample")]
    for folder in sorted(set(folders)):
        name = f"{folder}/testdata.yaml"
        score = package.yaml(name).get("accept_score") if name in package else None
        if isinstance(score, int | float) and score > 0:
            inside = [i for i, where in enumerate(folders) if where == folder]
            groups.append(CaseGroup(sorted({*samples, *inside}), float(score)))
    covered = {case for group in groups for case in group.cases}
    return Scoring("groups", groups) if covered == set(range(len(folders))) else Scoring()


def _statement(package: Package) -> str:
    """Return the English statement, or else the first one, in Markdown or LaTeX."""
    names = [
        name
        for folder in ("problem_statement/", "statement/")
        for name in package.below(folder)
        if PurePosixPath(name).name.startswith("problem.") and name.endswith((".md", ".tex"))
    ]
    if not names:
        raise Skip("no_statement", "there is no problem_statement/problem.*")
    names.sort(key=lambda name: (".en." not in name, not name.endswith(".md"), name))
    return package.text(names[0])


def _limits(package: Package, settings: dict[str, Any]) -> Limits:
    """Return the limits of the package. The legacy format has no time limit; the default applies."""
    said = settings.get("limits")
    given = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    seconds = given.get("time_limit") or (package.text(".timelimit") if ".timelimit" in package else None)
    try:
        return Limits(
            cpu_s=float(seconds or Limits().cpu_s),
            memory_mb=float(given.get("memory") or 2048),
            output_mb=float(given.get("output") or 8),
        )
    except (TypeError, ValueError):
        raise Skip("malformed_limits", f"the limits are no numbers: {given}") from None


def _meta(
    settings: dict[str, Any], left_out: dict[str, int], validator: InputValidator | None
) -> dict[str, Any]:
    title = settings.get("name")
    if isinstance(title, dict):
        titles = cast("dict[str, Any]", title)
        title = titles.get("en") or next(iter(titles.values()), "")
    return known(
        licence=str(settings.get("license") or "unknown"),
        title=title,
        origin=settings.get("source"),
        tags=settings.get("keywords"),
        references_left_out=left_out,
        **{INPUT_VALIDATOR_KEY: msgspec.to_builtins(validator)},
    )
