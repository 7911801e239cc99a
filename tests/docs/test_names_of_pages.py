"""Every name in backquotes on a page exists: identifiers, files, options, recipe keys.

A word counts as known if the code, a recipe or the build files have it outside comments and docstrings, which
may be as old as the pages. ``foreign_names.txt`` has the names of other programs.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from whetstone.cli.main import VERBS, build_parser
from whetstone.run.recipe import Recipe

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "recipes").rglob("*.yaml")),
]
CODE = [
    path for name in ("src", "packages", "examples", "benchmarks") for path in (ROOT / name).rglob("*.py")
]
BUILD = ["Makefile", "pyproject.toml", "mkdocs.yml", "constraints.txt", ".github/workflows/ci.yml"]
FENCE = re.compile(r"^(`{3,}).*?^\1", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
KEY = re.compile(r"[a-z_]+(?:\.[a-z_0-9]+)+(?<!\.html)(?<!\.json)")
FILE = re.compile(r"^[\w.-]+(?:/[\w.-]+)*/?$")
ENDINGS = (".py", ".md", ".yaml", ".toml", ".c", ".svg", ".html")
COMMAND = re.compile(r"whetstone ([a-z]+)(?: ([a-z]+))?")
FOLDERS = ("src", "tests", "deploy", ".github", "examples", "packages", "benchmarks", "docs", "recipes")
FOREIGN = frozenset(
    name
    for line in (Path(__file__).parent / "foreign_names.txt").read_text(encoding="utf-8").splitlines()
    for name in line.partition("#")[0].split()
)


def text_of(page: Path) -> str:
    """Return the text of a page with its blocks of code emptied, or the comments of a recipe."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".yaml":
        return "\n".join(line.partition("#")[2] for line in text.splitlines())
    # Commands of a block tell which verb a section is about.
    return FENCE.sub(lambda block: block[0].replace("`", " "), text)


