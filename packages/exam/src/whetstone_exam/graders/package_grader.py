"""A grader of another project as a target of ``whetstone exam``: a function over its installed package."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, Program

Form = Callable[[Problem, Program], str]
"""Returns why a grader has no form for a problem, or an empty string."""


class PackageGrader:
    """Calls ``score(problem, program)``, which imports the package and returns the grader's score."""

    def __init__(
        self,
        title: str,
        distribution: str,
        install: str,
        unsupported: Form,
        score: Callable[[Problem, Program], float],
    ) -> None:
        """title: the project's name. install: the command that installs the distribution."""
        self._title, self._distribution, self._install = title, distribution, install
        self.unsupported = unsupported
        self._score = score

    @property
    def version(self) -> str:
        """The project with the version of its package, which checkouts do not change.

        Raises UserError if it is not installed.
        """
        try:
            return f"{self._title} {version(self._distribution)}"
        except PackageNotFoundError:
            raise UserError(
                f"{self._distribution} is not installed: {self._install}, or name its interpreter with "
                "--python"
            ) from None

    def __call__(self, problem: Problem, program: Program) -> float:
        """Return the grader's score; 1 counts as accepted."""
        return self._score(problem, program)
