"""Prepare a program of any language to run: which sandbox to start, with which job.

Checkers and interactors that are programs are prepared in the same way, with the role of tests.

Programs are compiled once for each source, in a sandbox in which no program ever runs.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from whetstone.core.problem import Program
from whetstone.core.verdict import CaseJudgement, Verdict
from whetstone.judge.languages.artifacts import ArtifactStore
from whetstone.judge.languages.language import SUM_INPUT, SUM_OUTPUT
from whetstone.judge.languages.table import language_named
from whetstone.judge.languages.toolchains import Toolchain, find_toolchain
from whetstone.judge.outcome import (
    case,
    compile_failure,
    crashed,
    last_line,
    limit_exceeded,
    signal_name,
    starved,
)
from whetstone.judge.sandboxes import CompiledCode, SandboxRole, SandboxSet
from whetstone.sandbox import EndReason, RunLimits, RunResult, Sandbox, SandboxJob, Tier
from whetstone.sandbox.execute import (
    CommandFailure,
    File,
    NotExecuted,
    execute_job,
    execution_error,
    make_job,
    read_products,
    unpack_files,
)
from whetstone.sandbox.script import LinkedCode, script_job, script_job_with_code

COMPILE_LIMITS = RunLimits(cpu_s=30.0, memory_bytes=2 << 30, output_bytes=64 << 20, wall_s=120.0)
_KIT_LIMITS = RunLimits(cpu_s=120.0, memory_bytes=2 << 30, output_bytes=1 << 30, wall_s=100.0)
_FORMAT = 1  # Part of each key. A new number makes all stored products unused.
_REASON_CHARACTERS = 300
_LIMIT_REASONS = {
    EndReason.CPU_LIMIT: f"the compiler used its CPU time of {COMPILE_LIMITS.cpu_s:.0f} s",
    EndReason.WALL_LIMIT: "the compiler did not end in time",
    EndReason.MEMORY_LIMIT: f"the compiler used more than {COMPILE_LIMITS.memory_bytes >> 20} MiB of memory",
    EndReason.OUTPUT_LIMIT: f"the compiler wrote more than {COMPILE_LIMITS.output_bytes >> 20} MiB",
}


@dataclass(frozen=True)
class CompileFailure:
    """The source does not compile. ``reason``: the first error, or the limit that was exceeded."""

    reason: str


@dataclass(frozen=True)
class _CompilerOutput:
    """The output of a compiler, and the names that are inserted into the language's run command."""

    files: tuple[File, ...]
    names: Mapping[str, str]


def compile_source(
    sandboxes: SandboxSet, toolchain: Toolchain, source: bytes
) -> _CompilerOutput | CompileFailure:
    """Compile ``source``, or return the stored result of an earlier compilation.

    Raises SandboxFault if the compiler cannot be run.
    """
    language = toolchain.language
    names = {"source": language.source, "main": ""}
    if language.name_finder is not None:
        names["source"], names["main"] = language.name_finder(source.decode("utf-8", "replace"))
    commands = _fill_in(language.compile, toolchain, names, None)
    key = _product_key(toolchain, commands, source.hex())
    products = sandboxes.artifacts.get(key)
    if products is None:
        kit = _get_kit(sandboxes, toolchain)
        use = language.kit.use if language.kit is not None and kit is not None else ()
        job = make_job(
            _fill_in((*use, *language.compile), toolchain, names, kit),
            [File(names["source"], source)],
            language.keep,
            COMPILE_LIMITS,
            environment=tool_environment(toolchain),
            space_bytes=language.compile_space_mb << 20,
        )
        answer = _run(sandboxes.compiler, job, language.keep)
        if isinstance(answer, CompileFailure):
            return answer
        sandboxes.artifacts.put(key, products := answer)
    return _CompilerOutput(tuple(unpack_files(products, language.keep)), names)


def tool_environment(toolchain: Toolchain) -> dict[str, str]:
    """Return the environment variables of a language, which its tools and programs get in addition."""
    return {name: value.format(home=toolchain.home) for name, value in toolchain.language.environment.items()}


def _fill_in(
    commands: tuple[tuple[str, ...], ...], toolchain: Toolchain, names: Mapping[str, str], kit: str | None
) -> list[list[str]]:
    values = {**names, "tool": toolchain.tools, "home": toolchain.home, "kit": kit}
    return [
        [word.format_map(values) for word in arguments if kit is not None or "{kit}" not in word]
        for arguments in commands
    ]


