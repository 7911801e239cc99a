"""Programs that know which run they are in, as no program can: what they do in each run is planned.

A stand-in for the judge's sandboxes counts the runs of a program and writes the number into its text. A plan
has an entry for each run, with an action for each case; the last entry stands for all runs after it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.beside import data_beside
from tests.judge.judge_processes import ENOUGH_S, waiting_mb
from whetstone.judge.sandboxes import SandboxRole, SandboxSet
from whetstone.sandbox import EndReason, RunResult, Sandbox, SandboxJob, Tier, supervise
from whetstone.sandbox.run import SandboxRun
from whetstone.sandbox.zygote import wire

DATA = data_beside(__file__)

NUMBER = re.compile(rb"run-\d{4}")
SANDBOX_DIES, TESTS_DIE = "sandbox dies", "tests die"
SIZES_MB = {SANDBOX_DIES: 100, TESTS_DIE: 150}
"""How large a program is that waits for this to happen: nothing else below a fork-server is, asleep."""
WAITS = {action: f"x = b'x' * ({size} << 20)\ntime.sleep(100)" for action, size in SIZES_MB.items()}
# What a program does in one run; ``later``: once it has answered, when it would read what comes then.
DOES: dict[str, str] = {
    "crash": "raise ValueError('crash')",
    "exit": "os._exit(0)",
    "abort": "os.abort()",
    "spin": "while True: pass",
    # At once: filling memory costs CPU time, and which limit comes first is then a matter of chance.
    "memory": "kept = bytearray(1 << 44)",
    "flood": "while True: os.write(1, b'x' * 60000)",
    "close": "os.closerange(3, 64)",
    **WAITS,
}
LATER = {
    f"wrong, then {name}": DOES[name] for name in ("spin", "exit", "abort", "memory", "close", SANDBOX_DIES)
}
HEAD = DATA["head"]
Plan = Sequence[tuple[str, ...]]


def knowing(plan: Plan, body: str, link: int = wire.LINK_FD) -> str:
    """A program whose ``body`` answers with ``act(case, given)``; what it hears comes from ``link``."""
    tables = f"DOES, LATER, LINK = {DOES!r}, {LATER!r}, {link}\n"
    return HEAD.format(plan=[list(entry) for entry in plan]) + tables + body


class KnowingBoxes(SandboxSet):
    """Sandboxes whose programs learn the number of their run."""

    def __init__(self, tier: Tier) -> None:
        super().__init__(tier, tier)
        self._around: dict[int, Any] = {}
        self._runs = 0
        self._plan: Plan = []
        self.tested: SandboxRun | None = None
        self.story: list[_Part] = []

    def follow(self, plan: Plan) -> None:
        """The next program follows this plan, from its first run on."""
        self.join_killers()
        self._plan, self._runs, self.story = plan, 0, []

    @property
    def followed(self) -> bool:
        """Whether it went by the plan: on a busy machine a clock may run out before the killer comes."""
        return not any(part.missed_its_killer for part in self.story)

    def python(self, role: SandboxRole, *sources: str) -> Any:
        """The same, around which runs are counted."""
        box = super().python(role, *sources)
        return self._around.setdefault(id(box), _Around(box, self))

    def numbered(self, job: SandboxJob) -> tuple[SandboxJob, tuple[str, ...]]:
        """The job with its run's number, and what the plan has for it; nothing for other programs."""
        if not NUMBER.search(job.payload):
            return job, ()
        self._runs += 1
        number = b"run-%04d" % self._runs
        entry = self._plan[min(self._runs, len(self._plan)) - 1]
        return replace(job, payload=NUMBER.sub(number, job.payload)), entry

    def begins(self, run: SandboxRun, entry: tuple[str, ...]) -> _Part:
        """A run of the program by its entry, or of what is beside it."""
        part = _Part(run, entry)
        self.story.append(part)
        # A program starts before its tests; until they do, there are none to kill.
        self.tested = None if entry else run
        return part

    def join_killers(self) -> None:
        """Until nobody waits any more to kill a run that is over, and would take the next one for it."""
        for part in self.story:
            for killer in part.killers:
                if part.run.ended or not part.run.server.alive:
                    killer.join(ENOUGH_S)
                    assert not killer.is_alive(), "a killer was left behind"


@dataclass
class _Part:
    """A run, the plan's entry for it where it is one of the program, and who is to end it."""

    run: SandboxRun
    entry: tuple[str, ...]
    killers: list[threading.Thread] = field(default_factory=list)

    @property
    def missed_its_killer(self) -> bool:
        """Whether a clock ended it that the plan knows nothing of."""
        clocks = {EndReason.CPU_LIMIT, EndReason.WALL_LIMIT, EndReason.STARVED}
        awaited = self.killers and self.run.ended and not any("spin" in action for action in self.entry)
        return bool(awaited) and self.run.result().ended in clocks

    def __repr__(self) -> str:
        end = self.run.result() if self.run.ended else "its fork-server died"
        return f"{self.entry}: {end}"


class _Around:
    """A sandbox, with what happens to it by plan."""

    def __init__(self, box: Sandbox, boxes: KnowingBoxes) -> None:
        self._box, self._boxes = box, boxes

    def start(self, job: SandboxJob) -> SandboxRun:
        job, entry = self._boxes.numbered(job)
        if entry:
            self._boxes.join_killers()
        struck = [action for action in set(entry) if SANDBOX_DIES in action or action == TESTS_DIE]
        part = self._boxes.begins(self._box.start(job), entry)
        for action in struck:
            part.killers.append(threading.Thread(target=self._strike, args=(part.run, action), daemon=True))
            part.killers[-1].start()
        return part.run

    def run(self, job: SandboxJob) -> RunResult:
        return supervise([self.start(job)])[0]

    def _strike(self, run: SandboxRun, action: str) -> None:
        """Once the program waits for it, which shows by its size: of all below its own fork-server alone, for
        those of other tests may be as large. Each end has a size of its own: where each case has a run, the
        plan's entry may name both, and the other is not what this run waits for."""
        size = SIZES_MB[TESTS_DIE if action == TESTS_DIE else SANDBOX_DIES]
        server = run.server._process.pid  # pyright: ignore[reportPrivateUsage]
        while not run.ended and run.server.alive:
            if size <= waiting_mb(server) < size + 45:
                tested = self._boxes.tested
                victim = server if action != TESTS_DIE else tested.pid if tested is not None else 0
                # On a busy machine the supervisor may not have read yet which process it is.
                if victim > 0:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                    return
            threading.Event().wait(0.02)
