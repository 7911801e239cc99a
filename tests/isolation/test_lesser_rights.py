"""The tests marked ``isolation`` once more: as an ordinary user, and where namespaces are refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.isolation.lesser_rights import EXPECTED_TIER
from tests.tiers import skip_unless_offered
from whetstone.sandbox import Sandbox, Tier

pytestmark = pytest.mark.process

LAUNCHER = Path(__file__).parent / "lesser_rights.py"
TESTS = Path(__file__).parents[1]
MARKED = [str(file) for file in sorted(TESTS.glob("*/test_*.py")) if "mark.isolation" in file.read_text()]
# What proves the most in a short time: the walls of the sandbox, and its limits.
FEW = [
    file
    for file in MARKED
    if Path(file).name in ("test_containment.py", "test_limits.py", Path(__file__).name)
]
ENOUGH_S = 1700


def run_marked(namespaces: str, tier: Tier, which: str, *more: str, files: list[str] = MARKED) -> int:
    """Run the marked tests with these rights; all must pass, with this tier the strongest. How many did."""
    skip_unless_offered(tier)
    chosen = ["-m", f"isolation and not slow and {which}", "-rfE", *more, *files]
    finished = subprocess.run(
        [sys.executable, str(LAUNCHER), namespaces, *chosen],
        env={**os.environ, EXPECTED_TIER: tier.label},
        capture_output=True,
        text=True,
        timeout=ENOUGH_S,
        check=False,
    )
    said = finished.stdout[-6000:] + finished.stderr[-3000:]
    assert finished.returncode == 0, said
    passed = re.search(r"(\d+) passed", finished.stdout)
    assert passed is not None, said
    return int(passed[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="this suite is run by an ordinary user")
def test_an_ordinary_user_passes_a_few_tests() -> None:
    assert run_marked("allowed", Tier.USERNS, "not crowd and not extended", files=FEW) > 10


def test_with_namespaces_refused_a_few_tests_pass() -> None:
    assert run_marked("refused", Tier.RESTRICTED, "not crowd and not extended", files=FEW) > 10


@pytest.mark.extended
@pytest.mark.skipif(os.geteuid() != 0, reason="this suite is run by an ordinary user")
def test_an_ordinary_user_passes_the_same_tests() -> None:
    assert run_marked("allowed", Tier.USERNS, "not crowd", "-k", "not restricted") > 50


@pytest.mark.extended
def test_with_namespaces_refused_the_same_tests_pass() -> None:
    assert run_marked("refused", Tier.RESTRICTED, "not crowd") > 50


@pytest.mark.extended
@pytest.mark.crowd
@pytest.mark.skipif(os.geteuid() != 0, reason="this suite is run by an ordinary user")
def test_an_ordinary_user_passes_the_same_tests_in_a_crowd() -> None:
    assert run_marked("allowed", Tier.USERNS, "crowd", "-k", "not restricted") > 10


@pytest.mark.extended
@pytest.mark.crowd
def test_with_namespaces_refused_the_same_tests_pass_in_a_crowd() -> None:
    assert run_marked("refused", Tier.RESTRICTED, "crowd") > 3


@pytest.mark.isolation
@pytest.mark.skipif(EXPECTED_TIER not in os.environ, reason="run by the tests above")
def test_the_strongest_tier_is_the_one_that_is_left() -> None:
    with Sandbox({}) as sandbox:
        assert sandbox.tier.label == os.environ[EXPECTED_TIER]
