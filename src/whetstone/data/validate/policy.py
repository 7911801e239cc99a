"""What validation requires of a problem, and the treatment of defects.

A policy file is YAML with any of the fields of ``Policy``:

    fewest_tests: 8
    mutants: 20
    treatments: {few_tests: drop, several_answers: mark, image_in_statement: ignore}
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import yaml
from pydantic import Field, model_validator

from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.settings import Count, Natural, NonEmpty, Section, checked, read_settings
from whetstone.core.yaml_text import parse_yaml
from whetstone.data.validate.reasons import REASONS, DefectFlag, Treatment, check_reason

Reason = Annotated[str, checked(check_reason)]


class Policy(Section):
    """Bounds and treatments. The other bounds are constants of the modules that use them."""

    treatments: dict[Reason, Treatment] = Field(default_factory=dict[str, Treatment])
    """The treatment of defects that differs from ``reasons``: drop, mark or ignore."""
    fewest_tests: int = Field(default=5, ge=1)
    repeats: int = Field(default=2, ge=1)
    """Runs of every reference. A reference with differing verdicts is flaky."""
    judge_attempts: int = Field(default=3, ge=1)
    """Attempts to judge a program, before it counts as not judged."""
    most_cpu_s: float = Field(default=15.0, gt=0)
    """References run under this limit in CPU seconds, or under the problem's own if it is larger. The
    problem's limit is not raised further."""
    mutants: int = Field(default=8, ge=0)
    """Mutants of the first accepted Python reference; 0 tries none."""
    trivial_programs: bool = True
    """Try programs that solve nothing."""

    def treatment(self, reason: str) -> Treatment:
        """Return the treatment of a defect."""
        return self.treatments.get(reason, REASONS[reason].treatment)

    def drops(self, flags: list[DefectFlag]) -> DefectFlag | None:
        """Return the first flag that drops its problem; None keeps it."""
        return next((flag for flag in flags if self.treatment(flag.reason) == "drop"), None)

    def with_values(self, **fields: Any) -> Policy:
        """Return the policy with other values. Raises UserError for invalid ones."""
        return read_settings(Policy, {**self.model_dump(), **fields}, where="policy")


def read_policy(path: str | Path) -> Policy:
    """Read a policy from a YAML file. Raises UserError with the invalid field."""
    try:
        value: Any = parse_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {error}; give a YAML file such as `fewest_tests: 8`") from None
    if value is not None and not isinstance(value, dict):
        raise UserError(f"{path}: not a mapping; give lines such as `fewest_tests: 8`")
    return read_settings(Policy, value or {}, where=str(path))


class ValidationSettings(Section):
    """A policy of a file, or the default one, with other values for some of its fields."""

    TITLE: ClassVar[str] = "policy"

    policy: Annotated[NonEmpty | None, Flag("bounds and treatments, as YAML", "FILE")] = None
    repeats: Annotated[Count | None, Flag("runs of each reference, to find flaky ones (default: 2)", "N")] = (
        None
    )
    mutants: Annotated[Natural | None, Flag("mutants of a reference; 0 tries none (default: 8)", "N")] = None
    drop: Annotated[
        tuple[Reason, ...], Flag("drop problems with this defect; repeatable", "REASON", repeat=True)
    ] = ()
    mark: Annotated[
        tuple[Reason, ...], Flag("only mark problems with this defect; repeatable", "REASON", repeat=True)
    ] = ()
    ignore: Annotated[tuple[Reason, ...], Flag("ignore this defect; repeatable", "REASON", repeat=True)] = ()

    @model_validator(mode="after")
    def _one_treatment(self) -> Self:
        treatment_of: dict[str, str] = {}
        for treatment in ("drop", "mark", "ignore"):
            for reason in getattr(self, treatment):
                if treatment_of.setdefault(reason, treatment) != treatment:
                    raise ValueError(f"{treatment} {reason}: {treatment_of[reason]} has it too; name it once")
        return self

    def read(self) -> Policy:
        """Return the policy. Raises UserError for a file that cannot be read."""
        policy = read_policy(self.policy) if self.policy else Policy()
        treatments = dict(policy.treatments)
        for treatment in ("drop", "mark", "ignore"):
            treatments |= dict.fromkeys(getattr(self, treatment), treatment)
        given = self.model_dump(include={"repeats", "mutants"}, exclude_none=True)
        return policy.with_values(treatments=treatments, **given)
