"""The builtin harness ``script``: the payload is a Python program, run as ``python main.py`` would run it.

The program is a real ``__main__`` from a real file in the private directory, with the real
descriptors 0, 1 and 2. If its source does not compile, the result is ``COMPILE_ERROR`` and why, the error
is on stderr and the exit code is 1; like all result bytes this is a hint, which a program can forge to
its own disadvantage only.

A payload that begins with a zero byte, which no Python source does, has a line of JSON before the source:
arguments, files and a link (see ``whetstone.sandbox.script``).

One that begins with ``CODE`` has a length (four bytes, the lowest first) and so many bytes of marshalled code
before the source, which an earlier run of this source handed out. Without any, this run hands its own out
where it has a link: a length and code, written there before anything of the program runs, and closed.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import sys
import types

from .files_and_streams import pipe_input, put_files, talk_over

COMPILE_ERROR = b"compile_error: "
WITH_MORE, CODE = b"\0", b"\1"
_WANTS_A_PIPE = b"connect_read_pipe"
MOST_CODE_BYTES = 32 << 10
"""Longer code is not handed out: the pipe takes this much, and nobody reads it yet."""
_MOST_SAID = 300
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_open, _write, _close = os.open, os.write, os.close
_unmarshalled = marshal.loads


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Run ``payload`` as the program, in the ``__main__`` that is there."""
    given = hand_out = None
    if payload[:1] == WITH_MORE:
        payload, arguments = _prepared(payload, link_fd)
        sys.argv += arguments
        sys.orig_argv += arguments
    elif payload[:1] == CODE:
        end = 5 + int.from_bytes(payload[1:5], "little")
        given, payload = payload[5:end], payload[end:]
        hand_out, link_fd = link_fd, None
    scope = sys.modules["__main__"].__dict__
    path = scope["__file__"]
    put_program(payload, path)
    if _WANTS_A_PIPE in payload and link_fd is None:
        pipe_input()
    sys.path.insert(0, os.path.dirname(path))
    code = (
        compiled(payload, path, result_fd)
        if given is None
        else _code(given, payload, path, result_fd, hand_out)
    )
    exec(code, scope)


def put_program(source: bytes, path: str) -> None:
    """Write the program to its file. Raises OSError."""
    # Not through a file object: what a run touches is copied for it, and that is most of its cost.
    fd = _open(path, _NEW_FILE, 0o666)
    at = 0
    while at < len(source):
        at += _write(fd, source[at:])
    _close(fd)


def _prepared(payload: bytes, link_fd: int | None) -> tuple[bytes, list[str]]:
    """Give the program what its payload names; the source and the arguments."""
    line, _, rest = payload[1:].partition(b"\n")
    request = json.loads(line)
    if link_fd is not None:
        talk_over(link_fd)
    put_files(request["files"], memoryview(rest)[request["source"] :])
    return rest[: request["source"]], request["arguments"]


def _code(given: bytes, source: bytes, path: str, result_fd: int, hand_out: int | None) -> types.CodeType:
    """The program's code from what was given; or compiled, and handed out."""
    if given:
        code: types.CodeType = _unmarshalled(given)
        # It names the file that it was compiled as, which a later fork-server may have elsewhere.
        return code if code.co_filename == path else compiled(source, path, result_fd)
    code = compiled(source, path, result_fd)
    if hand_out is None:
        return code
    data = b""
    if len(source) <= MOST_CODE_BYTES:  # its code is hardly shorter, and making these bytes takes memory
        with contextlib.suppress(ValueError):  # nested too deeply
            data = marshal.dumps(code)
        if len(data) > MOST_CODE_BYTES:
            data = b""
    _write(hand_out, len(data).to_bytes(4, "little") + data)
    _close(hand_out)
    return code


def compiled(source: bytes, path: str, result_fd: int) -> types.CodeType:
    """The program's code. One that does not compile says so and exits with 1, as Python does."""
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError) as error:
        os.write(result_fd, COMPILE_ERROR + str(error)[:_MOST_SAID].encode("utf-8", "backslashreplace"))
        sys.excepthook(type(error), error.with_traceback(None), None)
        raise SystemExit(1) from None