def strings(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a program that are no docstrings."""
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


@cache
def identifiers() -> frozenset[str]:
    """Return the names of the code, with those that Python brings and those of other programs."""
    found = {*dir(builtins), *keyword.kwlist, *sys.stdlib_module_names, *FOREIGN}
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in ("name", "id", "attr", "arg", "module", "asname", "rest"):
                if isinstance(value := getattr(node, name, None), str):
                    found.update(WORD.findall(value))
    return frozenset(found)


@cache
def known_words() -> frozenset[str]:
    """Return the words of the code, the recipes and the names of files."""
    found = set(identifiers())
    for path in CODE:
        for text in strings(ast.parse(path.read_text(encoding="utf-8"))):
            found.update(WORD.findall(text))
    package = ROOT / "src" / "whetstone"
    data = [package / "data/sources/sources.toml", package / "environments/formats/families.toml"]
    data += [package / "sandbox/zygote/syscall_numbers.txt"]
    data += (ROOT / "recipes").rglob("*.yaml")
    for path in [*(ROOT / name for name in BUILD), *data]:
        for line in path.read_text(encoding="utf-8").splitlines():
            found.update(WORD.findall(line if path.name == "Makefile" else line.partition("#")[0]))
    for folder in FOLDERS:
        for path in [ROOT / folder, *(ROOT / folder).rglob("*")]:
            found.update(WORD.findall(path.name))
    return frozenset(found)


@cache
def affixes() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return how made names begin and end, such as ``node_`` and ``_total``."""
    pieces = {piece for path in CODE for piece in strings(ast.parse(path.read_text(encoding="utf-8")))}
    # The client of Prometheus adds the end.
    begins = {found[1] for piece in pieces if (found := re.search(r"(?:^|\W)(\w+_)$", piece))}
    begins |= {each[at + 1 :] for each in begins for at, sign in enumerate(each) if sign == "_"}
    ends = {found[1] for piece in pieces if (found := re.match(r"(_\w+)(?:\W|$)", piece))}
    return tuple(sorted(begins - {"", "_"})), tuple(sorted(ends - {"_"} | {"_total"}))


def is_known(word: str) -> bool:
    """Whether a word is known, or made of a known one with a beginning, an end or both."""
    begins, ends = affixes()
    rests = {word, *(word.removeprefix(each) for each in begins if word.startswith(each))}
    rests |= {rest.removesuffix(each) for rest in rests for each in ends if rest.endswith(each)}
    return any(not rest or rest in known_words() for rest in rests)


@cache
def options_of(verb: str, action: str = "") -> frozenset[str]:
    """Return the options of a verb: of one of its actions, or of all."""
    found: set[str] = set()
    parsers: list[Any] = [build_parser(verb)]
    while parsers:
        for each in parsers.pop()._actions:
            found.update(each.option_strings)
            actions = each.choices if isinstance(each.choices, dict) else {}
            parsers += [actions[name] for name in {action, verb} & actions.keys() or actions]
    return frozenset(found)


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the settings class of a field's type, if it is one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := section_of(each))), None)


def wrong_key(path: str) -> bool:
    """Whether a dotted path begins as a recipe key does and goes on with a key that does not exist."""
    section: type[BaseModel] | None = Recipe
    for number, name in enumerate(path.split(".")):
        if section is None:
            return False
        if name not in section.model_fields:
            return number > 0
        section = section_of(section.model_fields[name].annotation)
    return False


def missing_file(page: Path, span: str) -> bool:
    """Whether a span is written as a path of this repository, and there is no such file."""
    if not FILE.match(span) or not (span.endswith(ENDINGS) and "/" in span):
        return False
    places = (ROOT, ROOT / "src" / "whetstone", ROOT / "docs", page.parent)
    return not any((place / span).exists() for place in places) and Path(span).parts[0] not in known_roots()


@cache
def known_roots() -> frozenset[str]:
    """Folders that a user's commands make."""
    return frozenset({"runs", "sets", "downloads", "evals"})


def unknown_options(page: str, at: int, span: str) -> list[str]:
    """Return the options of a span that its command has not; without one, that no command of its section has.

    page: its text up to the end of the section. at: where the span stands.
    """
    named = COMMAND.findall(span)
    heading = max(page.rfind("\n#", 0, at), 0)
    if not named and re.match(r"[\w./]+ ", span):
        # A command of another program.
        return []
    all_verbs = [(verb, "") for verb in VERBS]
    for commands in (named, COMMAND.findall(page[heading:]), COMMAND.findall(page), all_verbs):
        if known := [each for each in commands if each[0] in VERBS]:
            has = frozenset[str]().union(*(options_of(*each) for each in known))
            return [each for each in OPTION.findall(span) if each not in has and each not in FOREIGN]
    return []


def unknown(page: Path, text: str, at: int) -> list[str]:
    """Return what is unknown in the span at a place of a page: a file, a key, options, or names."""
    span = text[at:].partition("`")[0]
    if missing_file(page, span) or (KEY.fullmatch(span) and wrong_key(span) and span not in FOREIGN):
        return [span]
    if re.fullmatch(r"[A-Z]+[a-z]\w*(\.\w+)?(\(.*\))?", span):
        # A class, or one of its attributes.
        return [word for word in WORD.findall(span)[:2] if word not in identifiers() and len(word) > 2]
    if re.fullmatch(r"[A-Z_]{4,}", span):
        return [] if span in known_words() else [span]
    words = WORD.findall(re.sub(r"--[\w.-]+", "", span))
    end = re.search(r"\n#", text[at:])
    return unknown_options(text[: at + end.start() if end else len(text)], at, span) + [
        word
        for word in words
        # Capitals stand for what the reader gives.
        if len(word) > 2 and not is_known(word) and not (word.isupper() and "_" not in word)
    ]


def faults(page: Path) -> dict[str, list[str]]:
    """Return what is unknown on a page, by span."""
    text = text_of(page)
    found = ((match[1], unknown(page, text, match.start(1))) for match in SPAN.finditer(text))
    return {span: unknown_here for span, unknown_here in found if unknown_here}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_name_in_backquotes_exists(page: Path) -> None:
    assert faults(page) == {}


@pytest.mark.parametrize(
    "text",
    [
        "`PROVED`",
        "(`JobBatch`)",
        "`Follower.catch_up`",
        "`NONE_YET`",
        "`VersionPublisher(crew=ranks.apart())`",
        "`src/whetstone/weights/absent.py`",
        "`weights/absent.py`",
        "`trainer.prompts_per_stp`",
        "`flow.gpus.trainer`",
        "`whetstone train --smok`",
        "`--absent`",
        "# Sources\n\nwhetstone data prepare SOURCE\n\n`--revision SOURCE=REV`",
        "`absent_metric_total`",
    ],
)
def test_a_name_that_does_not_exist_is_found(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert len(faults(page)) == 1


def test_names_that_exist_are_not_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    names = ("TESTED_FAMILIES", "FlowBatch", "weights/codec.py", "trainer.lora.rank", "flow.gpus.trainers")
    more = ("whetstone data prepare SOURCE@REV", "whetstone train RECIPE --dry-run", "node_losses_total")
    page.write_text(" ".join(f"`{name}`" for name in (*names, *more)), encoding="utf-8")
    assert faults(page) == {}


if __name__ == "__main__":
    for page in PAGES:
        for span, names in faults(page).items():
            print(f"{page.relative_to(ROOT)}: {span!r}: {names}")
