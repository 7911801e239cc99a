"""A program runs as Python itself would run it: streams, __main__, exit path, exit codes."""

import os
import signal

import pytest

from whetstone.sandbox import EndReason


@pytest.mark.parametrize(
    "source",
    [
        "print(sum(map(int, input().split())) + int(input()))",
        "import sys; print(sum(map(int, sys.stdin.read().split())))",
        "import sys; sys.stdout.write(str(sum(map(int, sys.stdin.buffer.read().split()))) + '\\n')",
        "print(sum(map(int, open(0).read().split())))",
        "import os; os.write(1, b'%d\\n' % sum(map(int, os.read(0, 9999).split())))",
        "import sys\nwords = [w for line in sys.stdin.buffer for w in line.split()]\n"
        "sys.stdout.buffer.write(b'%d\\n' % sum(map(int, words)))",
        "import fileinput; print(sum(int(w) for line in fileinput.input() for w in line.split()))",
        "import io, os, sys\nsys.stdin = io.TextIOWrapper(io.BytesIO(os.read(0, os.fstat(0).st_size)))\n"
        "print(int(input()[0]) + 5)",
        "import sys\nfrom threading import Thread\n"
        "Thread(target=lambda: print(sum(map(int, sys.stdin.read().split())))).start()",
        "out = open(1, 'w')\nout.write('6\\n')",
        "import atexit; atexit.register(print, 6)",
        "class Late:\n    def __del__(self): print(6)\nlate = Late()",
        "import sys, io\nsys.stdout = io.TextIOWrapper(open(1, 'wb', closefd=False))\nprint(6)",
        "import asyncio\nasync def main(): await asyncio.sleep(0); print(6)\nasyncio.run(main())",
    ],
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


def test_main_is_a_real_module_in_a_real_file(run):
    result = run(
        "import inspect, linecache, os, pickle, sys, typing\n"
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Point:\n"
        "    x: 'int'\n"
        "assert pickle.loads(pickle.dumps(Point(3))) == Point(3)\n"
        "assert typing.get_type_hints(Point) == {'x': int}\n"
        "assert sys.modules['__main__'].Point is Point and __name__ == '__main__'\n"
        "assert sys.argv == [__file__]\n"
        "assert open(__file__).readline() == linecache.getline(__file__, 1) != ''\n"
        "assert inspect.getsource(Point).startswith('@dataclass')\n"
        "assert __spec__ is None and __package__ is None\n"
        "assert os.getcwd() == os.path.dirname(__file__) == sys.path[0]\n"
        "print('ok')"
    )
    assert result.stdout == b"ok\n", result.stderr


def test_deep_recursion_is_bounded_by_memory_alone(run):
    result = run(
        "import sys\nsys.setrecursionlimit(10**6)\n"
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(200_000))\n"
        "class Deep:\n"
        "    def __init__(self, n): self.n = n\n"
        "    def __repr__(self): return '.' if self.n == 0 else repr(Deep(self.n - 1))\n"
        # through C code: 200 MB of C stack and more, which 8 MB would not hold
        "print(repr(Deep(100_000)) if sys.version_info < (3, 12) else '.')",
        memory_mb=2048,
        cpu_s=20,
    )
    assert result.stdout == b"200000\n.\n", (result.ended, result.signal, result.stderr[-300:])


def test_the_programs_recursion_limit_is_its_own(run):
    source = "def f(n): return 0 if n == 0 else f(n - 1)\nprint(f(996))"
    assert run(source).stdout == b"0\n"


def test_deep_recursion_in_a_thread(run):
    result = run(
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(256 << 20)\n"
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)\n"
        "t = threading.Thread(target=lambda: print(f(100_000)))\nt.start()\nt.join()",
        cpu_s=20,
    )
    assert result.stdout == b"100000\n"


def test_threads_run_and_are_joined(run):
    result = run(
        "import threading, time\n"
        "def work(i):\n    time.sleep(0.05)\n    print(i)\n"
        "for i in range(40): threading.Thread(target=work, args=(i,)).start()"
    )
    assert sorted(map(int, result.stdout.split())) == list(range(40))
    assert result.exit_code == 0


def test_integers_print_at_any_size(run):
    assert len(run("print(1 << 40000)").stdout) > 12000


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


def test_stdin_cannot_be_written(run):
    result = run(
        "import os\ntry: os.write(0, b'x')\nexcept OSError: print('refused')\nprint(input())", b"real\n"
    )
    assert result.stdout == b"refused\nreal\n"
