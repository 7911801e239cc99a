"""EvalPlus' own extraction beside ours, over replies put together at random. See official.md.

python benchmarks/official_extraction.py --python VENV/bin/python --humaneval HumanEvalPlus.jsonl
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from official_compare import theirs
from whetstone_graders.sanitize import sanitized

_THEIR_RUN = """
import json, sys, warnings
warnings.simplefilter("ignore")
from evalplus.sanitize import sanitize
for line in sys.stdin:
    order = json.loads(line)
    print(json.dumps(sanitize(order["reply"], order["entry_point"])))
"""
_LINES = [
    "Here is the solution:", "Sure!", "# Example", "```", "```python", "Note that (this works", "It's fine.",
    "", "   ",
    "- item one", "1. first", "x", "print(has(1))", "    return 5", "if True:", "'''", '"""doc',
    "assert f(1) == 2",
    "from __future__ import annotations", "import math, os.path as p", "@cache", "async def g(x): return x",
    "y: int = 3", "a = b = 4", "c, d = e", "z.q = w", "q[0] = r", "x += 1", "class A:",
    "    def m(self): return helper(1)", "def helper(n):", "    return n", "def noret(n):", "    print(n)",
    "a = 1; b = helper", "f'{helper(1)}'", "lst = [", "  1,", "]", "def é(x): return x", " \t",
    "for i in range(3):", "    pass", "try:", "except E:", "def cand(n):", "    return helper(n) + y",
    "if __name__ == '__main__':", "    print(cand(3))", "lambda: 0", "global q", "k = lambda v: helper(v)",
    "print(f'{x!r}", ")",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", type=Path, required=True, help="the Python that has evalplus")
    parser.add_argument("--humaneval", type=Path, required=True)
    parser.add_argument("--replies", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.humaneval.read_text().splitlines()]
    draw = random.Random(args.seed)
    orders = [_order(draw, rows) for _ in range(args.replies)]
    found = theirs(args.python, _THEIR_RUN, [], orders)
    differ = 0
    for order, other in zip(orders, found, strict=True):
        mine = sanitized(order["reply"], order["entry_point"])
        if mine != other:
            differ += 1
            print(json.dumps({**order, "theirs": other, "ours": mine}, indent=1))
    print(f"{len(orders)} replies, {differ} with another program")


def _order(draw: random.Random, rows: list[dict[str, str]]) -> dict[str, str]:
    """A reply of prose and pieces of code; in a third of them, a whole fenced solution."""
    lines: list[str] = []
    for _ in range(draw.randint(1, 14)):
        row = draw.choice(rows)
        lines += _solution(row) if draw.random() < 0.1 else [draw.choice(_LINES)]
    entry_point = draw.choice(["cand", "helper", "A", "k", "é", "y", "g"])
    if draw.random() < 0.3:
        row = draw.choice(rows)
        entry_point = row["entry_point"]
        lines += ["```python", *_solution(row), "```", "done."]
    return {"reply": "\n".join(lines[:90]), "entry_point": entry_point}


def _solution(row: dict[str, str]) -> list[str]:
    return (row["prompt"] + row["canonical_solution"]).split("\n")


if __name__ == "__main__":
    main()
