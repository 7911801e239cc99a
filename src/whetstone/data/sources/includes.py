"""C++ checkers that are more than one file: their local headers are written into the source.

testlib.h is not part of any dataset, nor of this package: ``WHETSTONE_TESTLIB`` names a copy of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from whetstone.errors import UserError

TESTLIB = "WHETSTONE_TESTLIB"
_LOCAL = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">][^\n]*$', re.MULTILINE)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[^\n]*$", re.MULTILINE)


def with_headers(source: str, headers: Mapping[str, str]) -> str:
    """``source`` with each header of ``headers``, by its name, in the place of the line that includes it.

    A header is written once, where it is first included, as ``#pragma once`` asks for.
    """
    written: set[str] = set()

    def replace(found: re.Match[str]) -> str:
        name = Path(found[1]).name
        if name not in headers:
            return found[0]
        if name in written:
            return ""
        written.add(name)
        return _LOCAL.sub(replace, _ONCE.sub("", headers[name]))

    return _LOCAL.sub(replace, source)


def with_testlib(source: str, whose: str) -> str:
    """The source of a checker, complete. Raises UserError where it needs testlib.h and there is none."""
    if not re.search(r'#[ \t]*include[ \t]*["<]testlib\.h[">]', source):
        return source
    return with_headers(source, {"testlib.h": _testlib(whose)})


def _testlib(whose: str) -> str:
    path = os.environ.get(TESTLIB)
    if not path:
        raise UserError(
            f"{whose} has checkers that include testlib.h: get it from "
            f"https://github.com/MikeMirzayanov/testlib, and say where it is: {TESTLIB}=PATH/testlib.h"
        )
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{TESTLIB}={path}: cannot be read: {error.strerror or error}") from None
