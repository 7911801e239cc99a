"""A Python program as a job: the payload of the ``script`` harness."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from whetstone.sandbox.job import Job, RunLimits
from whetstone.sandbox.tiers import SCRIPT
from whetstone.sandbox.zygote.script import CODE, MOST_CODE_BYTES, WITH_MORE

LENGTH_BYTES = 4
MOST_HANDED_OUT = LENGTH_BYTES + MOST_CODE_BYTES
"""What a run may write of its code: a length, and so many bytes."""


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


def script_job_with_code(source: bytes, code: bytes, limits: RunLimits, *, stdin: bytes = b"") -> Job:
    """The same for a program that runs again and again: ``code`` is what an earlier run handed out.

    Without any (empty), this run hands its own out: see ``handed_out``.
    """
    head = CODE + len(code).to_bytes(LENGTH_BYTES, "little")
    extra = 0 if code else MOST_HANDED_OUT
    return Job(SCRIPT, b"".join((head, code, source)), limits, stdin, result_extra=extra)


def handed_out(result: bytes) -> bytes:
    """The code in the result of a run that was to hand it out; empty if it did not come to that.

    Only of such a run: in it, what stands first was written before the program began. The code is to be
    loaded where programs run and nowhere else.
    """
    size = int.from_bytes(result[:LENGTH_BYTES], "little")
    code = result[LENGTH_BYTES : LENGTH_BYTES + size]
    return code if size <= MOST_CODE_BYTES and len(code) == size else b""
