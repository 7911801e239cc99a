"""The answers of programs for new inputs, computed in the sandbox."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from whetstone.core.closing import Closing
from whetstone.core.problem import CallCase, CallTests, Limits, Problem, Program
from whetstone.judge.environments.environment import environment_named
from whetstone.judge.kinds.call import values_returned
from whetstone.judge.languages.runnable import CompileFailure, prepare
from whetstone.judge.outcome import crashed, limit_exceeded, run_limits
from whetstone.judge.sandboxes import SandboxSet
from whetstone.sandbox import EndReason, RunResult, SandboxFault, Tier

_TOGETHER = 64
_YES = (0, 42)
# After so many inputs that reach a limit, the rest of the batch is skipped.
_MOST_HELD_UP = 10


class NoAnswer:
    """The program raised, ended, was stopped, or returned a value that is not plain data."""


NO_ANSWER = NoAnswer()


class Answers(Closing):
    """Runs programs on inputs, in sandboxes of its own for each thread. A context manager."""

    def __init__(
        self, minimum_tier: str = "restricted", environment: str | os.PathLike[str] | None = None
    ) -> None:
        """environment: the packages that programs may import, as for a judge."""
        self._tier = Tier[minimum_tier.upper()]
        self._environment = environment_named(environment)
        self._own = threading.local()
        self._made: list[SandboxSet] = []
        self._lock = threading.Lock()

    def returned(
        self, source: str, tests: CallTests, inputs: Sequence[CallCase], limits: Limits
    ) -> list[Any | NoAnswer]:
        """Return what the function of ``tests`` returns for each input, called in a program imported anew.

        limits: of one call, and of a batch of calls together.
        """
        problem = Problem("answers", "", tests, limits=limits)
        found: list[Any | NoAnswer] = []
        together, held_up = _TOGETHER, 0
        while len(found) < len(inputs):
            if held_up >= _MOST_HELD_UP:
                return [*found, *[NO_ANSWER] * (len(inputs) - len(found))]
            cases = inputs[len(found) : len(found) + together]
            try:
                result, values = values_returned(self._sandboxes(), problem, tests, cases, source)
            except SandboxFault:
                self._close_own()
                found += [NO_ANSWER] * len(cases)
                continue
            failed = limit_exceeded(result) or crashed(result)
            if failed is None and values:
                found += map(_value, values)
                together = _TOGETHER
            elif len(cases) > 1:
                together = max(1, len(cases) // 4)
            else:
                found.append(NO_ANSWER)
                held_up += limit_exceeded(result) is not None
        return found

    def printed(self, program: Program, texts: Sequence[str], limits: Limits) -> list[str | NoAnswer]:
        """Return what a program prints for each text on standard input.

        NO_ANSWER if its exit code is not 0.
        """
        return [
            _text(result) if result is not None and result.exit_code == 0 else NO_ANSWER
            for result in self._runs(program, texts, limits)
        ]

    def accepted(
        self, program: Program, texts: Sequence[str], limits: Limits, arguments: Sequence[str] = ()
    ) -> list[bool]:
        """Return for each text whether the program accepts it by its exit code: 0, or 42 as with Kattis.

        arguments: of the program's command line.
        """
        return [
            result is not None and result.ended is EndReason.EXITED and result.exit_code in _YES
            for result in self._runs(program, texts, limits, arguments)
        ]

    def _runs(
        self, program: Program, texts: Sequence[str], limits: Limits, arguments: Sequence[str] = ()
    ) -> Iterator[RunResult | None]:
        """Yield the run over each text; None if the program was not run."""
        held_up = 0
        bounds = run_limits(limits)
        for text in texts:
            result = None
            if held_up < _MOST_HELD_UP:
                try:
                    runnable = prepare(self._sandboxes(), program)
                    if not isinstance(runnable, CompileFailure):
                        stdin = text.encode("utf-8", "surrogatepass")
                        sandbox, job = runnable.job(bounds, stdin=stdin, args=arguments)
                        result = sandbox.run(job)
                        held_up += limit_exceeded(result) is not None
                except SandboxFault:
                    self._close_own()
                    held_up += 1
            yield result

    def _sandboxes(self) -> SandboxSet:
        boxes: SandboxSet | None = getattr(self._own, "boxes", None)
        if boxes is None:
            boxes = self._own.boxes = SandboxSet(self._tier, environment=self._environment)
            with self._lock:
                self._made.append(boxes)
        return boxes

    def _close_own(self) -> None:
        """Close the sandboxes of this thread, one of which failed."""
        boxes: SandboxSet | None = getattr(self._own, "boxes", None)
        self._own.boxes = None
        if boxes is not None:
            with self._lock:
                self._made.remove(boxes)
            boxes.close()

    def close(self) -> None:
        """End the sandboxes of all threads."""
        with self._lock:
            made, self._made = self._made, []
        for boxes in made:
            boxes.close()


def with_cpu_limit(limits: Limits, cpu_s: float) -> Limits:
    """Return the limits with at most ``cpu_s`` seconds."""
    return msgspec.structs.replace(limits, cpu_s=min(limits.cpu_s, cpu_s))


def _builtin(value: Any) -> Any:
    """Return mappings and named tuples as the builtin types that they equal."""
    if isinstance(value, dict):
        return {key: _builtin(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, tuple):
        return tuple(map(_builtin, cast("tuple[Any, ...]", value)))
    return list(map(_builtin, cast("list[Any]", value))) if isinstance(value, list) else value


def _text(result: RunResult) -> str | NoAnswer:
    if result.ended is not EndReason.EXITED:
        return NO_ANSWER
    try:
        return result.stdout.decode()
    except UnicodeDecodeError:
        return NO_ANSWER


def _value(response: object) -> Any | NoAnswer:
    match response:
        case ["value", value]:
            return _builtin(value)
        case _:
            return NO_ANSWER
