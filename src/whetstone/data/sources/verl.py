"""Training rows in the format of verl, which many code datasets use: a chat prompt and a ground truth.

``reward_model.ground_truth`` is JSON in text. It has tests as fields (see ``test_fields``), as PRIME,
DeepCoder and ScaleBox write them. Or it has code that runs after the program: ``functional`` (Code-R1,
ArcherCodeR), ``pytest`` (Code-R1) or ``assert_case``, a list of statements (verl's own reward).

ArcherCodeR has problems of DeepCoder, CodeContests and Codeforces. code-r1-12k has 10,000 of TACO and 2,000
of LeetCode, as Code-R1 filtered them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from whetstone.core.problem import Problem, StdinTests, Tests
from whetstone.data.sources.check_code import script_tests
from whetstone.data.sources.packed import unpack
from whetstone.data.sources.primeintellect import facts_of, object_of, statement_and_starter
from whetstone.data.sources.programs import references, shown_code
from whetstone.data.sources.pytest_tests import pytest_tests
from whetstone.data.sources.row_problem import known
from whetstone.data.sources.source import ColumnError, DatasetSource, Row, Skip
from whetstone.data.sources.test_fields import read_tests

_INSTRUCTION = re.compile(
    r"Solve the programming task below in a Python markdown code block\.\n"
    r"|Please solve the programming task below using a self-contained code snippet "
    r"in a markdown code block\.\n\n"
)
_STARTER_OFFER = re.compile(
    r"\nAlso feel free to reuse/extend the following starter code:\n```python\n.*\n```\Z", re.DOTALL
)


def _code_r1_statement(message: str) -> str:
    """Return the statement without the instruction before it and the starter behind it."""
    return _STARTER_OFFER.sub(
        "", message[found.end() :] if (found := _INSTRUCTION.match(message)) else message
    )


# Source -> a function that removes the instructions from the user's message.
_STATEMENTS: dict[str, Callable[[str], str]] = {
    "archer": str,
    "code-r1": _code_r1_statement,
    "verl": lambda message: statement_and_starter(message)[0],
}


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row in verl's format."""
    ability = str(row.get("ability") or "code").lower()
    if "cod" not in ability and "program" not in ability:
        raise Skip("not_code", f"a row of the ability {ability}")
    message = user_message(row.get("prompt"), "prompt")
    starter = shown_code(message)
    extra = facts_of(row, "extra_info")
    # The format has no standard field for references: these are Code-R1's and ScaleBox's.
    reference, solutions = extra.get("reference"), row.get("solutions")
    written = [reference] * bool(reference) + (solutions if isinstance(solutions, list) else [])
    programs, left_out = references(written)
    truth = object_of(row, "reward_model").get("ground_truth")
    tests = _tests(truth, starter, [program.source for program in programs])
    return Problem(
        id=f"{source.name}/{own_id}",
        statement=_STATEMENTS[source.name](message),
        tests=tests,
        starter=starter if starter and not isinstance(tests, StdinTests) else None,
        references=programs,
        source=source.name,
        meta=known(
            # Local files have no stated licence.
            licence=source.licence if source.hub_id else None,
            origin=extra.get("dataset") or row.get("data_source"),
            original_id=extra.get("index", row.get("index")),
            references_left_out=left_out,
        ),
    )


def user_message(prompt: Any, column: str) -> str:
    """Return text, or the last message of the user in a chat. Raises ColumnError for other values."""
    if isinstance(prompt, str):
        return prompt
    messages = cast(list[Any], prompt) if isinstance(prompt, list) else []
    contents = [m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"]
    content: Any = contents[-1] if contents else None
    if isinstance(content, list):
        # Parts, of which a text may consist as well.
        parts = cast("list[Any]", content)
        texts: list[Any] = [part.get("text") if isinstance(part, dict) else part for part in parts]
        content = "".join(texts) if all(isinstance(text, str) for text in texts) else None
    if not isinstance(content, str):
        found = "a list without any" if isinstance(prompt, list) else f"a {type(prompt).__name__}"
        raise ColumnError(column, "missing" if prompt is None else found)
    return content


def _tests(truth: Any, starter: str, programs: list[str]) -> Tests:
    if truth is None:
        raise Skip("no_tests", "there is no ground truth")
    value = unpack(truth, "ground_truth") if isinstance(truth, str) else truth
    if not isinstance(value, dict):
        return read_tests(value, starter=starter, programs=programs)
    truth_of = cast(dict[str, Any], value)
    if isinstance(code := truth_of.get("functional"), str):
        return script_tests(code)
    if isinstance(asserts := truth_of.get("assert_case"), list):
        return read_tests(asserts)
    if isinstance(module := truth_of.get("pytest"), str):
        return pytest_tests(module)
    return read_tests(truth_of, starter=starter, programs=programs)
