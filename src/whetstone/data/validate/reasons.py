"""The defects of problems: a name, a meaning and a default treatment for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from whetstone.core.errors import UserError, did_you_mean

Treatment = Literal["drop", "mark", "ignore"]


class _Defect(Struct, frozen=True):
    """A defect: its default treatment, and its meaning in one line."""

    treatment: Treatment
    meaning: str


class DefectFlag(Struct, frozen=True):
    """A defect found in a problem, with a detail for a person."""

    reason: str
    detail: str


# The defects by weight. A problem with several defects is dropped for the first of them.
REASONS: Mapping[str, _Defect] = {
    # The statement.
    "missing_statement": _Defect("drop", "there is no statement"),
    "image_only_statement": _Defect("drop", "the statement is an image: hardly any text is left without it"),
    "interactive_statement": _Defect(
        "drop", "the statement asks for interaction, and there is no interactor"
    ),
    "image_in_statement": _Defect("mark", "the statement shows or mentions an image that a model cannot see"),
    "several_answers": _Defect(
        "drop", "several answers are right; the tests know one, and no checker decides"
    ),
    "any_case": _Defect("drop", "the statement allows any letter case; the comparison cannot"),
    "float_tolerance": _Defect("drop", "the statement allows a larger error than the comparison can"),
    "comparison_set": _Defect("mark", "answers are compared by the statement's own rule, which was set"),
    # The tests by themselves.
    "nothing_to_validate": _Defect("drop", "the problem has no tests: its environment decides"),
    "input_too_large": _Defect("drop", "a test's input is larger than the bound"),
    "output_too_large": _Defect("drop", "a test's expected output is larger than the bound"),
    "tests_too_large": _Defect("drop", "all tests together are larger than the bound"),
    "truncated_tests": _Defect("drop", "the text of a test is truncated, as on web pages"),
    "line_ends": _Defect("mark", "an input has CRLF line ends or a byte order mark"),
    "contradictory_tests": _Defect("drop", "two tests give the same input and expect different outputs"),
    "shared_tests": _Defect("drop", "the same tests are in many other problems"),
    "mixed_kinds": _Defect("drop", "functions and standard input are mixed up in the tests"),
    "duplicate_tests": _Defect("mark", "a test occurs twice"),
    "few_tests": _Defect("mark", "fewer tests than the policy requires"),
    "sample_tests_only": _Defect("mark", "every test is in the statement"),
    "constant_output": _Defect("mark", "all tests expect the same"),
    "empty_output": _Defect("mark", "a test expects no output at all"),
    # Found by running the references.
    "missing_package": _Defect("drop", "no reference is accepted, and one needs a missing package"),
    "python2_reference": _Defect("drop", "no reference is accepted, and one is written in Python 2"),
    "reference_too_slow": _Defect("drop", "every reference that is not wrong exceeds its time"),
    "wrong_test": _Defect("drop", "all references fail the same test, and pass others"),
    "reference_fails": _Defect("drop", "no reference is accepted"),
    "flaky": _Defect("drop", "a reference is accepted in one run and not in another"),
    "references_differ": _Defect("mark", "references that are right elsewhere disagree about a test"),
    "reference_removed": _Defect("mark", "a reference that fails was removed; others are accepted"),
    "no_reference": _Defect("mark", "nothing confirms the tests"),
    "inseparable_tests": _Defect("drop", "the tests need one interpreter with the program, and a reference"),
    "needs_shared_interpreter": _Defect("mark", "its verdicts can be forged: no reward unless allowed"),
    # The strength of the tests.
    "too_few_to_judge": _Defect("drop", "so few tests that a program which solves nothing passes them"),
    "trivial_program_passes": _Defect("drop", "a program that solves nothing passes every test"),
    "wrong_program_passes": _Defect("mark", "a program known to be wrong passes every test"),
    "weak_tests": _Defect("mark", "too many mutants of the reference pass every test"),
    # No result.
    "not_judged": _Defect("mark", "the judge failed, or a language is missing: there is no verdict"),
}

# Defects that make the check of a set fail: its tests or programs are not valid.
FAILS_CHECK = frozenset(
    {
        *(reason for reason, known in REASONS.items() if known.treatment == "drop"),
        *("references_differ", "reference_removed", "wrong_program_passes", "not_judged"),
    }
)


def check_reason(name: str) -> None:
    """Raise UserError for an unknown reason."""
    if name not in REASONS:
        raise UserError(f"unknown reason `{name}`{did_you_mean(name, REASONS)} (known: {', '.join(REASONS)})")


def by_weight(flags: Iterable[DefectFlag]) -> list[DefectFlag]:
    """Return the flags in the order of ``REASONS``, one for each reason with joined details."""
    details: dict[str, list[str]] = {}
    for flag in flags:
        details.setdefault(flag.reason, []).append(flag.detail)
    return [DefectFlag(reason, "; ".join(details[reason])) for reason in REASONS if reason in details]
