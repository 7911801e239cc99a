"""A program whose code an earlier run handed out behaves as one that was compiled; no other code is taken."""

import os

import pytest

from tests.beside import data_beside
from whetstone.sandbox import RunLimits, RunResult, Sandbox
from whetstone.sandbox.script import LinkedCode, script_job, script_job_with_code

DATA = data_beside(__file__)

LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 16)
LONG = "numbers = [" + ", ".join(f"'{n:x}'" for n in range(20_000)) + "]\n"
# The result descriptor is the one a program did not open, above the standard streams.
WRITE_RESULT = DATA["write_result"]
FORGED = WRITE_RESULT + DATA["forged"]


def handing_out(sandbox: Sandbox, source: str, stdin: bytes = b"") -> tuple[RunResult, bytes]:
    """A run that hands out, and what it handed out."""
    hand_out = LinkedCode()
    job = script_job_with_code(source.encode(), b"", LIMITS, stdin=stdin, hand_out=hand_out)
    return sandbox.run(job), hand_out.code()


def twice(sandbox: Sandbox, source: str, stdin: bytes = b"") -> tuple[RunResult, RunResult, bytes]:
    """A run that hands out, one that is given what it handed out, and that."""
    first, code = handing_out(sandbox, source, stdin)
    return first, sandbox.run(script_job_with_code(source.encode(), code, LIMITS, stdin=stdin)), code


def seen(result: RunResult) -> tuple[object, ...]:
    return result.ended, result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    "source",
    [
        "print(input())",
        "# coding: latin-1\nprint(len('\u00e9'))",
        "def f(n):\n    return 1 / n\nimport inspect\nprint(inspect.getsource(f), __file__, __name__)\nf(0)",
        "from __future__ import annotations\ndef f(a: b) -> c: 'doc'\nprint(f.__annotations__, f.__doc__)",
        "import sys\nprint(sys._getframe().f_code.co_filename == __file__, sys.argv)\nsys.exit(3)",
        "assert input() == 'x', 'no'",
        LONG + "print(len(numbers))",
    ],
)
def test_a_program_cannot_tell_that_its_code_was_given(sandbox, source):
    plain = sandbox.run(script_job(source.encode(), LIMITS, stdin=b"y\n"))
    first, second, code = twice(sandbox, source, b"y\n")
    assert seen(plain) == seen(first) == seen(second)
    assert bool(code) == (source[: len(LONG)] != LONG)


def test_code_is_handed_out_once_compiled_and_used_instead_of_the_source(sandbox):
    _, _, code = twice(sandbox, "print(6)")
    assert code
    other = sandbox.run(script_job_with_code(b"print(7)", code, LIMITS))
    assert other.stdout == b"6\n"


@pytest.mark.parametrize("longer", ["", LONG], ids=["short", "too long to be handed out"])
def test_bytes_in_the_result_are_not_taken_as_code(sandbox, longer):
    first, second, _ = twice(sandbox, longer + FORGED + "print('own')\n")
    assert b"forged" in first.result
    assert (first.stdout, second.stdout) == (b"own\n", b"own\n")


def test_a_source_that_does_not_compile_hands_nothing_out(sandbox):
    first, code = handing_out(sandbox, "def f(:")
    assert (first.exit_code, code) == (1, b"")
    assert first.result == b"compile_error: invalid syntax (main.py, line 1)"
    assert b"SyntaxError" in first.stderr


def test_a_source_that_looks_like_a_payload_with_code_is_a_source(sandbox):
    result = sandbox.run(script_job(b"\1\0\0\0\0print(6)", LIMITS))
    assert (result.exit_code, result.stdout) == (1, b"")
    assert result.result.startswith(b"compile_error: ")


@pytest.mark.parametrize("said", [b"", b"\5\0", b"\5\0\0\0code", b"\xff\xff\xff\xff", b"\1\0\0\0code"])
def test_incomplete_or_longer_messages_are_no_code(said):
    hand_out = LinkedCode()
    os.write(hand_out.link, said)
    os.close(hand_out.link)
    assert hand_out.code() == b""
