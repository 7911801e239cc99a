"""A Python program as a job: the payload of the ``script`` harness."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence

from whetstone.sandbox.job import Job, RunLimits
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
) -> Job:
    """A job that runs ``source`` as ``python main.py ARGS`` would, in a directory with ``files``.

    A file name that ends with ``/`` is an empty directory. With ``link``, a socket, that is the program's
    standard input and output.
    """
    given = dict(files or {})
    if args or given or link is not None or source.startswith((WITH_MORE, CODE)):
        entries = [(name, len(data)) for name, data in given.items()]
        head = json.dumps({"arguments": list(args), "files": entries, "source": len(source)})
        source = b"".join((WITH_MORE, head.encode(), b"\n", source, *given.values()))
    return Job(SCRIPT, source, limits, stdin, link)


def script_job_with_code(
    source: bytes, code: bytes, limits: RunLimits, *, stdin: bytes = b"", hand_out: HandedOut | None = None
) -> Job:
    """The same for a program that runs again and again: ``code`` is what an earlier run handed out.

    Without any (empty), this run compiles, and hands its own out where it is given ``hand_out``.
    """
    head = CODE + len(code).to_bytes(_LENGTH_BYTES, "little")
    link = None if hand_out is None else hand_out.link
    return Job(SCRIPT, b"".join((head, code, source)), limits, stdin, link)


class HandedOut:
    """The code that one run hands out, as its ``link``: to be loaded where programs run and nowhere else.

    The run closes its end before anything of the program begins. In the result, the program could read the
    code back where the pipe is its own user's, and leave another one to the next run.
    """

    def __init__(self) -> None:
        """For one run, which gets ``link`` and closes it here as well."""
        read, self.link = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._file = io.FileIO(read)

    def code(self) -> bytes:
        """What it handed out, after its end; empty if it did not come to that, or was too long. Only once."""
        with self._file as file:
            said = file.read(_LENGTH_BYTES + MOST_CODE_BYTES) or b""
        code = said[_LENGTH_BYTES:]
        return code if len(code) == int.from_bytes(said[:_LENGTH_BYTES], "little") else b""