def _product_key(toolchain: Toolchain, commands: list[list[str]], content: str) -> str:
    parts = [
        _FORMAT,
        toolchain.language.name,
        toolchain.identity,
        commands,
        tool_environment(toolchain),
        content,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _run(sandbox: Sandbox, job: SandboxJob, keep: Sequence[str]) -> bytes | CompileFailure:
    """Return the products of a compiler, or the reason why there are none. After a limit, it runs once more.

    Raises NotExecuted if the compiler got no CPU core.
    """
    result = sandbox.run(job)
    # A busy machine can cause a limit, and a verdict on the source must not depend on that.
    if result.ended is not EndReason.EXITED:
        result = sandbox.run(job)
    if result.ended is EndReason.STARVED:
        raise NotExecuted(starved("the compiler", result))
    # The disk of the sandbox had no room for the source or the products.
    if result.ended is EndReason.EXITED and not result.result:
        return CompileFailure(f"the compiler wrote no output: {last_line(result.stderr)}")
    if result.ended is EndReason.EXITED:
        return _read_products(result.result, keep)
    return CompileFailure(
        _LIMIT_REASONS.get(result.ended, f"the compiler was ended by {signal_name(result.signal)}")
    )


def _read_products(result: bytes, keep: Sequence[str]) -> bytes | CompileFailure:
    """Return the products in the result of a compiler's sandbox. The source is at fault if it is malformed.

    Raises NotExecuted if a compiler could not be started.
    """
    try:
        answer = read_products(result)
        if isinstance(answer, CommandFailure):
            return CompileFailure(_first_error(answer))
        unpack_files(answer, keep)
    except ValueError as error:
        return CompileFailure(f"the compiler's answer is malformed: {error}")
    return answer


def _first_error(failed: CommandFailure) -> str:
    """Return the first line of the messages that mentions an error, and the place if the next line has it."""
    lines = [line.strip() for line in failed.messages.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if "error" in line.lower():
            place = next((where for where in lines[number + 1 : number + 2] if where.startswith("-->")), "")
            return f"{line} {place}".strip()[:_REASON_CHARACTERS]
    messages = [line for line in lines if not line.startswith("#")]
    if messages:
        return messages[0][:_REASON_CHARACTERS]
    if failed.code < 0:
        return f"the compiler was ended by {signal_name(-failed.code)}"
    return f"the compiler failed with exit code {failed.code}"


def _get_kit(sandboxes: SandboxSet, toolchain: Toolchain) -> str | None:
    """Return the folder of the language's kit, which is built if necessary.

    None if there is none; compiling then only takes longer.
    """
    kit = toolchain.language.kit
    # Outside the tier `root`, root compiles as an ordinary user, who cannot enter the folder of root's kits.
    hidden = sandboxes.tier is not Tier.ROOT and os.geteuid() == 0
    if kit is None or sandboxes.artifacts.kits is None or hidden:
        return None
    if kit.unless and glob.glob(os.path.join(toolchain.home, kit.unless)):
        return None
    commands = _fill_in(kit.commands, toolchain, {}, None)
    key = _product_key(toolchain, commands, json.dumps([kit.files, kit.keep]))
    folder = sandboxes.artifacts.kit(key)
    if folder is None and key not in sandboxes.artifacts.failed_kits:
        with _kit_lock(sandboxes.artifacts, key) as has_lock:
            # Another worker builds the kit. This program is compiled without it instead of waiting.
            if not has_lock:
                return None
            files = [File(name, text.encode()) for name, text in kit.files.items()]
            job = make_job(commands, files, kit.keep, _KIT_LIMITS, environment=tool_environment(toolchain))
            with sandboxes.kit_builder() as sandbox:
                products = _run(sandbox, job, kit.keep)
            if isinstance(products, CompileFailure):
                sandboxes.artifacts.failed_kits.add(key)
                return None
            folder = sandboxes.artifacts.put_kit(key, unpack_files(products, kit.keep))
    if folder is None:
        return None
    return str(folder) if sandboxes.tier is Tier.RESTRICTED else f"/kit/{folder.name}"


@contextmanager
def _kit_lock(store: ArtifactStore, key: str) -> Generator[bool]:
    """Yield whether this process may build a kit now."""
    assert store.kits is not None
    fd = os.open(store.kits.parent / f"{key[:16]}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield store.kit(key) is None
    finally:
        os.close(fd)


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
