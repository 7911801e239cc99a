"""The modules that the fork-server loads before it forks, so that runs need not load them.

A missing common module costs every run that imports it. But every fork copies the page tables of all loaded
modules. hashlib, pathlib, pickle, socket, statistics and tempfile with their dependencies would add a fifth
to the cost of a fork, and few programs use them.
"""

from __future__ import annotations

import gc
import importlib
import sys

from . import kernel, packages
from .profile import Profile

MODULES = (
    *("abc", "array", "ast", "bisect", "builtins", "cmath", "codecs", "collections", "collections.abc"),
    *("contextlib", "copy", "dataclasses", "datetime", "decimal", "enum", "errno", "fractions", "functools"),
    *("gc", "heapq", "inspect", "io", "itertools", "json", "keyword", "linecache", "math", "numbers"),
    *("operator", "os", "queue", "random", "re", "reprlib", "signal", "site", "stat", "string", "struct"),
    *("sys", "threading", "time", "traceback", "types", "typing", "warnings", "weakref"),
)

_WARM_UP = """
import bisect, collections, functools, heapq, itertools, json, math, random, re, sys
from dataclasses import dataclass, field
from typing import List, Optional, Dict

@dataclass(order=True)
class Edge:
    cost: int
    to: int = field(compare=False)

class Solver:
    def __init__(self, size: int) -> None:
        self.graph: Dict[int, List[Edge]] = collections.defaultdict(list)
        for i in range(size):
            self.graph[i].append(Edge(i % 7 + 1, (i * 3 + 1) % size))

    @functools.lru_cache(maxsize=None)
    def ways(self, n: int) -> int:
        return 1 if n < 2 else self.ways(n - 1) + self.ways(n - 2)

    def distances(self) -> List[Optional[int]]:
        best, heap = {0: 0}, [(0, 0)]
        while heap:
            cost, at = heapq.heappop(heap)
            for edge in self.graph[at]:
                if cost + edge.cost < best.get(edge.to, math.inf):
                    best[edge.to] = cost + edge.cost
                    heapq.heappush(heap, (best[edge.to], edge.to))
        return [best.get(i) for i in range(len(self.graph))]

def main() -> str:
    solver = Solver(12)
    words = re.findall(r"[a-z]+", "the quick brown fox, the lazy dog")
    rows = sorted(((len(w), w) for w in words), key=lambda row: (-row[0], row[1]))
    counts = collections.Counter(words).most_common(2)
    queue = collections.deque(itertools.accumulate(map(int, "1 2 3".split())))
    lines = [f"{a:>3} {b!r}" for a, b in rows] + [str(queue.popleft()), "%.3f" % math.sqrt(2)]
    try:
        {}["missing"]
    except KeyError as error:
        lines.append(str(error))
    bisect.insort(rows, (1, "a"))
    lines.append(json.dumps({"ways": solver.ways(20), "d": solver.distances(), "c": counts}))
    return "\\n".join(lines) + str(sum(x * x for x in range(50) if x % 2)) + str(divmod(17, 5))

main()
"""


def load(profile: Profile) -> None:
    """Import the modules that Python programs use, and run a small program. Does nothing if the profile
    executes programs."""
    if profile.execute:
        return
    packages.add_search_folders(profile.import_from, profile.reads)
    for name in (*MODULES, *profile.imports):
        try:
            importlib.import_module(name)
        except Exception:
            # An interpreter without an optional module can run other programs. A program that needs a broken
            # package gets the error itself.
            continue
    site = sys.modules["site"]
    site.setquit()  # the option -S leaves out `exit`, `quit` and `help`, which programs use
    site.setcopyright()
    site.sethelper()
    # Programs print integers of any size. The limit is a protection for servers that parse them.
    sys.set_int_max_str_digits(0)
    kernel.set_default_thread_stack()
    exec(compile(_WARM_UP, "<warm-up>", "exec"), {"__name__": "__main__"})


def freeze_objects() -> None:
    """Exclude all existing objects from garbage collection, so that no run copies their pages."""
    gc.collect()
    gc.freeze()
