"""The options of a validation."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import model_validator

from whetstone.core.flag import Flag
from whetstone.core.settings import Count, Natural, NonEmpty, Section
from whetstone.data.validate.policy import Policy, Reason, read_policy


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
