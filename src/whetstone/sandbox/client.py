"""The interface of the sandbox: start a job, get its result."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from whetstone.core.closing import Closing
from whetstone.sandbox.cpu_starvation import LostTime
from whetstone.sandbox.fork_server import ForkServer, StartRefused
from whetstone.sandbox.job import RunResult, SandboxFault, SandboxJob, Tier
from whetstone.sandbox.run import SandboxRun
from whetstone.sandbox.supervision import supervise
from whetstone.sandbox.tiers import BUILTIN_HARNESSES, start_at, start_strongest, unavailable
from whetstone.sandbox.zygote.profile import PYTHON, Profile

_Run = TypeVar("_Run", bound=SandboxRun)


class Sandbox(Closing):
    """A fork-server with at most one run at a time. Not thread-safe."""

    def __init__(
        self,
        harnesses: Mapping[str, Path],
        *,
        profile: Profile = PYTHON,
        tier: Tier | None = None,
        minimum_tier: Tier = Tier.RESTRICTED,
        stop_fd: int | None = None,
        lost: LostTime | None = None,
    ) -> None:
        """Start the fork-server and test it with a run.

        ``harnesses`` maps names to Python files that import only the standard library; the builtin ``script``
        and ``execute`` always exist. ``profile`` states what programs may read, execute and import. ``tier``
        requires exactly that tier; None takes the strongest that works. The seconds that runs wait for a core
        are added to ``lost``. When ``stop_fd`` (owned by the caller) becomes readable, the current run ends
        and SandboxStopped is raised. Raises SandboxUnavailable if the machine does not offer the tier, and
        ValueError for a harness with the name of a builtin one.
        """
        if taken := BUILTIN_HARNESSES.keys() & harnesses.keys():
            raise ValueError(f"harness names {sorted(taken)} are builtin; choose others")
        self._harnesses = {**BUILTIN_HARNESSES, **harnesses}
        self._stop_fd, self._lost = stop_fd, lost
        self._profile = profile
        self._number = 0
        self._run: SandboxRun | None = None
        self._closed = False
        if tier is None:
            self._server = start_strongest(self._harnesses, minimum_tier, profile)
        elif tier < minimum_tier:
            raise unavailable(minimum_tier, {tier: f"asked for, but below the minimum {minimum_tier.label}"})
        else:
            try:
                self._server = start_at(tier, self._harnesses, profile)
            except StartRefused as refused:
                raise unavailable(tier, {tier: str(refused)}) from None
        self.tier = self._server.tier

    def start(self, job: SandboxJob) -> SandboxRun:
        """Start a job and return at once. ``supervise`` drives it to its end. For the rest see
        ``start_as``."""
        return self.start_as(SandboxRun, job)

    def start_as(self, kind: type[_Run], job: SandboxJob) -> _Run:
        """Start a job as a run of this class.

        Closes ``job.link`` once the child has it; after an error it still belongs to the caller. Raises
        SandboxFault if no fork-server can be started, RuntimeError while another run of this sandbox is
        active, and KeyError for an unknown harness.
        """
        if self._closed:
            raise RuntimeError("this sandbox is closed")
        if self._run is not None and not self._run.ended and self._server.alive:
            raise RuntimeError("a run of this sandbox has not ended yet; supervise it first")
        # Random, because the fork-server knows it when it forks, and so does the run.
        self._number = int.from_bytes(os.urandom(4), "little")
        if self._server.alive:
            try:
                self._run = run = kind(self._server, job, self._number, self._stop_fd, self._lost)
                return run
            except SandboxFault:
                self._server.kill()  # it died while idle and lost nothing: start a new one
        self._server = self._fresh_server()
        self._run = run = kind(self._server, job, self._number, self._stop_fd, self._lost)
        return run

    def _fresh_server(self) -> ForkServer:
        try:
            fresh = ForkServer(self.tier, self._harnesses, self._profile)
            fresh.loaded_bytes = self._server.loaded_bytes
            return fresh
        except StartRefused as refused:
            raise SandboxFault(f"no new fork-server could be started: {refused}") from None

    def run(self, job: SandboxJob) -> RunResult:
        """Run a job to its end."""
        return supervise([self.start(job)])[0]

    def close(self) -> None:
        """End the fork-server and its current run."""
        if self._closed:
            return
        self._closed = True
        if self._run is not None and not self._run.ended:
            self._run.close()
            self._server.kill()
        elif self._server.alive:
            self._server.close()
