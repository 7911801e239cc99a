"""Every way in which honest programs print their answer and leave is accepted."""
# ruff: noqa: E501 (programs on one line each read better than wrapped)

from __future__ import annotations

from typing import Any

import pytest

from tests.judge.judge_problems import python, stdin_problem
from whetstone.judge import Judge

# All print the same two lines.
WANTED = "alpha 1\nbeta 2\n"

STYLES = {
    "print": "print('alpha', 1)\nprint('beta', 2)",
    "sep and end": "print('alpha', 1, 'beta', 2, sep=' ', end='\\n')",
    "end and flush": "print('alpha', end=' ', flush=True)\nprint(1)\nprint('beta 2', end='')",
    "file argument": "import sys\nprint('alpha 1\\nbeta 2', file=sys.stdout)",
    "one join": "out = ['alpha 1', 'beta 2']\nprint('\\n'.join(out))",
    "stdout.write": "import sys\nsys.stdout.write('alpha 1\\n')\nsys.stdout.write('beta 2')",
    "writelines": "import sys\nsys.stdout.writelines(f'{a} {b}\\n' for a, b in (('alpha', 1), ('beta', 2)))",
    "buffer": "import sys\nsys.stdout.buffer.write(b'alpha 1\\nbeta 2\\n')",
    "buffer after text": "import sys\nprint('alpha', 1, flush=True)\nsys.stdout.buffer.write(b'beta 2\\n')",
    "os.write": "import os\nos.write(1, b'alpha 1\\n')\nos.write(1, b'beta 2\\n')",
    "os.write after print": "import os, sys\nprint('alpha 1')\nsys.stdout.flush()\nos.write(1, b'beta 2\\n')",
    "open 1": "with open(1, 'w') as f:\n    print('alpha 1\\nbeta 2', file=f)",
    "open 1 kept open": "f = open(1, 'w', closefd=False)\nf.write('alpha 1\\n')\nf.close()\nprint('beta 2')",
    "open 1 left open": "f = open(1, 'w')\nf.write('alpha 1\\nbeta 2')",
    "fdopen": "import os\nf = os.fdopen(1, 'w')\nf.write('alpha 1\\nbeta 2\\n')\nf.flush()",
    "stdout replaced by a wrapper": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8', line_buffering=True)\nprint('alpha 1\\nbeta 2')",
    "stdout collected": "import io, sys\nreal, sys.stdout = sys.stdout, io.StringIO()\nprint('alpha 1\\nbeta 2')\nreal.write(sys.stdout.getvalue())",
    "redirect_stdout": "import contextlib, io\nb = io.StringIO()\nwith contextlib.redirect_stdout(b):\n    print('alpha 1\\nbeta 2')\nprint(b.getvalue(), end='')",
    "detach": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')\nprint('alpha 1\\nbeta 2')",
    "reconfigure": "import sys\nsys.stdout.reconfigure(encoding='utf-8', line_buffering=True)\nprint('alpha 1\\nbeta 2')",
    "dup2": "import os\nfd = os.dup(1)\nos.dup2(os.open('/dev/null', os.O_WRONLY), 1)\nprint('lost', flush=True)\nos.dup2(fd, 1)\nprint('alpha 1\\nbeta 2')",
    "print replaced": "import functools\nprint = functools.partial(print, flush=True)\nprint('alpha 1')\nprint('beta 2')",
    "carriage returns": "print('alpha 1', end='\\r\\n')\nprint('beta 2\\r')",
    "trailing blanks": "print('alpha 1 ')\nprint('beta', 2, ' \\n\\n')",
    "atexit": "import atexit\natexit.register(print, 'beta 2')\nprint('alpha 1')",
    "atexit in reverse order": "import atexit\n@atexit.register\ndef last(): print('beta 2')\n@atexit.register\ndef first(): print('alpha 1')",
    "destructor": "class A:\n    def __del__(self): print('beta 2')\na = A()\nprint('alpha 1')",
    "sys.exit": "import sys\nprint('alpha 1\\nbeta 2')\nsys.exit()",
    "sys.exit in a function": "import sys\ndef solve():\n    print('alpha 1\\nbeta 2')\n    sys.exit(0)\nsolve()\nprint('never')",
    "exit": "print('alpha 1\\nbeta 2')\nexit()",
    "quit": "print('alpha 1\\nbeta 2')\nquit(0)",
    "raise SystemExit": "print('alpha 1\\nbeta 2')\nraise SystemExit",
    "sys.exit of a main": "import sys\ndef main():\n    print('alpha 1\\nbeta 2')\n    return 0\nif __name__ == '__main__':\n    sys.exit(main())",
    "os._exit after a flush": "import os, sys\nprint('alpha 1\\nbeta 2')\nsys.stdout.flush()\nos._exit(0)",
    "exit with finally": "import sys\ntry:\n    print('alpha 1')\n    sys.exit()\nfinally:\n    print('beta 2')",
    "thread after the end of main": "import threading, time\ndef late():\n    time.sleep(0.02)\n    print('beta 2')\nthreading.Thread(target=late).start()\nprint('alpha 1')",
    "daemon thread left behind": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('alpha 1\\nbeta 2')",
    "stderr beside": "import sys\nprint('debug', file=sys.stderr)\nprint('alpha 1\\nbeta 2')\nsys.stderr.write('more\\n' * 1000)",
    "stderr closed": "import sys\nsys.stderr.close()\nprint('alpha 1\\nbeta 2')",
    "stdin closed": "import os, sys\nsys.stdin.close()\nprint('alpha 1\\nbeta 2')",
    "stdout closed by itself": "import sys\nprint('alpha 1\\nbeta 2')\nsys.stdout.close()",
    "logging": "import logging\nlogging.basicConfig(level=logging.DEBUG)\nlogging.debug('hm')\nprint('alpha 1\\nbeta 2')",
    "logging to stdout": "import logging, sys\nlogging.basicConfig(stream=sys.stdout, format='%(message)s', level=logging.INFO)\nlogging.info('alpha 1')\nlogging.info('beta 2')",
    "warnings": "import warnings\nwarnings.warn('old')\nprint('alpha 1\\nbeta 2')",
    "pprint": "from pprint import pprint\npprint('x', stream=open('/dev/null', 'w'))\nprint('alpha 1\\nbeta 2')",
    "format": "print('{:<5s} {:d}\\n{:s} {}'.format('alpha', 1, 'beta', 2))",
    "percent": "print('%s %d\\n%s %i' % ('alpha', 1, 'beta', 2))",
    "f-string": "a = ('alpha', 'beta')\nfor i, n in enumerate(a, 1):\n    print(f'{n} {i}')",
    "Template": "from string import Template\nprint(Template('$a 1\\n$b 2').substitute(a='alpha', b='beta'))",
}  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_every_way_to_print_and_leave_is_accepted(judge: Judge, style: str) -> None:
    judgement = judge.judge(stdin_problem(("", WANTED)), python(STYLES[style]))
    assert judgement.accepted, judgement


