"""The builtin harness ``script``: the payload is a Python program, which runs as with ``python main.py``.

The program is a real ``__main__`` from a real file in the private directory, with the real descriptors 0, 1
and 2. If its source does not compile, the result is ``COMPILE_ERROR`` with the reason, the error is on
stderr, and the exit code is 1. Like all result bytes this is only a hint, and a program gains nothing by
forging it.

A payload may begin with a zero byte, which no Python source does. It then has a line of JSON before the
source: arguments, files and a link (see ``whetstone.sandbox.script``).

A payload that begins with ``CODE`` has a length (four bytes, little-endian) and marshalled code before the
source, from an earlier run of this source. If the code is empty and there is a link, this run writes its own
code to the link: a length and the code. It does so before any part of the program runs, and then closes the
link.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import sys
import types

from .files_and_streams import pipe_input, use_as_streams, write_files
from .program import set_main

COMPILE_ERROR = b"compile_error: "
WITH_MORE, CODE = b"\0", b"\1"
_WANTS_A_PIPE = b"connect_read_pipe"
# Longer code is not sent. It must fit into the buffer of the pipe, because it is written before anyone reads.
MOST_CODE_BYTES = 32 << 10
_MAX_REASON = 300
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_open, _write, _close = os.open, os.write, os.close
_unmarshal = marshal.loads


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run ``payload`` as the program, in the prepared ``__main__``."""
    given = hand_out = None
    if payload[:1] == WITH_MORE:
        payload, arguments = _prepare(payload, link_fd)
        sys.argv += arguments
        sys.orig_argv += arguments
    elif payload[:1] == CODE:
        end = 5 + int.from_bytes(payload[1:5], "little")
        given, payload = payload[5:end], payload[end:]
        hand_out, link_fd = link_fd, None
    scope = set_main(sys.modules["__main__"].__dict__)
    path = scope["__file__"]
    write_program(payload, path)
    if _WANTS_A_PIPE in payload and link_fd is None:
        pipe_input()
    sys.path.insert(0, os.path.dirname(path))
    code = (
        compile_program(payload, path, result_fd)
        if given is None
        else _load_or_compile(given, payload, path, result_fd, hand_out)
    )
    exec(code, scope)


def write_program(source: bytes, path: str) -> None:
    """Write the program to its file. Raises OSError."""
    # Not through a file object: a run copies every page that it touches, which is most of its cost.
    fd = _open(path, _NEW_FILE, 0o666)
    at = 0
    while at < len(source):
        at += _write(fd, source[at:])
    _close(fd)


def _prepare(payload: bytes, link_fd: int | None) -> tuple[bytes, list[str]]:
    """Set up the link and the files of the payload. Returns the source and the arguments."""
    line, _, rest = payload[1:].partition(b"\n")
    request = json.loads(line)
    if link_fd is not None:
        use_as_streams(link_fd)
    write_files(request["files"], memoryview(rest)[request["source"] :])
    return rest[: request["source"]], request["arguments"]


def _load_or_compile(
    given: bytes, source: bytes, path: str, result_fd: int, hand_out: int | None
) -> types.CodeType:
    """Return the program's code from ``given``, or compile it and write it to ``hand_out``."""
    if given:
        code: types.CodeType = _unmarshal(given)
        # Code contains the path of its file, which may differ in a later fork-server.
        return code if code.co_filename == path else compile_program(source, path, result_fd)
    code = compile_program(source, path, result_fd)
    if hand_out is None:
        return code
    data = b""
    if (
        len(source) <= MOST_CODE_BYTES
    ):  # the code of a longer source is hardly shorter, and marshalling it takes memory
        with contextlib.suppress(ValueError):  # the code is nested too deeply for marshal
            data = marshal.dumps(code)
        if len(data) > MOST_CODE_BYTES:
            data = b""
    _write(hand_out, len(data).to_bytes(4, "little") + data)
    _close(hand_out)
    return code


def compile_program(source: bytes, path: str, result_fd: int) -> types.CodeType:
    """Return the program's code. If it does not compile, report that and exit with 1, as Python does."""
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError) as error:
        os.write(result_fd, COMPILE_ERROR + str(error)[:_MAX_REASON].encode("utf-8", "backslashreplace"))
        sys.excepthook(type(error), error.with_traceback(None), None)
        raise SystemExit(1) from None
