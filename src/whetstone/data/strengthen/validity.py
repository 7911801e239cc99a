"""The validator of a problem's inputs.

``meta.input_validator`` is a program, ``{"language": …, "source": …}``. For ``stdin`` tests it reads the
input and accepts it with exit code 0 or, as with Kattis, 42; for other tests it defines
``valid(*arguments)``. It runs in the sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from whetstone.core.problem import CallCase, CallTests, Limits, Problem, Program
from whetstone.data.strengthen.answers import Answers
from whetstone.data.strengthen.forms import TestForm

KEY = "input_validator"
_FUNCTION = "valid"


def validator_of(problem: Problem) -> Program | None:
    """Return the problem's validator of inputs; None if it has none that can be read."""
    try:
        return msgspec.convert(problem.meta[KEY], Program) if KEY in problem.meta else None
    except msgspec.ValidationError:
        return None


def valid_inputs(
    validator: Program, inputs: Sequence[list[Any]], form: TestForm, answers: Answers, limits: Limits
) -> list[list[Any]]:
    """Return the inputs that the validator accepts."""
    texts = [form.input_text(arguments) for arguments in inputs]
    if any(text is not None for text in texts):
        written = [
            (arguments, text) for arguments, text in zip(inputs, texts, strict=True) if text is not None
        ]
        accepted = answers.accepted(validator, [text for _, text in written], limits)
        return [arguments for (arguments, _), fine in zip(written, accepted, strict=True) if fine]
    calls = [CallCase(None, arguments) for arguments in inputs]
    verdicts = answers.returned(validator.source, CallTests(calls, _FUNCTION), calls, limits) if calls else []
    return [arguments for arguments, value in zip(inputs, verdicts, strict=True) if value is True]
