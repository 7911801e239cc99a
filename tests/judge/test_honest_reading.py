"""Every way in which honest programs read standard input is accepted."""
# ruff: noqa: E501 (programs on one line each read better than wrapped)

from __future__ import annotations

import pytest

from tests.judge.judge_problems import python, stdin_problem
from whetstone.judge import Judge

# Two numbers, a list, and a last line without a newline; the answer is the sum of all numbers.
GIVEN = "2 3\n10 20 30\n\n40"
WANTED = "105\n"

STYLES = {
    "input until EOFError": "s = 0\ntry:\n    while True:\n        s += sum(map(int, input().split()))\nexcept EOFError:\n    pass\nprint(s)",
    "input by count": "a, b = map(int, input().split())\ns = a + b + sum(map(int, input().split()))\ninput()\nprint(s + int(input()))",
    "input through a map": "lines = [*iter(lambda: input() if True else '', '40')]\nprint(sum(int(x) for l in lines for x in l.split()) + 40)",
    "prompt to stdout is part of the output": "n = input('')\nimport sys\nprint(sum(map(int, (n + ' ' + sys.stdin.read()).split())))",
    "iterate stdin": "import sys\nprint(sum(int(x) for line in sys.stdin for x in line.split()))",
    "enumerate stdin": "import sys\nt = 0\nfor i, line in enumerate(sys.stdin):\n    t += sum(map(int, line.split()))\nprint(t)",
    "read": "import sys\nprint(sum(map(int, sys.stdin.read().split())))",
    "read by characters": "import sys\nt = ''\nwhile c := sys.stdin.read(1):\n    t += c\nprint(sum(map(int, t.split())))",
    "readline until empty": "import sys\ns = 0\nwhile line := sys.stdin.readline():\n    s += sum(map(int, line.split()))\nprint(s)",
    "readline renamed": "import sys\ninput = sys.stdin.readline\na, b = map(int, input().split())\nc = list(map(int, input().split()))\ninput()\nprint(a + b + sum(c) + int(input()))",
    "readline without its newline": "import sys\ninput = lambda: sys.stdin.readline().rstrip('\\r\\n')\nt = [input() for _ in range(4)]\nassert t[2] == ''\nprint(sum(map(int, ' '.join(t).split())))",
    "readlines": "import sys\nprint(sum(int(x) for line in sys.stdin.readlines() for x in line.split()))",
    "next of stdin": "import sys\nit = iter(sys.stdin)\ns = sum(map(int, next(it).split()))\nfor line in it:\n    s += sum(map(int, line.split()))\nprint(s)",
    "splitlines": "import sys\na, b, c, d = sys.stdin.read().splitlines()\nassert c == ''\nprint(sum(map(int, (a + ' ' + b + ' ' + d).split())))",
    "tokens by generator": "import sys\ndef tokens():\n    for line in sys.stdin:\n        yield from line.split()\nit = tokens()\nprint(sum(int(t) for t in it))",
    "buffer read": "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))",
    "buffer readline": "import sys\nr = sys.stdin.buffer.readline\ns = sum(map(int, r().split())) + sum(map(int, r().split()))\nr()\nprint(s + int(r()))",
    "buffer iteration": "import sys\nprint(sum(int(x) for l in sys.stdin.buffer for x in l.split()))",
    "buffer readlines": "import sys\nprint(sum(int(x) for l in sys.stdin.buffer.readlines() for x in l.split()))",
    "buffer read1": "import sys\nd = b''\nwhile c := sys.stdin.buffer.read1(5):\n    d += c\nprint(sum(map(int, d.split())))",
    "buffer readinto": "import sys\nb = bytearray(100)\nn = sys.stdin.buffer.readinto(b)\nprint(sum(map(int, bytes(b[:n]).split())))",
    "buffer peek": "import sys\nassert sys.stdin.buffer.peek(1)[:1] == b'2'\nprint(sum(map(int, sys.stdin.read().split())))",
    "raw read": "import sys\nprint(sum(map(int, sys.stdin.buffer.raw.readall().split())))",
    "open 0": "print(sum(map(int, open(0).read().split())))",
    "open 0 unpacked": "a, b, *rest = open(0)\nprint(sum(map(int, (a + b + ''.join(rest)).split())))",
    "open 0 binary": "print(sum(map(int, open(0, 'rb').read().split())))",
    "open 0 unbuffered": "print(sum(map(int, open(0, 'rb', buffering=0).readall().split())))",
    "open 0 kept open": "with open(0, closefd=False) as f:\n    print(sum(map(int, f.read().split())))",
    "open 0 encoded": "import sys\nprint(sum(map(int, open(sys.stdin.fileno(), encoding='utf-8-sig').read().split())))",
    "os.read": "import os\nprint(sum(map(int, os.read(0, 1 << 20).split())))",
    "os.read in pieces": "import os\nd = b''\nwhile c := os.read(0, 4):\n    d += c\nprint(sum(map(int, d.split())))",
    "os.fstat size": "import os\nprint(sum(map(int, os.read(0, os.fstat(0).st_size).split())))",
    "os.fdopen": "import os\nwith os.fdopen(0) as f:\n    print(sum(map(int, f.read().split())))",
    "os.dup": "import os\nf = os.fdopen(os.dup(0), 'rb')\nprint(sum(map(int, f.read().split())))",
    "fileinput": "import fileinput\nprint(sum(int(x) for l in fileinput.input() for x in l.split()))",
    "fileinput of a dash": "import fileinput\nwith fileinput.input(files=('-',)) as f:\n    print(sum(int(x) for l in f for x in l.split()))",
    "text wrapper": "import io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer, encoding='utf-8')\nprint(sum(int(x) for l in sys.stdin for x in l.split()))",
    "buffered reader": "import io\nr = io.BufferedReader(io.FileIO(0), 1 << 16)\nprint(sum(map(int, r.read().split())))",
    "fast reader class": "import os, sys\nfrom io import BytesIO, IOBase\nclass FastIO(IOBase):\n    newlines = 0\n    def __init__(self, file):\n        self._fd = file.fileno(); self.buffer = BytesIO(); self.writable = 'x' in file.mode or 'r' not in file.mode; self.write = self.buffer.write if self.writable else None\n    def readline(self):\n        while self.newlines == 0:\n            b = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192)); self.newlines = b.count(b'\\n') + (not b)\n            ptr = self.buffer.tell(); self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)\n        self.newlines -= 1\n        return self.buffer.readline()\n    def flush(self):\n        if self.writable:\n            os.write(self._fd, self.buffer.getvalue()); self.buffer.truncate(0), self.buffer.seek(0)\nclass IOWrapper(IOBase):\n    def __init__(self, file):\n        self.buffer = FastIO(file); self.flush = self.buffer.flush; self.writable = self.buffer.writable\n        self.write = lambda s: self.buffer.write(s.encode('ascii')); self.readline = lambda: self.buffer.readline().decode('ascii')\nsys.stdin, sys.stdout = IOWrapper(sys.stdin), IOWrapper(sys.stdout)\ninput = lambda: sys.stdin.readline().rstrip('\\r\\n')\na, b = map(int, input().split())\nc = list(map(int, input().split()))\ninput()\nprint(a + b + sum(c) + int(input()))\nsys.stdout.flush()",
    "detach": "import io, sys\nf = io.TextIOWrapper(sys.stdin.detach(), encoding='ascii')\nprint(sum(map(int, f.read().split())))",
    "reconfigure": "import sys\nsys.stdin.reconfigure(encoding='latin-1', errors='ignore')\nprint(sum(map(int, sys.stdin.read().split())))",
    "StringIO as stdin": "import io, sys\nsys.stdin = io.StringIO(sys.stdin.read())\ninput()\nprint(5 + sum(int(x) for l in sys.stdin for x in l.split()))",
    "__stdin__": "import sys\nprint(sum(map(int, sys.__stdin__.read().split())))",
    "mmap": "import mmap\nwith mmap.mmap(0, 0, access=mmap.ACCESS_READ) as m:\n    print(sum(map(int, m[:].split())))",
    "seek and read again": "import sys\nif sys.stdin.seekable():\n    sys.stdin.read(); sys.stdin.seek(0)\nprint(sum(map(int, sys.stdin.read().split())))",
    "select": "import select, sys\nready, _, _ = select.select([sys.stdin], [], [], 1)\nprint(sum(map(int, sys.stdin.read().split())) if ready else 'nothing')",
    "poll": "import os, select\np = select.poll()\np.register(0, select.POLLIN)\nassert p.poll(1000)\nprint(sum(map(int, os.read(0, 999).split())))",
    "selectors": "import os, selectors\ns = selectors.SelectSelector()\ns.register(0, selectors.EVENT_READ)\nassert s.select(1)\nprint(sum(map(int, os.read(0, 999).split())))",
    "isatty decides": "import sys\nif sys.stdin.isatty():\n    print('interactive')\nelse:\n    print(sum(map(int, sys.stdin.read().split())))",
    "in a thread": "import sys, threading\nout = []\nt = threading.Thread(target=lambda: out.append(sum(map(int, sys.stdin.read().split()))))\nt.start()\nt.join()\nprint(*out)",
    "re.findall": "import re, sys\nprint(sum(map(int, re.findall(r'-?\\d+', sys.stdin.read()))))",
    "array.fromfile": "import array, os, sys\na = array.array('B')\na.fromfile(sys.stdin.buffer, os.fstat(0).st_size)\nprint(sum(map(int, a.tobytes().split())))",
    "csv": "import csv, sys\nprint(sum(int(x) for row in csv.reader(sys.stdin, delimiter=' ') for x in row))",
    "reading nothing": "print(105)",
    "reading only a part": "input()\nprint(105)",
    "dev stdin falls back": "import sys\ntry:\n    f = open('/dev/stdin')\nexcept OSError:\n    f = sys.stdin\nprint(sum(map(int, f.read().split())))",
}  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_every_way_to_read_is_accepted(judge: Judge, style: str) -> None:
    judgement = judge.judge(stdin_problem((GIVEN, WANTED)), python(STYLES[style]))
    assert judgement.accepted, judgement


