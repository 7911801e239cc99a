"""From a source to what runs: once for each program, in a sandbox where no program ever runs."""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from whetstone.judge.boxes import Boxes
from whetstone.judge.languages.artifacts import ArtifactStore
from whetstone.judge.languages.toolchains import Toolchain
from whetstone.judge.outcome import last_line, signal_name, starved
from whetstone.sandbox import Ended, Job, RunLimits, Sandbox, Tier
from whetstone.sandbox.execute import Failed, File, NotExecuted, made, make_job, unpacked

COMPILE_LIMITS = RunLimits(cpu_s=30.0, memory_bytes=2 << 30, output_bytes=64 << 20, wall_s=120.0)
_KIT_LIMITS = RunLimits(cpu_s=120.0, memory_bytes=2 << 30, output_bytes=1 << 30, wall_s=100.0)
_FORMAT = 1  # of what is kept; a new number forgets the old
_REASON_CHARACTERS = 300
_ENDED = {
    Ended.CPU_LIMIT: f"the compiler used its CPU time of {COMPILE_LIMITS.cpu_s:.0f} s",
    Ended.WALL_LIMIT: "the compiler did not end in time",
    Ended.MEMORY_LIMIT: f"the compiler used more than {COMPILE_LIMITS.memory_bytes >> 20} MiB of memory",
    Ended.OUTPUT_LIMIT: f"the compiler wrote more than {COMPILE_LIMITS.output_bytes >> 20} MiB",
}


@dataclass(frozen=True)
class CompileFailure:
    """The source does not compile, for the ``reason``: the first error, or the limit that was exceeded."""

    reason: str


@dataclass(frozen=True)
class Compiled:
    """What a compiler made, and the names with which a language's command to run is filled in."""

    files: tuple[File, ...]
    names: Mapping[str, str]


def compiled(boxes: Boxes, found: Toolchain, source: bytes) -> Compiled | CompileFailure:
    """Compile ``source``, or find what was made of it before. Raises SandboxFault if it cannot be tried."""
    language = found.language
    names = _names(found, source)
    plain = _filled(language.compile, found, names, None)
    key = _key(found, plain, source.hex())
    products = boxes.artifacts.get(key)
    if products is None:
        kit = _kit(boxes, found)
        use = language.kit.use if language.kit is not None and kit is not None else ()
        job = make_job(
            _filled((*use, *language.compile), found, names, kit),
            [File(names["source"], source)],
            language.keep,
            COMPILE_LIMITS,
            environment=environment(found),
            space_bytes=language.compile_space_mb << 20,
        )
        answer = _run(boxes.compiler, job, language.keep)
        if isinstance(answer, CompileFailure):
            return answer
        boxes.artifacts.put(key, products := answer)
    return Compiled(tuple(unpacked(products, language.keep)), names)


def environment(found: Toolchain) -> dict[str, str]:
    """The variables for a language's tools and programs, on top of a sandbox's own."""
    return {name: value.format(home=found.home) for name, value in found.language.environment.items()}


def _names(found: Toolchain, source: bytes) -> dict[str, str]:
    language = found.language
    if language.places is None:
        return {"source": language.source, "main": ""}
    file_name, main = language.places(source.decode("utf-8", "replace"))
    return {"source": file_name, "main": main}


def _filled(
    commands: tuple[tuple[str, ...], ...], found: Toolchain, names: Mapping[str, str], kit: str | None
) -> list[list[str]]:
    values = {**names, "tool": found.tools, "home": found.home, "kit": kit}
    return [
        [word.format_map(values) for word in words if kit is not None or "{kit}" not in word]
        for words in commands
    ]


def _key(found: Toolchain, commands: list[list[str]], content: str) -> str:
    parts = [_FORMAT, found.language.name, found.identity, commands, environment(found), content]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _run(sandbox: Sandbox, job: Job, keep: Sequence[str]) -> bytes | CompileFailure:
    """The products, or why there are none. What a limit ended is tried once more before it counts.

    Raises NotExecuted where the compiler got no core.
    """
    result = sandbox.run(job)
    if result.ended is not Ended.EXITED:
        result = sandbox.run(job)
    if result.ended is Ended.STARVED:
        raise NotExecuted(starved("the compiler", result))
    if result.ended is Ended.EXITED and not result.result:  # the source, or its products, found no room
        return CompileFailure(f"the compiler left nothing: {last_line(result.stderr)}")
    if result.ended is Ended.EXITED:
        return _answer(result.result, keep)
    return CompileFailure(_ENDED.get(result.ended, f"the compiler was ended by {signal_name(result.signal)}"))


def _answer(result: bytes, keep: Sequence[str]) -> bytes | CompileFailure:
    """The products in what the compiler's sandbox answered. A malformed answer is the source's doing.

    Raises NotExecuted where a compiler could not be started.
    """
    try:
        answer = made(result)
        if isinstance(answer, Failed):
            return CompileFailure(_first_error(answer))
        unpacked(answer, keep)
    except ValueError as error:
        return CompileFailure(f"the compiler's answer is malformed: {error}")
    return answer


def _first_error(failed: Failed) -> str:
    """The first line of a compiler's messages that speaks of an error, with its place if that follows."""
    lines = [line.strip() for line in failed.said.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if "error" in line.lower():
            place = next((where for where in lines[number + 1 : number + 2] if where.startswith("-->")), "")
            return f"{line} {place}".strip()[:_REASON_CHARACTERS]
    plain = [line for line in lines if not line.startswith("#")]
    if plain:
        return plain[0][:_REASON_CHARACTERS]
    if failed.code < 0:
        return f"the compiler was ended by {signal_name(-failed.code)}"
    return f"the compiler failed with exit code {failed.code}"


def _kit(boxes: Boxes, found: Toolchain) -> str | None:
    """The folder of what the compiler prepares once; None where there is none, which costs only time."""
    kit = found.language.kit
    # Below the first tier root compiles as an ordinary user, who cannot enter the folder of root's kits.
    hidden = boxes.tier is not Tier.ROOT and os.geteuid() == 0
    if kit is None or boxes.artifacts.kits is None or hidden:
        return None
    if kit.unless and glob.glob(os.path.join(found.home, kit.unless)):
        return None
    commands = _filled(kit.commands, found, {}, None)
    key = _key(found, commands, json.dumps([kit.files, kit.keep]))
    folder = boxes.artifacts.kit(key)
    if folder is None and not boxes.artifacts.gave_up_kit(key):
        with _only_one(boxes.artifacts, key) as ours:
            if not ours:
                return None  # another worker is at it; this program compiles without
            files = [File(name, text.encode()) for name, text in kit.files.items()]
            job = make_job(commands, files, kit.keep, _KIT_LIMITS, environment=environment(found))
            with boxes.kit_builder() as sandbox:
                products = _run(sandbox, job, kit.keep)
            if isinstance(products, CompileFailure):
                boxes.artifacts.give_up_kit(key)
                return None
            folder = boxes.artifacts.put_kit(key, unpacked(products, kit.keep))
    if folder is None:
        return None
    return str(folder) if boxes.tier is Tier.RESTRICTED else f"/kit/{folder.name}"


@contextmanager
def _only_one(store: ArtifactStore, key: str) -> Generator[bool]:
    """Whether this process is the one that may build a kit now."""
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
