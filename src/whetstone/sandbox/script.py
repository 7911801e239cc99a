"""A Python program as a job: the payload of the ``script`` harness."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence

from whetstone.sandbox.job import RunLimits, SandboxJob
from whetstone.sandbox.tiers import SCRIPT
from whetstone.sandbox.zygote.run_script import CODE, MOST_CODE_BYTES, WITH_MORE

_LENGTH_BYTES = 4


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
