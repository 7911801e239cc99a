"""The identity of a run: its settings and its problems, whichever of their fields are set."""

from __future__ import annotations

from msgspec import structs

from whetstone.data.micro import micro_problems
from whetstone.rollout.identity import identity_of


def test_problems_without_optional_fields_have_an_identity() -> None:
    [problem] = micro_problems("train")[:1]
    plain = identity_of({"seed": 1}, [problem])
    assert plain == identity_of({"seed": 1}, [problem])
    assert plain != identity_of({"seed": 1}, [structs.replace(problem, environment="py312")])