def test_an_empty_input_is_an_end_of_file_and_nothing_else(judge: Judge) -> None:
    source = "import os, sys\ntry:\n    input()\nexcept EOFError:\n    print('end', len(sys.stdin.read()), os.read(0, 9))"
    assert judge.judge(stdin_problem(("", "end 0 b''")), python(source)).accepted


@pytest.mark.parametrize(
    ("source", "given", "wanted"),
    [
        ("print(repr(input()))", "a b\r\n", r"'a b\r'"),
        ("import sys\nprint(repr(sys.stdin.readline()))", "a\r\nb\r\n", r"'a\r\n'"),
        ("import sys\nprint(sys.stdin.buffer.read())", "a\r\nb", r"b'a\r\nb'"),
        ("import sys\nprint(len(sys.stdin.read().split('\\n')))", "1\r\n2\r\n3", "3"),
        ("print(input()[::-1])", "žluťoučký 🐎\n", "🐎 ýkčuoťulž"),
        ("import sys\nprint(len(sys.stdin.buffer.read()))", "é\u2028x", "6"),
        ("print(sum(map(int, input().split())))", "1 2\r\n", "3"),
        ("print(len(input()))", "\ufeffabc\n", "4"),
        ("a, b = input().split('\\t')\nprint(b, a)", "x\ty\n", "y x"),
        ("print(repr(input()))", "a\x00b\x0cc\n", r"'a\x00b\x0cc'"),
    ],
)  # fmt: skip
def test_line_ends_and_letters_arrive_as_python_reads_them(
    judge: Judge, source: str, given: str, wanted: str
) -> None:
    judgement = judge.judge(stdin_problem((given, wanted)), python(source))
    assert judgement.accepted, judgement
