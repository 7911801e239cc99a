"""Benchmarks as Problems: HumanEval, sanitised MBPP, and any problem file or set that ships."""

from __future__ import annotations

import ast
import gzip
import hashlib
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from whetstone.data.dataset import load_problems
from whetstone.errors import UserError, did_you_mean
from whetstone.evaluate.assemble import COMPLETES_STARTER
from whetstone.problem import AssertTests, Limits, Problem, Program

LIMITS = Limits(cpu_s=6.0, memory_mb=1024.0)
"""Of both benchmarks, for a whole list of asserts; every reference needs far less."""

HUMANEVAL_PROMPT = (
    "Complete the Python function below. Reply with the whole function, its imports included, "
    "in one Python code block.\n\n```python\n{starter}```"
)
MBPP_PROMPT = "{statement}\n\nReply with the code only, in one Python code block."
PROBLEMS_PROMPT = "{statement}\n\n{instruction}"


class Benchmark(Struct, frozen=True):
    """Problems to evaluate on, and how they are asked.

    ``prompt`` is the template for chat models, and ``extraction`` where the program stands in the
    reply: the first fence for the two that ask for one function, since small models like to add a
    second one with examples of its use. ``source`` is the file or set name as given,
    ``file_sha256`` the hash of the file's bytes (None for a set that ships), ``problems_sha256``
    of the problems as they are used. ``shows`` says what of the tests the prompt reveals.
    """

    name: str
    problems: list[Problem]
    prompt: str
    extraction: str
    source: str
    shows: str
    file_sha256: str | None
    problems_sha256: str


class HumanEvalRow(Struct):
    """A line of HumanEval.jsonl; other columns are ignored."""

    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str


class MbppRow(Struct):
    """An entry of sanitized-mbpp.json; other columns are ignored."""

    task_id: int
    prompt: str
    code: str
    test_imports: list[str]
    test_list: list[str]


_Row = TypeVar("_Row", HumanEvalRow, MbppRow)


def load_benchmark(name: str, data: str | None, *, limit: int = 0) -> Benchmark:
    """Read a benchmark; ``limit`` > 0 takes its first so many problems.

    ``data`` is the benchmark's file; for ``problems`` a problem file or the name of a set that
    ships. Raises UserError naming file, entry and column for what does not fit.
    """
    if name not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        raise UserError(f"unknown benchmark `{name}`{did_you_mean(name, BENCHMARKS)} (known: {known})")
    if not data:
        raise UserError(f"benchmark `{name}` needs --data: {_WHAT[name]}")
    importer, prompt, extraction, shows = BENCHMARKS[name]
    problems = importer(data)
    chosen = problems[:limit] if limit > 0 else problems
    file = Path(data)
    return Benchmark(
        name=name,
        problems=chosen,
        prompt=prompt,
        extraction=extraction,
        source=data,
        shows=shows,
        file_sha256=hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None,
        problems_sha256=problems_hash(chosen),
    )


def problems_hash(problems: Sequence[Problem]) -> str:
    """SHA-256 over the problems in the published schema, one JSON line each, in order."""
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(msgspec.json.encode(problem) + b"\n")
    return digest.hexdigest()


def read_humaneval(path: str) -> list[Problem]:
    """HumanEval.jsonl, plain or gzipped: one problem a line, judged by ``check(candidate)``."""
    lines = _read(path).splitlines()
    rows = [(f"{path}, line {i}", line) for i, line in enumerate(lines, 1) if line.strip()]
    return _nonempty(path, [_humaneval(place, _row(place, line, HumanEvalRow)) for place, line in rows])


def read_mbpp(path: str) -> list[Problem]:
    """sanitized-mbpp.json, one JSON array: the prompt shows all asserts, as in the original paper
    (Austin et al. 2021, arXiv 2108.07732)."""
    try:
        entries = msgspec.json.decode(_read(path), type=list[msgspec.Raw])
    except msgspec.MsgspecError as error:
        raise UserError(
            f"{path}: expected one JSON array of problems, as in sanitized-mbpp.json ({error})"
        ) from None
    rows = [(f"{path}, entry {i}", bytes(entry)) for i, entry in enumerate(entries)]
    return _nonempty(path, [_mbpp(place, _row(place, entry, MbppRow)) for place, entry in rows])


