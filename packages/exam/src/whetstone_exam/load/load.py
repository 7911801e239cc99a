"""Judge many programs with known verdicts at once: check verdicts, measure the speed, find leftovers."""

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
from whetstone_exam.load.footprint import (
    Process,
    ProcessUsage,
    find_leftovers,
    process_tree,
    process_usage,
    read_traces,
)
from whetstone_exam.load.mix import KnownProgram

_WATCH_EVERY_S = 1.0
# The permitted growth of a worker's memory from the first half to the second. Smaller growth is noise.
_GROWTH_BYTES = 16 << 20


class _VerdictMismatch(Struct, frozen=True):
    """A program with an unexpected verdict."""

    name: str
    expected: list[str]
    got: str
    reason: str


class LoadFindings(Struct, frozen=True):
    """The results of a stress run.

    ``latency_p50_s`` and ``latency_p99_s`` are the times from the submission of a program to its judgement.
    Two programs per worker are submitted at a time. ``program_cpu_s`` is the CPU time of the programs.
    ``tree_cpu_s`` is that of the judge's process tree with all programs, except for processes that were
    killed. ``resident_bytes_half`` and ``resident_bytes_end`` are the memory of the judge's processes after
    half of the programs and at the end, when the judge is idle.
    """

    isolation: str
    workers: int
    programs: int
    cases: int
    seconds: float
    verdicts: dict[str, int]
    differences: list[_VerdictMismatch]
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
        """Whether the memory of the judge grew in the second half by more than the tolerance."""
        return self.resident_bytes_end - self.resident_bytes_half > _GROWTH_BYTES * self.workers

    @property
    def ok(self) -> bool:
        """Whether all verdicts were as expected, nothing was left over, and memory did not grow."""
        return not (self.differences or self.left or self.grew)


def stress(
    programs: list[KnownProgram],
    workers: int,
    *,
    tier: str | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> LoadFindings:
    """Judge ``programs`` on ``workers`` workers. ``on_progress`` gets the number of judged programs.

    Raises SandboxUnavailable if this machine cannot isolate (at ``tier``).
    """
    began = time.monotonic()
    with Load(workers, tier=tier, on_progress=on_progress) as load:
        half = len(programs) // 2
        load.judge(programs[:half])
        resident_half = load.usage().resident_bytes
        load.judge(programs[half:])
        usage_at_end = load.usage()
        seconds = time.monotonic() - began
    return LoadFindings(
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
        tree_cpu_s=usage_at_end.cpu_s,
        processes=usage_at_end.processes,
        resident_bytes_half=resident_half,
        resident_bytes_end=usage_at_end.resident_bytes,
        left=load.leftovers(),
    )


class Load:
    """A judge under load. It gets programs with known verdicts, two per worker at a time.

    It records the judgements and all processes of the judge, so that :meth:`leftovers` can find survivors
    after the ``with`` block has closed the judge.
    """

    def __init__(
        self, workers: int, *, tier: str | None = None, on_progress: Callable[[int], None] = lambda done: None
    ) -> None:
        self._before = read_traces()
        self._judge = Judge(workers, tier=tier)
        self._at_once = 2 * workers
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._seen: set[Process] = set()
        self._stop = threading.Event()
        # Runs start and end all the time. Only processes that were listed at some moment can be found as
        # survivors.
        self._thread = threading.Thread(target=self._watch, name="stress-watch")
        self.isolation = self._judge.isolation
        # An array of plain numbers: the memory of this process is part of the measurement.
        self.latencies = array("d")
        self.verdicts: Counter[str] = Counter()
        self.differences: list[_VerdictMismatch] = []
        self.cases = 0
        self.program_cpu_s = 0.0

    def judge(
        self,
        programs: Iterable[KnownProgram],
        on_judged: Callable[[int, Judgement], None] = lambda number, judgement: None,
    ) -> None:
        """Judge all programs and wait for the last. ``on_judged`` gets the index of each program and its
        judgement."""
        free = threading.Semaphore(self._at_once)
        for number, known in enumerate(programs):
            free.acquire()
            future = self._judge.submit(known.problem, known.program)
            began = time.monotonic()

            def done(
                future: Future[Judgement],
                number: int = number,
                known: KnownProgram = known,
                began: float = began,
            ) -> None:
                try:
                    self._record(known, future.result(), time.monotonic() - began)
                    on_judged(number, future.result())
                finally:
                    free.release()

            future.add_done_callback(done)
        # All permits are free again when the last program is judged.
        for _ in range(self._at_once):
            free.acquire()

    def processes(self) -> tuple[list[Process], list[Process]]:
        """Return the present processes of the judge: its workers, and all others."""
        now, workers = process_tree(self._judge.worker_pids()), set(self._judge.worker_pids())
        self._seen.update(now)
        return [p for p in now if p[0] in workers], [p for p in now if p[0] not in workers]

    def usage(self) -> ProcessUsage:
        """Return the present usage of the judge's processes."""
        workers, others = self.processes()
        return process_usage(workers + others)

    def leftovers(self) -> dict[str, list[str]]:
        """Return what the closed judge left on this machine, by kind."""
        return find_leftovers(self._before, self._seen)

    def _record(self, known: KnownProgram, judgement: Judgement, seconds: float) -> None:
        with self._lock:
            self.latencies.append(seconds)
            self.verdicts[judgement.verdict.value] += 1
            self.cases += len(judgement.cases)
            self.program_cpu_s += sum(case.cpu_s for case in judgement.cases)
            if judgement.verdict not in known.verdicts:
                expected = [verdict.value for verdict in known.verdicts]
                got = judgement.verdict.value
                self.differences.append(_VerdictMismatch(known.name, expected, got, judgement.reason))
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
    """Return the smallest value that is at least as large as ``share`` of the values; 0 if there are none."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)] if values else 0.0
