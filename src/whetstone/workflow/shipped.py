"""The workflows that ship, by name, and their options. Torch-free."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from whetstone.settings import NonEmpty, Section
from whetstone.workflow.feedback import Detail

SINGLE_TURN = "single_turn"
REPAIR = "repair"
CODEGEN_VERIFIER = "codegen_verifier"
POLICY = "policy"
"""The name of the model of a run that has one."""
CODER, VERIFIER = "coder", "verifier"

VERIFIER_PROMPT = """{statement}

This program is meant to solve the problem:

```python
{program}
```

Find out whether it is right: write exactly {count} test cases, with inputs that the problem allows and the
outputs that a right program gives for them. A good case is one that a wrong program fails. Take no example
of the problem, and no input twice. Reply with one JSON object in a json code block, of this form:

{form}
"""


class RepairOptions(Section):
    """A refused program is mended, with feedback from the tests.

    turns: replies of an episode, at most. detail: ``cases`` tells which tests failed and how, ``verdict`` the
    verdict alone; expected values are in neither. again: what is said to a refused program; ``{feedback}`` is
    filled in. discount: each turn after the first multiplies a reward above 0 by it.
    """

    turns: Annotated[int, Field(ge=2, le=16)] = 2
    detail: Detail = "cases"
    again: NonEmpty = "{feedback}\n\nThe program is not right yet. Mend it, and reply with all of it again."
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0

    @field_validator("again")
    @classmethod
    def _tells(cls, again: str) -> str:
        if "{feedback}" not in again:
            raise ValueError("say where `{feedback}` stands: without it the model mends blindly")
        return again


class VerifierOptions(Section):
    """One model writes programs, another one the cases that test them; see docs/workflows.md.

    variant: ``v3``, or ``astraflow_v2``, the rules that AstraFlow's recipe runs with. valid_pays: v3 only,
    what valid cases earn that tell nothing; those that tell earn 1. cases: how many cases a reply has.
    max_bytes: of all its cases. strip_examples: the verifier does not see the examples of the statement.
    known_wrong: so many wrong programs, of the problem and of the coder's, are tried by cases that approve a
    right one. prompt: what the verifier is asked; filled in are ``{statement}``, ``{program}``, ``{count}``
    and ``{form}``. prefix: its reply is given this to start with. again: what the coder is told of cases that
    its program fails, ``{cases}``.
    """

    variant: Literal["v3", "astraflow_v2"] = "v3"
    valid_pays: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    cases: Annotated[int, Field(ge=1, le=16)] = 2
    max_bytes: Annotated[int, Field(ge=64, le=1_000_000)] = 20_000
    strip_examples: bool = True
    known_wrong: Annotated[int, Field(ge=0, le=32)] = 8
    prompt: NonEmpty = VERIFIER_PROMPT
    prefix: str = ""
    again: NonEmpty = "{cases}\n\nThe program fails these tests. Mend it, and reply with all of it again."

    @field_validator("prompt")
    @classmethod
    def _asks(cls, prompt: str) -> str:
        if "{statement}" not in prompt:
            raise ValueError("say where `{statement}` stands: without it nobody can write cases")
        return prompt

    @model_validator(mode="after")
    def _pays(self) -> VerifierOptions:
        if self.variant != "v3" and self.valid_pays != 0.5:
            raise ValueError("`valid_pays` is of `variant: v3`; the other one pays 1 for valid cases")
        return self


OPTIONS: dict[str, type[Section]] = {REPAIR: RepairOptions, CODEGEN_VERIFIER: VerifierOptions}
"""The options of each workflow that has some."""

NAMES = (SINGLE_TURN, *OPTIONS)
