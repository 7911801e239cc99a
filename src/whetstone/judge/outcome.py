"""The rules that all kinds of test share to turn the result of a sandbox into the judgement on a case."""

from __future__ import annotations

import signal

from whetstone.core.problem import Limits
from whetstone.core.verdict import MAX_REASON, CaseJudgement, Verdict, storable
from whetstone.sandbox import (
    MAX_OPEN_FILES,
    MAX_TASKS,
    TMP_BYTES,
    EndReason,
    RunLimits,
    RunResult,
)
from whetstone.sandbox.job import MOST_STARVED

DIFFERS = "stopped by a time limit, and gave other answers when it ran again"
_COMPILE_ERROR = b"compile_error: "

_TASKS = f"fewer than {MAX_TASKS} processes and threads may run"
_LIMIT_VERDICTS = {
    EndReason.CPU_LIMIT: (Verdict.TIME_LIMIT, "used its CPU time"),
    EndReason.WALL_LIMIT: (Verdict.TIME_LIMIT, "waited until the wall clock limit"),
    EndReason.MEMORY_LIMIT: (Verdict.MEMORY_LIMIT, "used more memory than allowed"),
    EndReason.OUTPUT_LIMIT: (Verdict.OUTPUT_LIMIT, "wrote more than allowed"),
    EndReason.PROCESS_LIMIT: (Verdict.RUNTIME_ERROR, f"started more than allowed: {_TASKS}"),
}
# Limits that a program sees as an error: the text of the C library or of Python, and the limit.
_REFUSALS = {
    "Too many open files": f"at most {MAX_OPEN_FILES} files may be open in a process",
    "No space left on device": f"at most {TMP_BYTES >> 20} MiB of files may be written",
    "File too large": f"at most {TMP_BYTES >> 20} MiB of files may be written",
    "Resource temporarily unavailable": _TASKS,
    "can't start new thread": _TASKS,
    "Operation not permitted": "not allowed here: another process or program, or a socket to others",
    "Permission denied": "not allowed here: a file outside the program's own directory",
    "Function not implemented": "not allowed here: a system call that programs do not need",
}
_MAX_STDERR_CHARS = 300


def case(result: RunResult, verdict: Verdict, reason: str = "") -> CaseJudgement:
    """Return the judgement on a case, with the cost of its run."""
    return CaseJudgement(verdict, result.cpu_s, result.wall_s, result.peak_bytes, storable(reason))


def compile_failure(answer: bytes) -> str | None:
    """Return the compile error in a harness's ``answer``, with place and reason in Python's words; else None.

    A program can write such an answer itself, but only to its own disadvantage.
    """
    if not answer.startswith(_COMPILE_ERROR):
        return None
    why = answer[len(_COMPILE_ERROR) :][:MAX_REASON].decode("utf-8", "replace")
    return f"the program does not compile: {why}"


def limit_exceeded(result: RunResult) -> CaseJudgement | None:
    """Return the judgement of a run that a limit ended; None for any other run."""
    if result.ended is EndReason.STARVED:
        return case(result, Verdict.JUDGE_ERROR, starved("the program", result))
    found = _LIMIT_VERDICTS.get(result.ended)
    return case(result, *found) if found else None


def starved(who: str, result: RunResult) -> str:
    """Return the reason for a run that got too little of a CPU core; ``who`` ran, such as "the program"."""
    waited = f"waited {result.waited_s:.1f} of {result.wall_s:.1f} s for a core"
    return f"the machine was too busy: {who} was ready and {waited}, and got {result.cpu_s:.1f} s of one"


def crashed(result: RunResult) -> CaseJudgement | None:
    """Return the judgement of a run that did not end with exit code 0; None for one that did."""
    if result.ended is EndReason.SIGNALED:
        return case(result, Verdict.RUNTIME_ERROR, f"ended by {signal_name(result.signal)}")
    if result.exit_code != 0:
        error = last_line(result.stderr)
        reason = f"exit code {result.exit_code}" + (f": {error}" if error else "")
        limit = next((limit for text, limit in _REFUSALS.items() if text in error), None)
        return case(result, Verdict.RUNTIME_ERROR, f"{reason} ({limit})" if limit else reason)
    return None


def signal_name(number: int | None) -> str:
    """Return the name of a signal, such as SIGSEGV."""
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


def last_line(stderr: bytes) -> str:
    """Return the last line that a program wrote to standard error: usually the exception."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip()[:_MAX_STDERR_CHARS] if lines else ""


def judge_failure(reason: str) -> CaseJudgement:
    """Return the judgement on a case that could not be judged."""
    return CaseJudgement(Verdict.JUDGE_ERROR, reason=storable(reason))


def outlasting(limits: RunLimits) -> float:
    """Return the wall clock limit for a run that waits for another one, which has ``limits``.

    It must be the longer one. If the program hangs, its own limit must end it first. Otherwise the limit of
    the tests or the interactor that wait for it would end them, and they would be at fault. The program's
    clock stops while it gets no core, up to ``MOST_STARVED`` times its limit. The clock of the waiting run
    does not stop.
    """
    wall_s = 10.0 + 10.0 * limits.cpu_s if limits.wall_s is None else limits.wall_s
    return wall_s * (1.0 + MOST_STARVED) + 5.0


def run_limits(limits: Limits) -> RunLimits:
    """Return a problem's limits in the units of the sandbox."""
    return RunLimits(limits.cpu_s, int(limits.memory_mb * (1 << 20)), int(limits.output_mb * (1 << 20)))


def is_stopped(judged: CaseJudgement) -> bool:
    """Return whether a time limit ended the run that a second run must confirm.

    In one interpreter it is confirmed.
    """
    return judged.verdict is Verdict.TIME_LIMIT and not judged.shared_interpreter
