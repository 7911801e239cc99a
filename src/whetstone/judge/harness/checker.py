"""In the testing process: a problem's own checker decides whether an output is right. See ``asking``."""

from __future__ import annotations

import os

from whetstone.judge.harness.asking import loaded, said
from whetstone.judge.harness.loading import limit_digits, write_all
from whetstone.judge.values import decode, encode


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Call ``check(input, output, expected)`` and write what it says."""
    source, given, output, expected = decode(payload)
    limit_digits(given, expected)
    check = loaded(source, "check")
    answer = said(lambda: check(given, output, expected), "check") if callable(check) else check
    write_all(result_fd, encode(answer))
    os._exit(0)
