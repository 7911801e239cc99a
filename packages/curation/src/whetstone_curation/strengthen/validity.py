"""The inputs that the validator of a problem accepts. It runs in the sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whetstone.core.problem import CallCase, CallTests, Limits
from whetstone_curation.input_validator import InputValidator
from whetstone_curation.strengthen.answers import Answers
from whetstone_curation.strengthen.forms import TestForm

_FUNCTION = "valid"


def valid_inputs(
    validator: InputValidator, inputs: Sequence[list[Any]], form: TestForm, answers: Answers, limits: Limits
) -> list[list[Any]]:
    """Return the inputs that the validator accepts."""
    texts = [form.input_text(arguments) for arguments in inputs]
    if any(text is not None for text in texts):
        valid = set[int]()
        for given in validator.arguments or [[]]:
            rest = [(at, text) for at, text in enumerate(texts) if text is not None and at not in valid]
            accepted = answers.accepted(validator.program, [text for _, text in rest], limits, given)
            valid |= {at for (at, _), fine in zip(rest, accepted, strict=True) if fine}
        return [inputs[at] for at in sorted(valid)]
    calls = [CallCase(None, arguments) for arguments in inputs]
    values = answers.returned(validator.source, CallTests(calls, _FUNCTION), calls, limits) if calls else []
    return [arguments for arguments, value in zip(inputs, values, strict=True) if value is True]
