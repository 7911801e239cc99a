"""EvalPlus' grader (0.3.1; its time limits as of 26d6d00) in our judge, for HumanEval+ and MBPP+.

A problem has two cases, ``base`` and ``plus``. Each is one process, in which the function gets all inputs of
its kind one after the other. Base alone is what is reported for HumanEval and MBPP; both for the plus sets.
Expected values come from the reference, run in a sandbox here, and never enter the program's process.

An input has 4 s, or four times what the reference took, and all of a case together 60 s: of CPU time here, so
that a busy machine changes nothing, where the grader takes the clock's. (0.3.1 as released gives 1 s.)
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec import Struct

from whetstone.core.literal import write_literal
from whetstone.core.problem import AssertTests, CallCase, CallTests, Compare, Limits, Problem
from whetstone.data.sources.plus_tests import plus_inputs
from whetstone_graders.calling import Caller, CallFailed
from whetstone_graders.form import OfficialForm

DATASETS = {"humanevalplus": "humaneval", "mbppplus": "mbpp"}
"""The grader's name for the problems of a source."""
SECONDS = 4.0
FACTOR = 4.0
MOST_SECONDS = 60.0
MEMORY_MB = 4096.0
_OUTPUT_MB = 256.0
_MOST_CHARACTERS = 32 << 20
_REFERENCE_LIMITS = Limits(MOST_SECONDS, MEMORY_MB, _OUTPUT_MB)

_ORACLES: dict[str, dict[str, str]] = {
    "humaneval": {"find_zero": "polynomial_root"},
    "mbpp": {
        "are_equivalent": "anything",
        "sum_div": "zero_too",
        "surface_Area": "pyramid_surface",
        "digit_distance_nums": "digit_distance",
        **dict.fromkeys(
            ("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
             "intersection_array", "find_dissimilar", "Diff"),
            "same_set",
        ),
        **dict.fromkeys(("check_str", "text_match_three", "text_starta_endb"), "not_none"),
    },
}  # fmt: skip
# Adds to the reference what calls it: its value (or whether there is one) and the CPU seconds it took.
_TIMED = """

def whetstone_timed(*arguments):
    import time
    begun = time.process_time()
    value = {entry_point}(*arguments)
    return [{value}, time.process_time() - begun]
"""


class EvalPlusTask(Struct, frozen=True):
    """The grader's data of a problem. Inputs are lists of arguments of Python's built-in types."""

    dataset: str
    entry_point: str
    reference: str
    base: list[list[Any]]
    plus: list[list[Any]]
    atol: float


def task_of(problem: Problem) -> EvalPlusTask | None:
    """Return the grader's data of a problem of the sources humanevalplus and mbppplus; None for any other.

    And None for their form on the hub, which has test code in the place of inputs.
    """
    dataset = DATASETS.get(problem.source)
    made_of = plus_inputs(problem.tests) if dataset and isinstance(problem.tests, AssertTests) else None
    if dataset is None or made_of is None:
        return None
    return EvalPlusTask(
        dataset, made_of.entry_point, made_of.reference, made_of.base, made_of.plus, made_of.atol
    )


def official_form(problem: Problem, task: EvalPlusTask, caller: Caller) -> OfficialForm:
    """The form of a problem of HumanEval+ or MBPP+. Raises CallFailed when the reference does.

    Its first case is ``base``; the others are ``plus``.
    """
    oracle = _ORACLES[task.dataset].get(task.entry_point)
    judged = [pair for inputs in (task.base, task.plus) for pair in _cases(task, oracle, inputs, caller)]
    official = Problem(
        id=problem.id,
        statement=problem.statement,
        tests=CallTests([case for case, _ in judged], class_="Calls", literals=True),
        compare=Compare("grader:evalplus", abs=task.atol, oracle=oracle),
        limits=Limits(max(seconds for _, seconds in judged), MEMORY_MB, _OUTPUT_MB),
        source=problem.source,
    )
    call = f"def Calls(seconds): return EvalplusCalls({{code}}, {task.entry_point!r}, {oracle!r}, seconds)"
    return OfficialForm(official, call)


def _cases(
    task: EvalPlusTask, oracle: str | None, inputs: Sequence[list[Any]], caller: Caller
) -> Iterator[tuple[CallCase, float]]:
    """Operations on one object, one a call, and the CPU seconds that all of them together have.

    One case, but for results that are too large to be held together. An input whose result is too large by
    itself (MBPP/255 has some, the largest of 128 million items) is left out.
    """
    value = "value is not None" if oracle == "not_none" else "value"
    source = task.reference + _TIMED.format(entry_point=task.entry_point, value=value)
    outcomes = caller.outcomes(source, "whetstone_timed", inputs, limits=_REFERENCE_LIMITS)
    size, calls = 0, list[_Call]()
    for arguments, outcome in zip(inputs, outcomes, strict=True):
        if isinstance(outcome, CallFailed):
            if "larger than" not in str(outcome):
                raise outcome
            continue  # no program could hand out this value either
        value, seconds = outcome
        expected = write_literal(_plain(value))
        if len(expected) > _MOST_CHARACTERS:
            continue
        size += len(expected)
        if size > _MOST_CHARACTERS and calls:
            yield _case(calls)
            size, calls = len(expected), []
        calls.append((arguments, expected, seconds))
    if calls:
        yield _case(calls)


_Call = tuple[list[Any], str, float]
"""Arguments, the expected value as a literal, and the CPU seconds that the reference took."""


def _case(calls: Sequence[_Call]) -> tuple[CallCase, float]:
    limits = [max(SECONDS, FACTOR * seconds) for _, _, seconds in calls]
    case = CallCase(
        operations=["Calls", *["call"] * len(calls)],
        args=[
            [write_literal(SECONDS if max(limits) == SECONDS else limits)],
            *([write_literal(argument) for argument in arguments] for arguments, _, _ in calls),
        ],
        expected=[None, *(expected for _, expected, _ in calls)],
    )
    return case, min(MOST_SECONDS, sum(limits)) + 1


def _plain(value: Any) -> Any:
    """A mapping as the dict that it equals, at any depth."""
    if isinstance(value, Counter | OrderedDict | dict):
        pairs = cast("dict[Any, Any]", value).items()
        return {key: _plain(item) for key, item in pairs}
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in cast("tuple[Any, ...]", value))
    return value
