"""Many programs of known verdict through one judge at once: what it said, how fast, and what it left."""

from __future__ import annotations

import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from msgspec import Struct

from whetstone.judge import Judge, Judgement
from whetstone.stress.footprint import Process, Usage, family, left_over, traces, usage
from whetstone.stress.mix import Known

_WATCH_EVERY_S = 1.0
_GROWTH_BYTES = 16 << 20
"""How much more memory a process of the judge may hold after the second half than after the first half."""


class Difference(Struct, frozen=True):
    """A program that did not get the verdict it must get."""

    name: str
    expected: list[str]
    got: str
    reason: str


class Findings(Struct, frozen=True):
    """What a stress run showed.

    ``latency_p50_s`` and ``latency_p99_s`` run from handing a program over to its judgement, with two
    programs handed over for each worker at a time. ``program_cpu_s`` is the CPU time of the programs,
    ``tree_cpu_s`` that of the judge's whole process tree, programs included, without what processes that
    were killed had used. ``resident_bytes_half`` and ``resident_bytes_end`` are what the judge's
    processes held together half way and at the end, idle both times.
    """

    isolation: str
    workers: int
    programs: int
    cases: int
    seconds: float
    verdicts: dict[str, int]
    differences: list[Difference]
    latency_p50_s: float
    latency_p99_s: float
    program_cpu_s: float
    tree_cpu_s: float
    processes: int
    resident_bytes_half: int
    resident_bytes_end: int
    left: dict[str, list[str]]

    @property
    def grew(self) -> bool:
        """Whether the judge holds more memory than half way, beyond what is noise."""
        return self.resident_bytes_end - self.resident_bytes_half > _GROWTH_BYTES * self.workers

    @property
    def ok(self) -> bool:
        """Every verdict as it must be, nothing left over, no growth."""
        return not (self.differences or self.left or self.grew)


def stress(
    programs: list[Known],
    workers: int,
    *,
    tier: str | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Findings:
    """Judge ``programs`` on ``workers`` workers; ``on_progress`` gets the number of programs judged so far.

    Raises SandboxUnavailable when this machine cannot isolate (at ``tier``).
    """
    began = time.monotonic()
    with Load(workers, tier=tier, on_progress=on_progress) as load:
        half = len(programs) // 2
        load.judge(programs[:half])
        resident_half = load.usage().resident_bytes
        load.judge(programs[half:])
        at_end = load.usage()
        seconds = time.monotonic() - began
    return Findings(
        isolation=load.isolation,
        workers=workers,
        programs=len(programs),
        cases=load.cases,
        seconds=seconds,
        verdicts=dict(load.verdicts.most_common()),
        differences=load.differences,
        latency_p50_s=_quantile(load.latencies, 0.5),
        latency_p99_s=_quantile(load.latencies, 0.99),
        program_cpu_s=load.program_cpu_s,
        tree_cpu_s=at_end.cpu_s,
        processes=at_end.processes,
        resident_bytes_half=resident_half,
        resident_bytes_end=at_end.resident_bytes,
        left=load.left(),
    )


class Load:
    """One judge under load: it gets programs of known verdict, two for each worker at a time.

    What comes back is noted, and so are the judge's processes while it works, so that a survivor can be told
    after the end of the ``with`` block, which closes the judge.
    """

    def __init__(
        self, workers: int, *, tier: str | None = None, on_progress: Callable[[int], None] = lambda done: None
    ) -> None:
        self._before = traces()
        self._judge = Judge(workers, tier=tier)
        self._at_once = 2 * workers
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._seen: set[Process] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stress-watch")
        self.isolation = self._judge.isolation
        # As plain numbers: the memory of the caller is one of the things that are measured.
        self.latencies = array("d")
        self.verdicts: Counter[str] = Counter()
        self.differences: list[Difference] = []
        self.cases = 0
        self.program_cpu_s = 0.0

    def judge(
        self,
        programs: Iterable[Known],
        on_judged: Callable[[int, Judgement], None] = lambda number, said: None,
    ) -> None:
        """Judge all, and wait for the last. ``on_judged`` gets the number of a program, and its judgement."""
        free = threading.Semaphore(self._at_once)
        for number, known in enumerate(programs):
            free.acquire()
            future = self._judge.submit(known.problem, known.program)
            began = time.monotonic()

            def done(
                future: Future[Judgement], number: int = number, known: Known = known, began: float = began
            ) -> None:
                try:
                    self._note(known, future.result(), time.monotonic() - began)
                    on_judged(number, future.result())
                finally:
                    free.release()

            future.add_done_callback(done)
        for _ in range(self._at_once):
            free.acquire()

    def processes(self) -> tuple[list[Process], list[Process]]:
        """The judge's processes now: its workers, and all others."""
        now, workers = family(self._judge.worker_pids()), set(self._judge.worker_pids())
        self._seen.update(now)
        return [p for p in now if p[0] in workers], [p for p in now if p[0] not in workers]

    def usage(self) -> Usage:
        """What the judge's processes use now."""
        workers, others = self.processes()
        return usage(workers + others)

    def left(self) -> dict[str, list[str]]:
        """What the closed judge left on this machine, by kind."""
        return left_over(self._before, self._seen)

    def _note(self, known: Known, judgement: Judgement, seconds: float) -> None:
        with self._lock:
            self.latencies.append(seconds)
            self.verdicts[judgement.verdict.value] += 1
            self.cases += len(judgement.cases)
            self.program_cpu_s += sum(case.cpu_s for case in judgement.cases)
            if judgement.verdict not in known.verdicts:
                expected = [verdict.value for verdict in known.verdicts]
                got = judgement.verdict.value
                self.differences.append(Difference(known.name, expected, got, judgement.reason))
            self._on_progress(len(self.latencies))

    def _watch(self) -> None:
        while not self._stop.wait(_WATCH_EVERY_S):
            self.processes()

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stop.set()
        self._thread.join()
        self.processes()
        self._judge.close()


def _quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that ``share`` of the values do not exceed; 0 for none."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)] if values else 0.0
