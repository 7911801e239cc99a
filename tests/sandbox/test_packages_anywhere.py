"""Packages that a profile shows are found wherever they are installed, also beneath a folder of the jail."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from whetstone.sandbox import Profile, RunLimits, Sandbox, SandboxJob, Tier

PROGRAM = b"""
import shown
print(shown.VALUE)
try:
    import beside
except (ImportError, OSError):
    print("hidden")
"""


@pytest.mark.parametrize("parent", ["/tmp", "/var/tmp"])
def test_packages_are_found_wherever_they_are_installed(parent: str, tier: Tier) -> None:
    if not os.access(parent, os.W_OK):
        pytest.skip(f"{parent} cannot be written here")
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        os.chmod(folder, 0o755)  # the user of a tier has to reach it
        for name in ("shown", "beside"):
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "__init__.py").write_text(f"VALUE = {len(name)}\n")
        profile = Profile("packages", reads=[f"{folder}/shown"], imports=["shown"], import_from=[folder])
        with Sandbox({}, tier=tier, profile=profile) as sandbox:
            result = sandbox.run(SandboxJob("script", PROGRAM, RunLimits(5, 512 << 20, 1 << 16)))
    assert (result.stdout, result.stderr) == (b"5\nhidden\n", b"")
