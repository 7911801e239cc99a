"""The sandboxes of one judge worker: one for programs, and one that programs never see, for test code."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from whetstone.sandbox import Job, RunLimits, Sandbox, Tier

HARNESS = "judge"
_HARNESSES = {HARNESS: Path(__file__).parent / "harness" / "entry.py"}


def harness_job(
    name: str, payload: bytes, limits: RunLimits, *, stdin: bytes = b"", link: int | None = None
) -> Job:
    """A job for one of the judge's harnesses: ``call``, ``checker``, ``program`` or ``tests``."""
    return Job(HARNESS, name.encode() + b"\n" + payload, limits, stdin, link)


class Boxes:
    """Owns both sandboxes. The one for test code starts when it is first needed."""

    def __init__(self, minimum_tier: Tier, tier: Tier | None = None, *, stop_fd: int | None = None) -> None:
        """Start the sandbox for programs. Raises SandboxUnavailable.

        When ``stop_fd`` becomes readable, whatever runs is ended and Stopped raised.
        """
        self._stop_fd = stop_fd
        self.programs = Sandbox(_HARNESSES, tier=tier, minimum_tier=minimum_tier, stop_fd=stop_fd)
        self._tests: Sandbox | None = None

    @property
    def tier(self) -> Tier:
        """The isolation that holds the programs, and the test code too."""
        return self.programs.tier

    @property
    def tests(self) -> Sandbox:
        """The sandbox for test code and checkers: a fork-server of its own, so no memory is shared."""
        if self._tests is None:
            self._tests = Sandbox(_HARNESSES, tier=self.tier, stop_fd=self._stop_fd)
        return self._tests

    def close(self) -> None:
        """End both."""
        self.programs.close()
        if self._tests is not None:
            self._tests.close()

    def __enter__(self) -> Boxes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
