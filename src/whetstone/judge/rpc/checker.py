"""In the test process: run a problem's Python checker. See ``checker_call``."""

from __future__ import annotations

import os

from whetstone.judge.rpc.checker_call import load_function, run_decision
from whetstone.judge.rpc.loading import limit_digits, write_all
from whetstone.judge.values import decode, encode


def main(payload: bytes, result_fd: int, link_fd: int | None) -> None:
    """Call ``check(input, output, expected)`` and write its decision."""
    source, input_text, output, expected = decode(payload)
    limit_digits(input_text, expected)
    check = load_function(source, "check")
    answer = run_decision(lambda: check(input_text, output, expected), "check") if callable(check) else check
    write_all(result_fd, encode(answer))
    os._exit(0)
