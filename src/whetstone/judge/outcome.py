"""From what a sandbox saw to a case's judgement: the rules that all kinds of test share."""

from __future__ import annotations

import signal

from whetstone.sandbox import (
    MAX_OPEN_FILES,
    MAX_TASKS,
    TMP_BYTES,
    Ended,
    RunLimits,
    RunResult,
)
from whetstone.sandbox.job import MOST_STARVED
from whetstone.verdict import MAX_REASON, CaseJudgement, Verdict, storable

DIFFERS = "stopped by a time limit, and answered otherwise when it was run again"
_COMPILE_ERROR = b"compile_error: "

_TASKS = f"fewer than {MAX_TASKS} processes and threads may run"
_LIMIT_VERDICTS = {
    Ended.CPU_LIMIT: (Verdict.TIME_LIMIT, "used its CPU time"),
    Ended.WALL_LIMIT: (Verdict.TIME_LIMIT, "waited until the wall clock limit"),
    Ended.MEMORY_LIMIT: (Verdict.MEMORY_LIMIT, "used more memory than allowed"),
    Ended.OUTPUT_LIMIT: (Verdict.OUTPUT_LIMIT, "wrote more than allowed"),
    Ended.PROCESS_LIMIT: (Verdict.RUNTIME_ERROR, f"started more than allowed: {_TASKS}"),
}
# Limits that a program meets as an error of its own: how the C library and Python word it, and the limit.
_REFUSALS = {
    "Too many open files": f"at most {MAX_OPEN_FILES} files may be open in a process",
    "No space left on device": f"at most {TMP_BYTES >> 20} MiB of files may be written",
    "File too large": f"at most {TMP_BYTES >> 20} MiB of files may be written",
    "Resource temporarily unavailable": _TASKS,
    "can't start new thread": _TASKS,
    "Operation not permitted": "not allowed here: another process or program, or a socket to others",
    "Permission denied": "not allowed here: a file outside the program's own directory",
    "Function not implemented": "not allowed here: a system call that programs have no use for",
}
_STDERR_TAIL = 300


def case(result: RunResult, verdict: Verdict, reason: str = "") -> CaseJudgement:
    """A case's judgement with the cost of its run."""
    return CaseJudgement(verdict, result.cpu_s, result.wall_s, result.peak_bytes, storable(reason))


def compile_failure(said: bytes) -> str | None:
    """What a harness that answered ``said`` found wrong with the source: where and why, in Python's words.

    None for any other answer. A program can answer so itself, to its own disadvantage alone.
    """
    if not said.startswith(_COMPILE_ERROR):
        return None
    why = said[len(_COMPILE_ERROR) :][:MAX_REASON].decode("utf-8", "replace")
    return f"the program does not compile: {why}"


def limit_exceeded(result: RunResult) -> CaseJudgement | None:
    """The judgement of a run that was ended for a limit; None for one that was not."""
    if result.ended is Ended.STARVED:
        return case(result, Verdict.JUDGE_ERROR, starved("the program", result))
    found = _LIMIT_VERDICTS.get(result.ended)
    return case(result, *found) if found else None


def starved(who: str, result: RunResult) -> str:
    """The reason of a run that got too little of a core; ``who`` ran, such as "the program"."""
    waited = f"waited {result.waited_s:.1f} of {result.wall_s:.1f} s for a core"
    return f"the machine was too busy: {who} was ready and {waited}, and got {result.cpu_s:.1f} s of one"


def crashed(result: RunResult) -> CaseJudgement | None:
    """The judgement of a run that did not end with exit code 0; None for one that did."""
    if result.ended is Ended.SIGNALED:
        return case(result, Verdict.RUNTIME_ERROR, f"ended by {signal_name(result.signal)}")
    if result.exit_code != 0:
        said = last_line(result.stderr)
        reason = f"exit code {result.exit_code}" + (f": {said}" if said else "")
        limit = next((limit for words, limit in _REFUSALS.items() if words in said), None)
        return case(result, Verdict.RUNTIME_ERROR, f"{reason} ({limit})" if limit else reason)
    return None


def signal_name(number: int | None) -> str:
    """What a signal is called, such as SIGSEGV."""
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


def last_line(stderr: bytes) -> str:
    """The last line of what a program wrote to its standard error: usually the exception."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip()[:_STDERR_TAIL] if lines else ""


def judge_failure(reason: str) -> CaseJudgement:
    """A case that could not be judged."""
    return CaseJudgement(Verdict.JUDGE_ERROR, reason=storable(reason))


def outlasting(limits: RunLimits) -> float:
    """The wall clock limit for a run that waits for another one, which has ``limits``.

    It must be the longer of the two: where the program hangs, the program's own limit has to end it, before
    that of the tests or the interactor that wait for it, which would then be blamed. The program's clock
    stands still while it gets no core, up to ``MOST_STARVED`` times its limit; the waiting run's does not.
    """
    wall_s = 10.0 + 10.0 * limits.cpu_s if limits.wall_s is None else limits.wall_s
    return wall_s * (1.0 + MOST_STARVED) + 5.0


def run_limits(cpu_s: float, memory_mb: float, output_mb: float) -> RunLimits:
    """A problem's limits in the sandbox's units."""
    return RunLimits(cpu_s, int(memory_mb * (1 << 20)), int(output_mb * (1 << 20)))


def is_stopped(judged: CaseJudgement) -> bool:
    """Whether a time limit stopped it that may yet be confirmed: in one interpreter it has been."""
    return judged.verdict is Verdict.TIME_LIMIT and not judged.shared_interpreter