@pytest.mark.parametrize(
    ("source", "wanted", "mode"),
    [
        ("print('alpha\\r')", "alpha", "lines"),
        ("print('alpha', end='')", "alpha\r\n", "tokens"),
        ("print('alpha\\nbeta')", "alpha\r\nbeta\r\n", "lines"),
        ("print('alpha\\n\\nbeta')", "alpha\r\n\r\nbeta", "lines"),
        ("print('é ∑ 日本')", "é ∑ 日本", "exact"),
        ("import sys\nsys.stdout.buffer.write(b'ok \\xff\\xfe\\n')", "ok \ufffd", "refused"),
        ("print(0.1 + 0.2)", "0.3", "tokens"),
        ("print(f'{1/3:.6f}')", "0.3333333333", "tokens"),
        ("print(1e20)", "100000000000000000000.0", "tokens"),
        ("print(-0.0)", "0.0", "tokens"),
        ("print('YES')", "yes", "ignore_case"),
        ("print('b 1\\na 2')", "a 2\nb 1", "unordered_lines"),
    ],
)
def test_outputs_that_mean_the_same_are_the_same(judge: Judge, source: str, wanted: str, mode: str) -> None:
    compare: dict[str, Any] = {} if mode == "refused" else {"compare": {"mode": mode}}
    wanted += "\n" if mode == "exact" else ""
    judgement = judge.judge(stdin_problem(("", wanted), **compare), python(source))
    assert judgement.accepted is (mode != "refused"), judgement


def test_bytes_that_are_no_text_reach_a_checker(judge: Judge) -> None:
    checker = {
        "type": "python",
        "source": "def check(input, output, expected): return output.startswith('ok')",
    }
    source = "import sys\nsys.stdout.buffer.write(b'ok \\xff\\xfe\\x00\\n')"
    assert judge.judge(stdin_problem(("", "ok"), checker=checker), python(source)).accepted


def test_a_prompt_is_output_as_python_has_it(judge: Judge) -> None:
    problem = stdin_problem(("5\n", "Number: 10"))
    assert judge.judge(problem, python("print(2 * int(input('Number: ')))")).accepted
