"""A program runs as Python itself would run it: streams, __main__, exit path, exit codes."""

import os
import signal

import pytest

from tests.beside import data_beside
from whetstone.sandbox import EndReason

DATA = data_beside(__file__)


@pytest.mark.parametrize(
    "source",
    DATA["streams"],
)
def test_every_way_to_read_and_write(run, source):
    result = run(source, b"1 2\n3\n")
    assert (result.ended, result.exit_code, result.stdout) == (EndReason.EXITED, 0, b"6\n"), result.stderr


@pytest.mark.parametrize(
    ("source", "code", "stderr"),
    [
        ("import sys; sys.exit()", 0, b""),
        ("exit(3)", 3, b""),
        ("raise SystemExit(259)", 3, b""),
        ("import sys; sys.exit('no way')", 1, b"no way\n"),
        ("import os; os._exit(9)", 9, b""),
        ("def f(): 1 / 0\nf()", 1, b"ZeroDivisionError: division by zero\n"),
        ("import sys; sys.excepthook = lambda *a: print('mine', file=sys.stderr)\n1/0", 1, b"mine\n"),
    ],
)
def test_exit_codes_and_errors_are_pythons(run, source, code, stderr):
    result = run("print('before')\n" + source)
    assert (result.ended, result.exit_code, result.signal) == (EndReason.EXITED, code, None)
    assert result.stderr.endswith(stderr)
    assert result.stdout == (b"" if "_exit" in source else b"before\n")


def test_a_traceback_shows_the_program_and_nothing_of_ours(run):
    result = run("def f():\n    return [][1]\nf()")
    lines = result.stderr.decode().splitlines()
    assert sum(line.startswith("  File ") for line in lines) == 2
    assert "    return [][1]" in lines
    assert b"harness" not in result.stderr


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGTERM", "SIGKILL", "SIGINT"])
def test_a_program_dies_of_its_own_signals(run, name):
    reset = "" if name in ("SIGKILL", "SIGINT") else f"signal.signal(signal.{name}, signal.SIG_DFL)\n"
    result = run(f"import os, signal\n{reset}os.kill(os.getpid(), signal.{name})\nimport time; time.sleep(5)")
    assert (result.ended, result.signal, result.exit_code) == (
        EndReason.SIGNALED,
        int(getattr(signal, name)),
        None,
    )


def test_abort_is_sigabrt(run):
    assert run("import os; os.abort()").signal == signal.SIGABRT


@pytest.mark.parametrize("source", ["def f(:", "x = 'abc", "a\0b", "return 1", "\tx\n  y", "(" * 300])
def test_a_program_that_does_not_compile_reports_the_error(run, source):
    result = run(source)
    assert result.result.startswith(b"compile_error: ")
    assert len(result.result) > len(b"compile_error: ")
    assert result.exit_code == 1
    assert result.stderr


def test_a_runtime_syntax_error_is_not_a_compile_error(run):
    result = run("eval('1 +')")
    assert (result.result, result.exit_code) == (b"", 1)


@pytest.mark.parametrize("program", DATA["prints"].values(), ids=DATA["prints"])
def test_a_program_prints_as_in_python(run, program):
    result = run(program["source"], b"real\n", memory_mb=program.get("memory_mb", 512))
    assert result.stdout == program["stdout"].encode(), (result.ended, result.signal, result.stderr[-300:])


def test_threads_run_and_are_joined(run):
    result = run(
        "import threading, time\n"
        "def work(i):\n    time.sleep(0.05)\n    print(i)\n"
        "for i in range(40): threading.Thread(target=work, args=(i,)).start()"
    )
    assert sorted(map(int, result.stdout.split())) == list(range(40))
    assert result.exit_code == 0


def test_random_differs_between_runs(run):
    assert (
        run("import random; print(random.random())").stdout
        != run("import random; print(random.random())").stdout
    )


def test_fifty_megabytes_in_and_out(run):
    data = os.urandom(1 << 20).hex().encode() * 25
    copy = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    result = run(copy, data, output_bytes=64 << 20)
    assert result.stdout == data
