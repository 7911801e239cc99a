"""The tests marked ``isolation`` once more: as an ordinary user, and where namespaces are refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lesser_rights import EXPECTED_TIER

from whetstone.errors import SandboxUnavailable
from whetstone.sandbox import Sandbox, Tier, detect_tier

LAUNCHER = Path(__file__).parent / "lesser_rights.py"
AREAS = ("tests/sandbox", "tests/judge", "tests/isolation")
ENOUGH_S = 1700


def run_marked(namespaces: str, tier: Tier, *more: str) -> None:
    """Run the marked tests with these rights; all must pass, with this tier the strongest."""
    try:
        Sandbox({}, tier=tier).close()
    except SandboxUnavailable as refused:
        pytest.skip(str(refused))
    finished = subprocess.run(
        [sys.executable, str(LAUNCHER), namespaces, "-m", "isolation", "-rfE", *more, *AREAS],
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
    assert int(passed[1]) > 50, said


def test_an_ordinary_user_passes_the_same_tests() -> None:
    if os.geteuid() != 0:
        pytest.skip("this suite is run by one")
    run_marked("allowed", Tier.USERNS, "-k", "not restricted")


def test_with_namespaces_refused_the_same_tests_pass() -> None:
    run_marked("refused", Tier.RESTRICTED)


@pytest.mark.isolation
@pytest.mark.skipif(EXPECTED_TIER not in os.environ, reason="run by the tests above")
def test_the_strongest_tier_is_the_one_that_is_left() -> None:
    assert detect_tier().label == os.environ[EXPECTED_TIER]
