"""A Python program as a job: the payloads and results of the harnesses ``script`` and ``sequence``."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whetstone.sandbox.job import EndReason, RunLimits, RunResult, SandboxJob
from whetstone.sandbox.tiers import SCRIPT, SEQUENCE
from whetstone.sandbox.zygote.run_script import CODE, MOST_CODE_BYTES, WITH_MORE
from whetstone.sandbox.zygote.run_sequence import SUCCEEDED

_LENGTH_BYTES = 4
_MARKER_BYTES = 16


def script_job(
    source: bytes,
    limits: RunLimits,
    *,
    stdin: bytes = b"",
    args: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
    link: int | None = None,
) -> SandboxJob:
    """Return a job that runs ``source`` like ``python main.py ARGS`` in a directory with ``files``.

    A file name that ends with ``/`` is an empty directory. ``link``, a socket, becomes the program's standard
    input and output.
    """
    contents = dict(files or {})
    if args or contents or link is not None or source.startswith((WITH_MORE, CODE)):
        entries = [(name, len(data)) for name, data in contents.items()]
        head = json.dumps({"arguments": list(args), "files": entries, "source": len(source)})
        source = b"".join((WITH_MORE, head.encode(), b"\n", source, *contents.values()))
    return SandboxJob(SCRIPT, source, limits, stdin, link)


def script_job_with_code(
    source: bytes, code: bytes, limits: RunLimits, *, stdin: bytes = b"", hand_out: LinkedCode | None = None
) -> SandboxJob:
    """Return a job like that of ``script_job``, for a program that runs repeatedly.

    ``code`` is the compiled code of an earlier run. If it is empty, this run compiles, and passes its code to
    ``hand_out`` if given.
    """
    head = CODE + len(code).to_bytes(_LENGTH_BYTES, "little")
    link = None if hand_out is None else hand_out.link
    return SandboxJob(SCRIPT, b"".join((head, code, source)), limits, stdin, link)


class LinkedCode:
    """Compiled code that one run passes out over its ``link``, for use inside sandboxes only.

    The run closes its end before the program begins. The code is not a part of the result, which a program
    could read back where the pipe belongs to its own user. It could then leave other code for the next run.
    """

    def __init__(self) -> None:
        """The pipe is for a single run, which gets ``link`` and closes it here too."""
        read, self.link = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._file = io.FileIO(read)

    def code(self) -> bytes:
        """Return the code after the end of the run; empty if there was none or it was too long. Call once."""
        with self._file as file:
            message = file.read(_LENGTH_BYTES + MOST_CODE_BYTES) or b""
        code = message[_LENGTH_BYTES:]
        return code if len(code) == int.from_bytes(message[:_LENGTH_BYTES], "little") else b""


@dataclass(frozen=True)
class _Claim:
    """What the program claims about one input: that the run ended normally, and its output."""

    succeeded: bool
    stdout: bytes


@dataclass(frozen=True)
class _SequenceJob:
    """A job, and the marker that separates its outputs."""

    job: SandboxJob
    marker: bytes

    def claims(self, result: RunResult) -> list[_Claim]:
        """Return the runs that completed, in order. Empty if the process as a whole did not end normally.

        The program controls the process and can claim anything.
        """
        if result.ended is not EndReason.EXITED or result.exit_code != 0:
            return []
        output, *later = result.stdout.split(self.marker)
        claims: list[_Claim] = []
        for part in later:
            claims.append(_Claim(part[:1] == SUCCEEDED, output))
            output = part[1:]
        # Output after the last marker belongs to a run that did not complete, or was written too late.
        return claims[:-1] if output else claims


def sequence_job(source: bytes, inputs: Sequence[bytes], limits: RunLimits) -> _SequenceJob:
    """Return a job that runs ``source`` on each of ``inputs``, within ``limits`` for all of them together.

    It stops between two runs when half of the CPU time is used, or when a run leaves threads behind.
    """
    marker = os.urandom(_MARKER_BYTES)
    head = {
        "marker": marker.hex(),
        "source": len(source),
        "inputs": [len(text) for text in inputs],
        "cpu_s": limits.cpu_s,
    }
    payload = b"".join((json.dumps(head).encode(), b"\n", source, *inputs))
    return _SequenceJob(SandboxJob(SEQUENCE, payload, limits), marker)
