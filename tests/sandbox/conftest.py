"""Every test that takes ``sandbox`` runs on each isolation tier that this machine offers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tiers import ALL_TIERS, skip_unless_offered
from whetstone.sandbox import RunLimits, RunResult, Sandbox, SandboxJob, Tier

HARNESS = """
import os, socket

def main(payload, result_fd, link_fd):
    if payload == b"echo":  # answers what comes through the link until it ends
        while data := os.read(link_fd, 4096):
            os.write(link_fd, data.upper())
        os.write(result_fd, b"link ended")
    elif payload == b"ask":
        os.write(link_fd, b"hello")
        os.write(result_fd, os.read(link_fd, 4096))
    elif payload == b"hear":
        os.write(result_fd, b"got " + os.read(link_fd, 4096))
    elif payload == b"spin":
        while True: pass
    elif payload == b"return":
        os.write(result_fd, b"returned")
"""


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("harness") / "linked.py"
    path.write_text(HARNESS)
    return path


@pytest.fixture(scope="session", params=ALL_TIERS)
def tier(request: pytest.FixtureRequest) -> Tier:
    skip_unless_offered(request.param)
    return request.param


@pytest.fixture(scope="session")
def sandbox(tier: Tier, harness: Path) -> Iterator[Sandbox]:
    with Sandbox({"linked": harness}, tier=tier) as sandbox:
        yield sandbox


@pytest.fixture
def run(sandbox: Sandbox) -> Callable[..., RunResult]:
    def run(
        source: str,
        stdin: bytes = b"",
        *,
        cpu_s: float = 30.0,
        memory_mb: int = 512,
        output_bytes: int = 1 << 20,
        wall_s: float | None = None,
    ) -> RunResult:
        limits = RunLimits(cpu_s, memory_mb << 20, output_bytes, wall_s)
        return sandbox.run(SandboxJob("script", source.encode(), limits, stdin=stdin))

    return run
