"""The sandboxes of one judge worker. Each is started when it is first needed.

Programs and test code never share a fork-server, so they share no memory. Each role has separate sandboxes
for Python code, for Python code that imports certain packages, and for executed programs. Compilers have a
sandbox in which no program ever runs. If program and test code must share an interpreter, they have another
fork-server, which runs nothing else.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from whetstone.core.closing import Closing
from whetstone.core.errors import SandboxUnavailable
from whetstone.judge.environments.environment import PackageEnvironment, default_environment
from whetstone.judge.environments.preload import fork_server_for, python_profile
from whetstone.judge.languages.artifacts import ArtifactStore
from whetstone.judge.languages.toolchains import toolchain_paths
from whetstone.judge.options import HASH_SEED
from whetstone.sandbox import LostTime, Profile, RunLimits, Sandbox, SandboxFault, SandboxJob, Tier

_ENTRY = Path(__file__).parent / "rpc" / "entry.py"
_COMPILER_BYTES = 256 << 20
_KIT_BYTES = 1 << 30
# If a package ends the fork-server in each of these attempts to preload it, programs import it themselves.
_MAX_PRELOAD_ATTEMPTS = 2


class SandboxRole(StrEnum):
    """Whose code a sandbox runs."""

    PROGRAM = "program"
    """The program, which reads standard input or is called with plain arguments."""
    CALLED_BY_TESTS = "called_by_tests"
    """The program, called by test code."""
    QUERIED_BY_JUDGE = "queried_by_judge"
    """The program, called by the judge itself."""
    TESTS = "tests"
    """Test code, checkers and interactors."""
    SHARED = "shared"
    """Program and test code in one interpreter."""


# ``rpc/entry.py`` has the same table, by role.
_ROLES = {
    "call": SandboxRole.PROGRAM,
    "program": SandboxRole.CALLED_BY_TESTS,
    "program_server": SandboxRole.QUERIED_BY_JUDGE,
    "checker": SandboxRole.TESTS,
    "interactor": SandboxRole.TESTS,
    "tests": SandboxRole.TESTS,
    "shared_interpreter": SandboxRole.SHARED,
}


def harness_job(name: str, payload: bytes, limits: RunLimits, *, link: int | None = None) -> SandboxJob:
    """Return a job for the harness with this module name, in a sandbox of its role."""
    return SandboxJob(_ROLES[name], name.encode() + b"\n" + payload, limits, link=link)


CodeState = tuple[Sandbox | None, bytes, bytes]


class CompiledCode:
    """The compiled code of the last Python program, so that its next case is not compiled again.

    A process in which the program ran produced it, so it is not trusted. The worker keeps it as bytes, and
    only processes that run the program load it.
    """

    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None
        self._source = self._code = b""

    def get(self, sandbox: Sandbox, source: bytes) -> bytes:
        """Return the code of ``source`` as compiled in ``sandbox``, or empty bytes if it is not known."""
        return self._code if sandbox is self._sandbox and source == self._source else b""

    def store(self, sandbox: Sandbox, source: bytes, code: bytes) -> None:
        """Remember this code and forget the previous one."""
        self._sandbox, self._source, self._code = sandbox, source, code

    def state(self) -> CodeState:
        """Return the current state, for ``restore``."""
        return self._sandbox, self._source, self._code

    def restore(self, state: CodeState) -> None:
        """Return to an earlier state: a repeated run must not be able to tell that it is a repetition."""
        self._sandbox, self._source, self._code = state


class SandboxSet(Closing):
    """Owns the sandboxes and the output of compilers."""

    def __init__(
        self,
        minimum_tier: Tier,
        tier: Tier | None = None,
        *,
        environment: PackageEnvironment | None = None,
        stop_fd: int | None = None,
    ) -> None:
        """Start the sandbox for Python programs. Raises SandboxUnavailable.

        ``environment`` has the packages that all Python code may import (None: the default one). When
        ``stop_fd`` becomes readable, the current run is ended and SandboxStopped is raised.
        """
        self._stop_fd = stop_fd
        self.lost = LostTime()
        """The time that the machine took from the program. It must be reset for each program."""
        self.hash_seed = HASH_SEED
        """PYTHONHASHSEED of programs started from now on; checkers get a random one."""
        self.environment = environment or default_environment()
        self._python = python_profile(self.environment)
        self.programs = Sandbox(
            {SandboxRole.PROGRAM.value: _ENTRY},
            profile=replace(self._python, hash_seed=HASH_SEED),
            tier=tier,
            minimum_tier=minimum_tier,
            stop_fd=stop_fd,
            lost=self.lost,
        )
        self.artifacts = ArtifactStore.for_user()
        self.probed_languages: set[str] = set()
        """Languages in which a program has been compiled and run successfully on this machine."""
        self.last_code = CompiledCode()
        self._others: dict[tuple[SandboxRole, str, int | None], Sandbox] = {}
        self._failed_to_load: Counter[str] = Counter()
        self._preload = tuple(self.environment.preload)

    @property
    def tier(self) -> Tier:
        """The isolation tier of all sandboxes."""
        return self.programs.tier

    def python(self, role: SandboxRole, *sources: str) -> Sandbox:
        """Return the sandbox for Python code, with the packages preloaded that a source seems to import."""
        loaded = fork_server_for(self._preload, sources)
        if loaded and self._failed_to_load[loaded] < _MAX_PRELOAD_ATTEMPTS:
            try:
                return self._get_or_start(role, python_profile(self.environment, loaded))
            except SandboxFault:
                self._failed_to_load[loaded] += 1
                raise
        usual = role is SandboxRole.PROGRAM and self.hash_seed == HASH_SEED
        return self.programs if usual else self._get_or_start(role, self._python)

    def native(self, role: SandboxRole, *, processes: bool) -> Sandbox:
        """Return the sandbox for executed programs. They may start threads, and ``processes`` if set."""
        name = "shell" if processes else "native"
        return self._get_or_start(
            role, Profile(name, reads=toolchain_paths(), execute=True, processes=processes)
        )

    @property
    def compiler(self) -> Sandbox:
        """The sandbox for compilers only."""
        return self._get_or_start(SandboxRole.TESTS, self._compiler_profile("compiler", _COMPILER_BYTES))

    @contextmanager
    def kit_builder(self) -> Generator[Sandbox]:
        """Yield a sandbox in which a compiler prepares reusable files. No program is charged for the time."""
        profile = self._compiler_profile("kit builder", _KIT_BYTES)
        with (
            self._count_as_lost_time(),
            Sandbox({}, profile=profile, tier=self.tier, stop_fd=self._stop_fd) as box,
        ):
            yield box

    @contextmanager
    def _count_as_lost_time(self) -> Generator[None]:
        """Count the time of the block as lost, so that it is not part of the program's time."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.lost.seconds += time.monotonic() - began

    def _compiler_profile(self, name: str, tmp_bytes: int) -> Profile:
        return Profile(
            name,
            reads=toolchain_paths(),
            shown_as_kit=str(self.artifacts.kits or ""),
            execute=True,
            processes=True,
            proc=True,
            tmp_bytes=tmp_bytes,
        )

    def _get_or_start(self, role: SandboxRole, profile: Profile) -> Sandbox:
        # Test code keeps random hashes: a program that can predict them could choose keys that collide.
        if role is not SandboxRole.TESTS and not profile.execute:
            profile = replace(profile, hash_seed=self.hash_seed)
        found = self._others.get((role, profile.name, profile.hash_seed))
        if found is None:
            harnesses = {} if profile.execute else {role.value: _ENTRY}
            try:
                with self._count_as_lost_time():
                    found = Sandbox(
                        harnesses, profile=profile, tier=self.tier, stop_fd=self._stop_fd, lost=self.lost
                    )
            # The tier has started before, so the machine has a temporary fault.
            except SandboxUnavailable as error:
                raise SandboxFault(f"no fork-server for {profile.name}: {error}") from None
            self._others[role, profile.name, profile.hash_seed] = found
        return found

    def close(self) -> None:
        """End all sandboxes."""
        for sandbox in (self.programs, *self._others.values()):
            sandbox.close()
