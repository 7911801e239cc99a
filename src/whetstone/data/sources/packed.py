"""Values that datasets pack into text: JSON, Python literals, and base64 of compressed data or pickles.

A pickle is a program, and none is loaded here. A pickle of one text is read instruction by instruction. Every
other pickle is rejected.
"""

from __future__ import annotations

import ast
import base64
import binascii
import pickletools
import struct
import zlib
from typing import Any, cast

from whetstone.core.syntax import parse_expression
from whetstone.data.sources.source import Skip, parse_json

# Most bytes of decompressed tests; the largest known have a few hundred megabytes.
MOST_UNPACKED_BYTES = 1 << 29
_PIECE = 1 << 22
_TEXT_OPCODES = frozenset({"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"})
_HARMLESS_OPCODES = frozenset({"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"})


def unpack(text: str, what: str) -> Any:
    """Return the value of ``text``: JSON, the ``repr`` of plain Python data, or base64 of a zlib stream of
    these or of a pickled text of these.

    Raises Skip: "no_tests" for blank text, "broken_tests" for any other form. ``what`` names the field.
    """
    if not text.strip():
        raise Skip("no_tests", f"`{what}` is empty")
    found, value = _parse_plain(text)
    if found:
        return value
    data = _decompress(text)
    if data is not None:
        found, value = _parse_plain(_text_of(data, what))
        if found:
            return value
    raise Skip("broken_tests", f"`{what}` is neither JSON nor Python data: {text.strip()[:60]!r}…")


def unpickled_text(data: bytes) -> str:
    """Return the text in a pickle of any protocol, without executing it. Raises ValueError if it contains
    anything but one text."""
    text: str | None = None
    try:
        for opcode, argument, position in pickletools.genops(data):
            if opcode.name in _TEXT_OPCODES and text is None:
                text = cast(str, argument)
            elif opcode.name == "STOP" and text is not None and position == len(data) - 1:
                return text
            # Any other instruction could import and call something.
            elif opcode.name not in _HARMLESS_OPCODES:
                raise ValueError(f"the pickle contains more than one text: {opcode.name}")
    except (struct.error, OverflowError, IndexError) as error:
        raise ValueError(f"not a pickle: {error}") from None
    raise ValueError("the pickle ends early")


def _parse_plain(text: str) -> tuple[bool, Any]:
    """Return whether the text is JSON or a Python literal, and its value."""
    try:
        return True, parse_json(text, "")
    except Skip:
        pass
    try:
        return True, ast.literal_eval(parse_expression(text.strip()))
    except (ValueError, TypeError, RecursionError, MemoryError):
        return False, None


def _decompress(text: str) -> bytes | None:
    """Return the content of a base64 text of a zlib stream; None for other text.

    The size is checked while decompressing: rejected data costs little memory, whatever its full size.
    """
    try:
        packed = base64.b64decode(text.strip(), validate=True)
        # A small text may decompress to gigabytes, so the size is counted first without keeping the data.
        size = _unpacked_size(packed)
        return None if size is None else zlib.decompressobj().decompress(packed, size + 1)
    except (binascii.Error, ValueError, zlib.error):
        return None


def _unpacked_size(packed: bytes) -> int | None:
    """Return the decompressed size of a zlib stream in bytes; None if it is cut off. Raises Skip for too
    many."""
    stream, rest, size = zlib.decompressobj(), packed, 0
    while not stream.eof:
        piece = stream.decompress(rest, _PIECE)
        rest = stream.unconsumed_tail
        size += len(piece)
        if size > MOST_UNPACKED_BYTES:
            raise Skip("tests_too_large", f"more than {MOST_UNPACKED_BYTES >> 20} MB when decompressed")
        if not (piece or rest or stream.eof):
            return None
    return size


def _text_of(data: bytes, what: str) -> str:
    """Return decompressed data as text: a pickled text, or UTF-8."""
    try:
        return unpickled_text(data)
    except ValueError:
        pass
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Skip("broken_tests", f"`{what}` contains a pickle of something else than text") from None
