"""Programs and the verdicts that they must get, read from the TOML files in ``tables/``.

A file has groups, ``[[group]]``, each with the ``property`` that its cases protect. A case has a ``program``
and its ``verdict``: a verdict, or ``refused`` for any but accepted and judge_error. A case may also have what
its problem lacks: ``input`` and ``output``, or ``args`` and ``expected`` (JSON), or one assert as ``test``,
and a ``reference`` program. What a case does not state, its group states.

``problem`` names problems: those of the table ``[problem.NAME]``, in the published schema, or the bare kinds
``stdin``, ``call`` and ``assert``. A program is judged on each of them. ``[program]`` has the texts of
programs that several cases name. ``needs`` names a package without which the file is skipped.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.judge.judge_problems import AMPLE_LIMITS, LIMITS
from whetstone.judge import Judge, Judgement, Program, Verdict

FOLDER = Path(__file__).parent / "tables"
_BARE: dict[str, dict[str, Any]] = {
    "stdin": {"tests": {"kind": "stdin"}},
    "call": {"tests": {"kind": "call", "function": "f"}},
    "assert": {"tests": {"kind": "assert"}},
}
_REFUSED = frozenset(Verdict) - {Verdict.ACCEPTED, Verdict.JUDGE_ERROR}


@dataclass(frozen=True)
class Entry:
    """A program, the problem that it is judged on, and the verdicts that it may get."""

    name: str
    problem: dict[str, Any]
    program: Program
    verdicts: frozenset[Verdict]
    in_one_interpreter: bool


def entries(file: str) -> list[Entry]:
    """Read a file of the folder."""
    content = tomllib.loads((FOLDER / file).read_text(encoding="utf-8"))
    if "needs" in content:
        pytest.importorskip(content["needs"])
    problems = _BARE | content.get("problem", {})
    programs: dict[str, str] = content.get("program", {})
    found: list[Entry] = []
    for group in content["group"]:
        for number, case in enumerate(group["case"], 1):
            stated = {key: value for key, value in {**group, **case}.items() if key != "case"}
            name = f"{group['property']}: {case.get('name', number)}"
            found += _entries_of(name, stated, problems, programs)
    return found


def _entries_of(
    name: str, stated: dict[str, Any], problems: dict[str, dict[str, Any]], programs: dict[str, str]
) -> Iterator[Entry]:
    source = _program(programs, stated["program"])
    verdict = stated.get("verdict", "accepted")
    verdicts = _REFUSED if verdict == "refused" else frozenset({Verdict(verdict)})
    limits = LIMITS if Verdict.TIME_LIMIT in verdicts else AMPLE_LIMITS
    named = stated["problem"]
    for problem in [named] if isinstance(named, str) else named:
        described = {"id": f"t/{problem}", "statement": "", "limits": limits, **problems[problem]}
        described["tests"] = _with_case(described["tests"], stated)
        described |= {key: stated[key] for key in ("statement", "starter", "compare") if key in stated}
        if "reference" in stated:
            reference = _program(programs, stated["reference"])
            described["references"] = [{"language": "python", "source": reference}]
        shared = stated.get("in_one_interpreter", False)
        yield Entry(f"{name} ({problem})", described, Program("python", source), verdicts, shared)


def _program(programs: dict[str, str], text: str) -> str:
    """Return the text of a program, or that of the named one."""
    return programs.get(text, text)


def _with_case(tests: str | dict[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    """Return the tests of a problem, with what a case of a table states about them."""
    whole: dict[str, Any] = json.loads(tests) if isinstance(tests, str) else dict(tests)
    whole |= {key: stated[key] for key in ("function", "class", "setup") if key in stated}
    if "test" in stated:
        whole["asserts"] = [stated["test"]]
    if "output" in stated:
        whole["cases"] = [{"input": stated.get("input", ""), "output": stated["output"]}]
    if "expected" in stated:
        whole["cases"] = [
            {"args": json.loads(stated.get("args", "[1]")), "expected": json.loads(stated["expected"])}
        ]
    return whole


def misjudged(judge: Judge, chosen: list[Entry]) -> dict[str, Judgement]:
    """Return the judgements that are not as the tables say, by the names of the entries."""
    # A time limit that is confirmed is the subject of test_one_guess, and takes as long again.
    pairs = [(entry.problem, entry.program) for entry in chosen]
    judged = judge.judge_many(pairs, confirm_time_limit=False)
    return {
        entry.name: judgement
        for entry, judgement in zip(chosen, judged, strict=True)
        if not _is_as_stated(entry, judgement)
    }


def _is_as_stated(entry: Entry, judgement: Judgement) -> bool:
    """Return whether verdict and score are as stated. A program that is refused is so in every case."""
    if judgement.verdict not in entry.verdicts:
        return False
    if judgement.shared_interpreter is not entry.in_one_interpreter:
        return False
    if entry.in_one_interpreter or judgement.verdict is Verdict.JUDGE_ERROR:
        return judgement.score is None
    if judgement.score is None or (judgement.score == 1.0) is not judgement.accepted:
        return False
    return entry.verdicts is not _REFUSED or all(c.verdict is not Verdict.ACCEPTED for c in judgement.cases)
