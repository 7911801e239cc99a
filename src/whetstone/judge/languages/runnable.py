"""A program made ready to run, whatever its language: which sandbox to start, with which job.

Checkers and interactors that are programs go the same way, on the side of the tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from whetstone.judge.boxes import Boxes, LastCode, Side
from whetstone.judge.languages.compiling import CompileFailure, compiled, environment
from whetstone.judge.languages.language import SUM_INPUT, SUM_OUTPUT
from whetstone.judge.languages.table import language_named
from whetstone.judge.languages.toolchains import Toolchain, toolchain
from whetstone.judge.outcome import case, compile_failure, crashed, limit_exceeded
from whetstone.problem import Program
from whetstone.sandbox import Job, RunLimits, RunResult, Sandbox
from whetstone.sandbox.execute import File, NotExecuted, execute_job, fault
from whetstone.sandbox.script import HandedOut, script_job, script_job_with_code
from whetstone.verdict import CaseJudgement, Verdict

__all__ = ["CompileFailure", "Runnable", "prepare"]

_MIB = 1 << 20
_MAX_STACK_MB = 512
_PROOF_LIMITS = RunLimits(cpu_s=10.0, memory_bytes=1 << 30, output_bytes=1 << 20)


class Runnable(Protocol):
    """A program that can be run any number of times."""

    def job(
        self,
        limits: RunLimits,
        *,
        stdin: bytes = b"",
        args: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        link: int | None = None,
    ) -> tuple[Sandbox, Job]:
        """What to start, and where.

        ``files`` appear in the working directory; a name that ends with ``/`` is an empty directory. With
        ``link``, a socket, that is the program's standard input and output.
        """
        ...

    def failure(self, result: RunResult) -> CaseJudgement | None:
        """The judgement of a run that failed by itself; None for one that ended well.

        Raises NotExecuted when the program was not run at all.
        """
        ...


def prepare(boxes: Boxes, program: Program, *, side: Side = Side.PROGRAM) -> Runnable | CompileFailure:
    """Make ``program`` ready to run, compiling it unless that was done before.

    Raises UserError for a language that is not here, SandboxFault when compiling could not be tried.
    """
    language = language_named(program.language, "the program")
    source = program.source.encode("utf-8", "surrogatepass")
    if not language.run:
        return _PythonProgram(boxes.python(side, program.source), source, boxes.last_code)
    found = toolchain(language.name)
    _prove(boxes, found)
    return _built(boxes, side, found, source)


def _built(boxes: Boxes, side: Side, found: Toolchain, source: bytes) -> _NativeProgram | CompileFailure:
    products = compiled(boxes, found, source)
    if isinstance(products, CompileFailure):
        return products
    return _NativeProgram(boxes, side, found, products.files, products.names)


def _prove(boxes: Boxes, found: Toolchain) -> None:
    """See a program of this language run here, once. Raises NotExecuted: broken tools are no verdict."""
    name = found.language.name
    if name in boxes.proved:
        return
    program = _built(boxes, Side.PROGRAM, found, found.language.proof.encode())
    if isinstance(program, CompileFailure):
        raise NotExecuted(f"the tools for {name} do not work here: {program.reason}")
    sandbox, job = program.job(_PROOF_LIMITS, stdin=SUM_INPUT.encode())
    result = sandbox.run(job)
    if result.stdout.split() != SUM_OUTPUT.encode().split():
        why = program.failure(result)
        raise NotExecuted(f"the tools for {name} do not work here: {why.reason if why else 'no output'}")
    boxes.proved.add(name)


@dataclass
class _PythonProgram:
    """A Python program: each run is a fork of an interpreter that has started already."""

    sandbox: Sandbox
    source: bytes
    last_code: LastCode
    hand_out: HandedOut | None = None
    """The code that the job made last hands out."""

    def job(
        self,
        limits: RunLimits,
        *,
        stdin: bytes = b"",
        args: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        link: int | None = None,
    ) -> tuple[Sandbox, Job]:
        """See ``Runnable.job``."""
        self.hand_out = None
        if args or files or link is not None:
            job = script_job(self.source, limits, stdin=stdin, args=args, files=files, link=link)
        else:
            code = self.last_code.of(self.sandbox, self.source)
            self.hand_out = None if code else HandedOut()
            job = script_job_with_code(self.source, code, limits, stdin=stdin, hand_out=self.hand_out)
        return self.sandbox, job

    def failure(self, result: RunResult) -> CaseJudgement | None:
        """See ``Runnable.failure``."""
        if self.hand_out is not None:
            self.last_code.keep(self.sandbox, self.source, self.hand_out.code())
            self.hand_out = None
        limit = limit_exceeded(result)
        if limit is None and result.exit_code == 1 and (why := compile_failure(result.result)):
            return case(result, Verdict.COMPILE_ERROR, why)
        return limit or crashed(result)


@dataclass(frozen=True)
class _NativeProgram:
    """A program of any other language: each run executes it, or its runtime."""

    boxes: Boxes
    side: Side
    found: Toolchain
    products: tuple[File, ...]
    names: Mapping[str, str]

    def job(
        self,
        limits: RunLimits,
        *,
        stdin: bytes = b"",
        args: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        link: int | None = None,
    ) -> tuple[Sandbox, Job]:
        """See ``Runnable.job``. The runtime's own needs come on top of ``limits``."""
        language = self.found.language
        memory_mb = max(limits.memory_bytes // _MIB, 1)
        stack_mb = max(min(memory_mb // 2, _MAX_STACK_MB), 1)
        values = {
            **self.names,
            "tool": self.found.tools,
            **{"memory_mb": memory_mb, "stack_mb": stack_mb, "stack_kb": stack_mb * 1024},
        }
        argv = [word.format_map(values) for word in language.run]
        given = [File(name, data) for name, data in (files or {}).items()]
        raised = replace(
            limits,
            cpu_s=limits.cpu_s + language.extra_cpu_s,
            memory_bytes=limits.memory_bytes + language.extra_memory_mb * _MIB,
        )
        job = execute_job(
            *([*argv, *args], [*self.products, *given], raised),
            environment=environment(self.found),
            stdin=stdin,
            link=link,
            processes=language.processes,
        )
        return self.boxes.native(self.side, processes=language.processes), job

    def failure(self, result: RunResult) -> CaseJudgement | None:
        """See ``Runnable.failure``."""
        if limit := limit_exceeded(result):
            return limit
        if why := fault(result.result):
            raise NotExecuted(f"the program could not be executed: {why}")
        failed = crashed(result)
        if failed is not None and _says(result, self.found.language.out_of_memory):
            return case(result, Verdict.MEMORY_LIMIT, "the runtime was refused more memory")
        return failed


def _says(result: RunResult, words: Sequence[str]) -> bool:
    return any(each.encode() in result.stderr for each in words)
