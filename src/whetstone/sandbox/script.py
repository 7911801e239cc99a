"""A Python program as a job: the payload of the ``script`` harness."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from whetstone.sandbox.job import Job, RunLimits
from whetstone.sandbox.tiers import SCRIPT
from whetstone.sandbox.zygote.script import WITH_MORE


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
    if args or given or link is not None or source.startswith(WITH_MORE):
        entries = [(name, len(data)) for name, data in given.items()]
        head = json.dumps({"arguments": list(args), "files": entries, "source": len(source)})
        source = b"".join((WITH_MORE, head.encode(), b"\n", source, *given.values()))
    return Job(SCRIPT, source, limits, stdin, link)
