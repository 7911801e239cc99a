"""Prepare a program of any language to run: which sandbox to start, with which job.

Checkers and interactors that are programs are prepared in the same way, with the role of tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from whetstone.core.problem import Program
from whetstone.core.verdict import CaseJudgement, Verdict
from whetstone.judge.languages.compiling import CompileFailure, compile_source, tool_environment
from whetstone.judge.languages.language import SUM_INPUT, SUM_OUTPUT
from whetstone.judge.languages.table import language_named
from whetstone.judge.languages.toolchains import Toolchain, find_toolchain
from whetstone.judge.outcome import case, compile_failure, crashed, limit_exceeded
from whetstone.judge.sandboxes import CompiledCode, SandboxRole, SandboxSet
from whetstone.sandbox import RunLimits, RunResult, Sandbox, SandboxJob
from whetstone.sandbox.execute import File, NotExecuted, execute_job, execution_error
from whetstone.sandbox.script import LinkedCode, script_job, script_job_with_code

__all__ = ["CompileFailure", "Runnable", "prepare"]

_MIB = 1 << 20
_MAX_STACK_MB = 512
_PROBE_LIMITS = RunLimits(cpu_s=10.0, memory_bytes=1 << 30, output_bytes=1 << 20)


def prepare(
    sandboxes: SandboxSet, program: Program, *, role: SandboxRole = SandboxRole.PROGRAM
) -> Runnable | CompileFailure:
    """Prepare ``program`` to run. Compile it unless its products are stored.

    Raises UserError for a language that is not available, and SandboxFault if the compiler cannot be run.
    """
    language = language_named(program.language, "the program")
    source = program.source.encode("utf-8", "surrogatepass")
    if not language.run:
        return _PythonProgram(sandboxes.python(role, program.source), source, sandboxes.last_code)
    toolchain = find_toolchain(language.name)
    _probe(sandboxes, toolchain)
    return _build(sandboxes, role, toolchain, source)


def _build(
    sandboxes: SandboxSet, role: SandboxRole, toolchain: Toolchain, source: bytes
) -> _NativeProgram | CompileFailure:
    products = compile_source(sandboxes, toolchain, source)
    if isinstance(products, CompileFailure):
        return products
    return _NativeProgram(sandboxes, role, toolchain, products.files, products.names)


def _probe(sandboxes: SandboxSet, toolchain: Toolchain) -> None:
    """Run the probe program of a language once on this machine.

    Raises NotExecuted: broken tools must give no verdict.
    """
    name = toolchain.language.name
    if name in sandboxes.probed_languages:
        return
    program = _build(sandboxes, SandboxRole.PROGRAM, toolchain, toolchain.language.probe_source.encode())
    if isinstance(program, CompileFailure):
        raise NotExecuted(f"the tools for {name} do not work here: {program.reason}")
    sandbox, job = program.job(_PROBE_LIMITS, stdin=SUM_INPUT.encode())
    result = sandbox.run(job)
    if result.stdout.split() != SUM_OUTPUT.encode().split():
        why = program.failure(result)
        raise NotExecuted(f"the tools for {name} do not work here: {why.reason if why else 'no output'}")
    sandboxes.probed_languages.add(name)


@dataclass
class _PythonProgram:
    """A Python program. Each run is a fork of an interpreter that has already started."""

    sandbox: Sandbox
    source: bytes
    last_code: CompiledCode
    new_code: LinkedCode | None = None
    """Receives the code that the last job compiles."""

    def job(
        self,
        limits: RunLimits,
        *,
        stdin: bytes = b"",
        args: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        link: int | None = None,
    ) -> tuple[Sandbox, SandboxJob]:
        """Return the sandbox to use and the job to start.

        ``files`` are created in the working directory; a name that ends with ``/`` is an empty directory.
        ``link``: a socket that becomes the program's standard input and output.
        """
        self.new_code = None
        if args or files or link is not None:
            job = script_job(self.source, limits, stdin=stdin, args=args, files=files, link=link)
        else:
            code = self.last_code.get(self.sandbox, self.source)
            self.new_code = None if code else LinkedCode()
            job = script_job_with_code(self.source, code, limits, stdin=stdin, hand_out=self.new_code)
        return self.sandbox, job

    def failure(self, result: RunResult) -> CaseJudgement | None:
        """Return the judgement of a run that failed by itself; None for one that ended normally."""
        if self.new_code is not None:
            self.last_code.store(self.sandbox, self.source, self.new_code.code())
            self.new_code = None
        limit = limit_exceeded(result)
        if limit is None and result.exit_code == 1 and (why := compile_failure(result.result)):
            return case(result, Verdict.COMPILE_ERROR, why)
        return limit or crashed(result)


@dataclass(frozen=True)
class _NativeProgram:
    """A program of another language. Each run executes it or its runtime."""

    sandboxes: SandboxSet
    role: SandboxRole
    toolchain: Toolchain
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
    ) -> tuple[Sandbox, SandboxJob]:
        """See ``_PythonProgram.job``. The needs of the runtime are added to ``limits``."""
        language = self.toolchain.language
        memory_mb = max(limits.memory_bytes // _MIB, 1)
        stack_mb = max(min(memory_mb // 2, _MAX_STACK_MB), 1)
        values = {
            **self.names,
            "tool": self.toolchain.tools,
            **{"memory_mb": memory_mb, "stack_mb": stack_mb, "stack_kb": stack_mb * 1024},
        }
        argv = [word.format_map(values) for word in language.run]
        extra_files = [File(name, data) for name, data in (files or {}).items()]
        raised_limits = replace(
            limits,
            cpu_s=limits.cpu_s + language.extra_cpu_s,
            memory_bytes=limits.memory_bytes + language.extra_memory_mb * _MIB,
        )
        job = execute_job(
            *([*argv, *args], [*self.products, *extra_files], raised_limits),
            environment=tool_environment(self.toolchain),
            stdin=stdin,
            link=link,
            processes=language.processes,
        )
        return self.sandboxes.native(self.role, processes=language.processes), job

    def failure(self, result: RunResult) -> CaseJudgement | None:
        """Return the judgement of a run that failed by itself; None for one that ended normally.

        Raises NotExecuted if the program did not run at all.
        """
        if limit := limit_exceeded(result):
            return limit
        if why := execution_error(result.result):
            raise NotExecuted(f"the program could not be executed: {why}")
        failed = crashed(result)
        messages = self.toolchain.language.out_of_memory_messages
        if failed is not None and any(message.encode() in result.stderr for message in messages):
            return case(result, Verdict.MEMORY_LIMIT, "the runtime got no more memory")
        return failed


Runnable = _PythonProgram | _NativeProgram
"""A program that can run any number of times."""
