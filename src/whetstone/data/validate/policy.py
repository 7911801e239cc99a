"""What validation requires of a problem, and the treatment of defects."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from whetstone.core.flag import Flag
from whetstone.core.settings import Count, Natural, Positive, Section, checked, read_settings
from whetstone.data.validate.reasons import REASONS, DefectFlag, Treatment, check_reason

Reason = Annotated[str, checked(check_reason)]


class Policy(Section):
    """Bounds and treatments. The other bounds are constants of the modules that use them.

    judge_attempts: attempts to judge a program, before it counts as not judged. trivial_programs: whether
    programs that solve nothing are tried.
    """

    TITLE: ClassVar[str] = "policy"

    fewest_tests: Annotated[Count, Flag("problems with fewer tests have the defect few_tests", "N")] = 5
    repeats: Annotated[Count, Flag("runs of each reference, to find flaky ones", "N")] = 2
    most_cpu_s: Annotated[
        Positive, Flag("limit of references, and the highest to which a problem's limit is raised", "S")
    ] = 15.0
    mutants: Annotated[Natural, Flag("mutants of a reference; 0 tries none", "N")] = 8
    drop: Annotated[
        tuple[Reason, ...], Flag("drop problems with this defect; repeatable", "REASON", repeat=True)
    ] = ()
    mark: Annotated[
        tuple[Reason, ...], Flag("only mark problems with this defect; repeatable", "REASON", repeat=True)
    ] = ()
    ignore: Annotated[tuple[Reason, ...], Flag("ignore this defect; repeatable", "REASON", repeat=True)] = ()
    judge_attempts: int = Field(default=3, ge=1)
    trivial_programs: bool = True

    @model_validator(mode="after")
    def _one_treatment(self) -> Self:
        treatment_of: dict[str, str] = {}
        for treatment in ("drop", "mark", "ignore"):
            for reason in getattr(self, treatment):
                if treatment_of.setdefault(reason, treatment) != treatment:
                    raise ValueError(f"{treatment} {reason}: {treatment_of[reason]} has it too; name it once")
        return self

    def treatment(self, reason: str) -> Treatment:
        """Return the treatment of a defect: that of the policy, or else the one of ``reasons``."""
        if reason in self.drop:
            return "drop"
        if reason in self.mark:
            return "mark"
        return "ignore" if reason in self.ignore else REASONS[reason].treatment

    def drops(self, flags: list[DefectFlag]) -> DefectFlag | None:
        """Return the first flag that drops its problem; None keeps it."""
        return next((flag for flag in flags if self.treatment(flag.reason) == "drop"), None)

    def with_values(self, **fields: Any) -> Policy:
        """Return the policy with other values. Raises UserError for invalid ones."""
        return read_settings(Policy, {**self.model_dump(), **fields}, where="policy")
