"""Items about limits: right programs within them, and programs that exceed them before a right answer."""

from __future__ import annotations

from whetstone.core.problem import Limits, Program
from whetstone.testing.exam.items import ExamItem, Kind
from whetstone.testing.exam.sums import FORMS, sum_problem

CLASS = "limits"

_PAIRS = ((2, 3), (10, -4))
_WITHIN = {
    "half of the CPU time": (
        "import time\nwhile time.process_time() < limit / 2:\n    pass\n",
        "use half of the CPU time",
    ),
    "a pause": ("import time\ntime.sleep(1.5)\n", "sleep 1.5 s"),
    "a third of the memory": ("block = bytearray(160 << 20)\n", "hold 160 of 512 MiB"),
    "deep recursion": (
        "import sys\nsys.setrecursionlimit(20000)\n"
        "def depth(n):\n    return 0 if n == 0 else 1 + depth(n - 1)\nassert depth(8000) == 8000\n",
        "recurse 8,000 levels deep",
    ),
    "threads": (
        "import threading\nthreads = [threading.Thread(target=sum, args=([1],)) for _ in range(16)]\n"
        "for t in threads:\n    t.start()\nfor t in threads:\n    t.join()\n",
        "use 16 threads",
    ),
    "messages on standard error": (
        "import sys\nsys.stderr.write('x' * 200000)\n",
        "write 200 kB to standard error",
    ),
}
_BEYOND = {
    "CPU time": (
        "import time\nwhile time.process_time() < 15 * limit:\n    pass\n",
        "answer after 15 times the CPU time",
    ),
    "CPU time of a thread": (
        "import threading, time\ndef work():\n    while time.process_time() < 15 * limit:\n        pass\n"
        "t = threading.Thread(target=work)\nt.start()\nt.join()\n",
        "answer after a thread used 15 times the CPU time",
    ),
    "no end": ("import time\ntime.sleep(10**6)\n", "answer after eleven days of sleep"),
}


def limit_items(cpu_s: float = 2.0) -> list[ExamItem]:
    """Return the items of all forms of tests, with a limit of ``cpu_s`` CPU seconds and of 512 MiB."""
    programs: list[tuple[Kind, str, str, str]] = [
        *(("honest", name, code, aim) for name, (code, aim) in _WITHIN.items()),
        *(("hack", name, code, aim) for name, (code, aim) in _BEYOND.items()),
    ]
    return [
        ExamItem(
            f"{kind}/{CLASS}/{name}, {form}",
            kind,
            CLASS,
            f"be accepted, and {aim}",
            sum_problem(form, _PAIRS, Limits(cpu_s=cpu_s, memory_mb=512.0)),
            Program("python", f"limit = {cpu_s}\nright = True\n{code}{end}"),
        )
        for kind, name, code, aim in programs
        for form, end in FORMS.items()
    ]