def _humaneval(place: str, row: HumanEvalRow) -> Problem:
    _require(place, "prompt", f"def {row.entry_point}" in row.prompt, f"a definition of `{row.entry_point}`")
    _require(place, "test", "def check(" in row.test, "a function check(candidate)")
    return _problem(
        place,
        id=row.task_id,
        statement=row.prompt,
        starter=row.prompt,
        tests=AssertTests(check=row.test, entry_point=row.entry_point),
        references=[Program("python", row.prompt + row.canonical_solution)],
        source="humaneval",
        meta={COMPLETES_STARTER: True},
    )


def _mbpp(place: str, row: MbppRow) -> Problem:
    _require(place, "test_list", bool(row.test_list), "at least one assert")
    shown = "\n".join(row.test_list)
    return _problem(
        place,
        id=f"MBPP/{row.task_id}",
        statement=f"{row.prompt.strip()}\nYour code should pass these tests:\n\n{shown}",
        tests=AssertTests(
            setup="\n".join(row.test_imports), asserts=row.test_list, entry_point=_called(place, row)
        ),
        references=[Program("python", row.code)],
        source="mbpp",
    )


def _called(place: str, row: MbppRow) -> str:
    """The function that the reference defines and the asserts call."""
    defined = [
        n.name for n in _tree(place, "code", row.code).body if isinstance(n, ast.FunctionDef | ast.ClassDef)
    ]
    tests = _tree(place, "test_list", "\n".join(row.test_list))
    calls = (n.func.id for n in ast.walk(tests) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name))
    name = next((name for name in calls if name in defined), None)
    _require(place, "test_list", name is not None, "asserts that call a function which `code` defines")
    return name or ""


def _tree(place: str, column: str, code: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MBPP has invalid escapes, which Python warns of
            return ast.parse(code)
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{place}: column `{column}`: expected Python code ({error})") from None


def _problem(place: str, **fields: object) -> Problem:
    try:
        return msgspec.convert({"limits": LIMITS, **fields}, Problem)
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None


def _row(place: str, text: bytes, kind: type[_Row]) -> _Row:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        columns = ", ".join(kind.__struct_fields__)
        raise UserError(f"{place}: {error}; expected the columns {columns}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{place}: not JSON in UTF-8: {error}") from None


def _require(place: str, column: str, holds: bool, expected: str) -> None:
    if not holds:
        raise UserError(f"{place}: column `{column}`: expected {expected}")


def _nonempty(path: str, problems: list[Problem]) -> list[Problem]:
    if not problems:
        raise UserError(f"{path}: holds no problems")
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise UserError(f"{path}: column `task_id`: {problem.id!r} occurs twice")
        seen.add(problem.id)
    return problems


def _read(path: str) -> bytes:
    try:
        content = Path(path).read_bytes()
        return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; give the benchmark's file with --data") from None
    except (EOFError, zlib.error) as error:
        raise UserError(f"{path}: broken gzip file: {error}") from None


def _read_set(path: str) -> list[Problem]:
    return load_problems(path)


BENCHMARKS: dict[str, tuple[Callable[[str], list[Problem]], str, str, str]] = {
    "humaneval": (read_humaneval, HUMANEVAL_PROMPT, "first_fence", "the examples in the docstring"),
    "mbpp": (read_mbpp, MBPP_PROMPT, "first_fence", "all asserts"),
    "problems": (_read_set, PROBLEMS_PROMPT, "last_fence", "what the statement says"),
}
_WHAT = {
    "humaneval": "the path of HumanEval.jsonl.gz",
    "mbpp": "the path of sanitized-mbpp.json",
    "problems": "a problem file, or builtin:heldout, builtin:train",
}
