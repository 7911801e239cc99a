"""Problems that a server was started with, by the name of their set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whetstone.errors import did_you_mean
from whetstone.judge_service.refusal import Refused
from whetstone.problem import Problem


class Datasets:
    """Sets of problems by name, and problems by id."""

    def __init__(self, sets: Mapping[str, Sequence[Problem]]) -> None:
        self._sets = {name: {problem.id: problem for problem in problems} for name, problems in sets.items()}

    def names(self) -> list[str]:
        """The sets there are."""
        return sorted(self._sets)

    def problems(self, name: str) -> list[Problem]:
        """The problems of a set, in their order. Raises Refused (400)."""
        return list(self._set(name).values())

    def problem(self, name: str, id: int | str) -> Problem:
        """One of them. Raises Refused: 400 for an unknown set, as in SandboxFusion, 404 for an unknown id."""
        found = self._set(name).get(str(id))
        if found is None:
            raise Refused(404, "no_such_problem", f"dataset {name[:100]!r} has no problem {str(id)[:100]!r}")
        return found

    def _set(self, name: str) -> dict[str, Problem]:
        if name not in self._sets:
            known = ", ".join(self._sets) or "none: start the server with --problems NAME=FILE"
            raise Refused(
                400,
                "no_such_dataset",
                f"no dataset {name[:100]!r}{did_you_mean(name[:100], self._sets)} (served here: {known}); "
                "tests can also come with the request, as config.provided_data",
            )
        return self._sets[name]
