"""Fixtures of the exam's tests."""

from __future__ import annotations

import pytest

from whetstone.core.errors import UserError
from whetstone_exam.exam.protection import check_protection


@pytest.fixture(scope="session")
def protection(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip the test on a machine that cannot protect itself from graders."""
    try:
        check_protection(str(tmp_path_factory.mktemp("protection")))
    except UserError as error:
        pytest.skip(str(error))
