"""What validation requires of a problem, and the treatment of defects.

A policy file is YAML with any of the fields of ``Policy``:

    fewest_tests: 8
    mutants: 20
    treatments: {few_tests: drop, several_answers: mark, image_in_statement: ignore}
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field

from whetstone.core.errors import UserError
from whetstone.core.settings import Section, checked, read_settings
from whetstone.core.yaml_text import parse_yaml
from whetstone.data.validate.reasons import REASONS, DefectFlag, Treatment, check_reason

Reason = Annotated[str, checked(check_reason)]


class Policy(Section):
    """Bounds and treatments. Sizes are in MB of 2^20 bytes of UTF-8, times in CPU seconds."""

    treatments: dict[Reason, Treatment] = Field(default_factory=dict[str, Treatment])
    """The treatment of defects that differs from ``reasons``: drop, mark or ignore."""

    # Statements.
    shortest_statement: int = Field(default=5, ge=0)
    """Fewest letters and digits of a statement."""
    shortest_beside_image: int = Field(default=80, ge=0)
    """Fewest letters and digits of a statement in addition to an image."""

    # Tests.
    fewest_tests: int = Field(default=5, ge=1)
    largest_input_mb: float = Field(default=8.0, gt=0)
    largest_output_mb: float = Field(default=8.0, gt=0)
    largest_tests_mb: float = Field(default=64.0, gt=0)
    shared_problems: int = Field(default=6, ge=2)
    """A test is suspicious if it is in this many problems of a source, ..."""
    shared_share: float = Field(default=0.05, gt=0, le=1)
    """... and in this share of them. ..."""
    shared_tests: int = Field(default=3, ge=1)
    """... A problem with this many suspicious tests has tests of other problems."""

    # References.
    repeats: int = Field(default=2, ge=1)
    """Runs of every reference. A reference with differing verdicts is flaky."""
    hash_seeds: int = Field(default=8, ge=1)
    """Runs of a Python reference that makes sets, whose order differs in each run."""
    judge_attempts: int = Field(default=3, ge=1)
    """Attempts to judge a program, before it counts as not judged."""
    cpu_factor: float = Field(default=4.0, ge=1)
    """The time limit is at least this multiple of the slowest reference's time, ..."""
    most_cpu_s: float = Field(default=15.0, gt=0)
    """... up to this, or the problem's own limit if it is larger. References run under this limit."""
    memory_factor: float = Field(default=2.0, ge=1)
    most_memory_mb: float = Field(default=2048.0, gt=0)

    # Strength.
    mutants: int = Field(default=8, ge=0)
    """Mutants of the first accepted Python reference; 0 tries none."""
    weakest: float = Field(default=0.5, ge=0, le=1)
    """The share of mutants that the tests must reject, if at least ``fewest_mutants`` were tried."""
    fewest_mutants: int = Field(default=4, ge=1)
    trivial_programs: bool = True
    """Try programs that solve nothing."""
    seed: int = 0

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
