"""The sandboxes of one judge worker, each started when it is first needed.

Programs and test code never share a fork-server, so that no memory is shared. On either side Python
programs, Python programs that import certain packages of their environment, and executed programs have one
each; compilers have one where no program ever runs. Where program and test code must share an interpreter,
they have a fork-server apart from both.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from whetstone.errors import SandboxUnavailable
from whetstone.judge.environments.environment import Environment, default_environment
from whetstone.judge.environments.preload import loaded_ahead, python_profile
from whetstone.judge.languages.artifacts import ArtifactStore
from whetstone.judge.languages.toolchains import toolchain_paths
from whetstone.judge.options import HASH_SEED
from whetstone.sandbox import Job, LostTime, Profile, RunLimits, Sandbox, SandboxFault, Tier

_ENTRY = Path(__file__).parent / "harness" / "entry.py"
_COMPILER_BYTES = 256 << 20
_KIT_BYTES = 1 << 30
_TRIES = 2
"""Of loading a package ahead. One that ends the fork-server is left for its programs to import themselves."""


class Side(StrEnum):
    """Whose code a sandbox runs."""

    PROGRAM = "program"
    """The program to be judged, as it runs by itself or is given its arguments."""
    CALLED = "called"
    """The program to be judged, called by test code."""
    ASKED = "asked"
    """The program to be judged, called by the judge itself."""
    TESTS = "tests"
    """What judges it: test code, checkers, interactors."""
    SHARED = "shared"
    """Both in one interpreter."""


# The entry loads what it is called by: see there.
_SIDES = {
    "call": Side.PROGRAM,
    "program": Side.CALLED,
    "asked": Side.ASKED,
    "checker": Side.TESTS,
    "interactor": Side.TESTS,
    "tests": Side.TESTS,
    "shared": Side.SHARED,
}


def harness_job(
    name: str, payload: bytes, limits: RunLimits, *, stdin: bytes = b"", link: int | None = None
) -> Job:
    """A job for one of the judge's harnesses, by its module's name, in a sandbox of the harness's side."""
    return Job(_SIDES[name], name.encode() + b"\n" + payload, limits, stdin, link)


CodeState = tuple[Sandbox | None, bytes, bytes]


class LastCode:
    """The compiled code of the Python program that ran last: its next case need not compile it again.

    It came out of a process in which a program ran, so it is bytes here, and loaded in such ones alone.
    """

    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None
        self._source = self._code = b""

    def of(self, sandbox: Sandbox, source: bytes) -> bytes:
        """The code of ``source`` as it was compiled in ``sandbox``; empty when it is not known."""
        return self._code if sandbox is self._sandbox and source == self._source else b""

    def keep(self, sandbox: Sandbox, source: bytes, code: bytes) -> None:
        """Remember this one alone."""
        self._sandbox, self._source, self._code = sandbox, source, code

    def state(self) -> CodeState:
        """What is known now, for ``restore``."""
        return self._sandbox, self._source, self._code

    def restore(self, state: CodeState) -> None:
        """Know what was known then: a run that is made again must not look like a later one."""
        self._sandbox, self._source, self._code = state


class Boxes:
    """Owns the sandboxes, and what compilers made for them."""

    def __init__(
        self,
        minimum_tier: Tier,
        tier: Tier | None = None,
        *,
        environment: Environment | None = None,
        stop_fd: int | None = None,
    ) -> None:
        """Start the sandbox for Python programs. Raises SandboxUnavailable.

        ``environment`` has the packages that all Python code may import (None: the default one). When
        ``stop_fd`` becomes readable, whatever runs is ended and Stopped raised.
        """
        self._stop_fd = stop_fd
        self.lost = LostTime()
        """What the machine took from the program that is judged; to be set to zero for each."""
        self.hash_seed = HASH_SEED
        """Of the Python programs that run from now on; who judges them has hashes that nobody knows."""
        self.environment = environment or default_environment()
        self._python = python_profile(self.environment)
        self.programs = Sandbox(
            {Side.PROGRAM.value: _ENTRY},
            profile=replace(self._python, hash_seed=HASH_SEED),
            tier=tier,
            minimum_tier=minimum_tier,
            stop_fd=stop_fd,
            lost=self.lost,
        )
        self.artifacts = ArtifactStore.of_user()
        self.proved: set[str] = set()
        """Languages in which a program was seen to compile and run here."""
        self.last_code = LastCode()
        self._others: dict[tuple[Side, str, int | None], Sandbox] = {}
        self._failed_to_load: Counter[str] = Counter()
        self._preload = tuple(self.environment.preload)

    @property
    def tier(self) -> Tier:
        """The isolation that holds the programs, and everything else."""
        return self.programs.tier

    def python(self, side: Side, *sources: str) -> Sandbox:
        """The sandbox for Python code, with the packages loaded that a source seems to import."""
        loaded = loaded_ahead(self._preload, sources)
        if loaded and self._failed_to_load[loaded] < _TRIES:
            try:
                return self._other(side, python_profile(self.environment, loaded))
            except SandboxFault:
                self._failed_to_load[loaded] += 1
                raise
        usual = side is Side.PROGRAM and self.hash_seed == HASH_SEED
        return self.programs if usual else self._other(side, self._python)

    def native(self, side: Side, *, processes: bool) -> Sandbox:
        """The sandbox in which executed programs run, with threads alone or with ``processes``."""
        name = "shell" if processes else "native"
        return self._other(side, Profile(name, reads=toolchain_paths(), execute=True, processes=processes))

    @property
    def compiler(self) -> Sandbox:
        """The sandbox in which compilers run, and nothing else."""
        return self._other(Side.TESTS, self._compiler_profile("compiler", _COMPILER_BYTES))

    @contextmanager
    def kit_builder(self) -> Generator[Sandbox]:
        """A sandbox in which a compiler may write what it prepares once. No program is charged for that."""
        profile = self._compiler_profile("kit builder", _KIT_BYTES)
        with (
            self._not_the_programs(),
            Sandbox({}, profile=profile, tier=self.tier, stop_fd=self._stop_fd) as box,
        ):
            yield box

    @contextmanager
    def _not_the_programs(self) -> Generator[None]:
        """The time that this takes is lost for the program that is judged."""
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

    def _other(self, side: Side, profile: Profile) -> Sandbox:
        if side is not Side.TESTS and not profile.execute:
            profile = replace(profile, hash_seed=self.hash_seed)
        found = self._others.get((side, profile.name, profile.hash_seed))
        if found is None:
            harnesses = {} if profile.execute else {side.value: _ENTRY}
            try:
                with self._not_the_programs():
                    found = Sandbox(
                        harnesses, profile=profile, tier=self.tier, stop_fd=self._stop_fd, lost=self.lost
                    )
            except SandboxUnavailable as error:  # the tier did start: this machine is in trouble
                raise SandboxFault(f"no fork-server for {profile.name}: {error}") from None
            self._others[side, profile.name, profile.hash_seed] = found
        return found

    def close(self) -> None:
        """End all."""
        for sandbox in (self.programs, *self._others.values()):
            sandbox.close()

    def __enter__(self) -> Boxes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
