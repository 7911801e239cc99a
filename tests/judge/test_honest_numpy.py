"""Honest programs that use numpy, and return its numbers and arrays, are accepted."""
# ruff: noqa: E501 (programs on one line each read better than wrapped)

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.judge.judge_problems import assert_problem, call_problem, python, stdin_problem
from whetstone.judge import Judge

pytestmark = pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="numpy is not installed")
LIMITS = {"cpu_s": 5.0, "memory_mb": 512.0, "output_mb": 1.0}

PRINTED = [
    "import numpy as np\nn = int(input())\na = np.array(input().split(), np.int64)\nprint(a.sum())",
    "import sys\nimport numpy as np\nread = sys.stdin.buffer.read\nn, *a = map(int, read().split())\nprint(np.cumsum(a)[-1])",
    "import numpy as np\nd = np.fromstring(open(0).read(), dtype=np.int64, sep=' ')\nprint(d[1:].sum())",
    "import sys\nimport numpy as np\na = np.loadtxt(sys.stdin, skiprows=1, dtype=int)\nprint(int(a.sum()))",
    "from numpy import array, dot\ninput()\nx = array(list(map(int, input().split())))\nprint(dot(x, [1]*len(x)))",
    "import numpy as np\nif __name__ == '__main__':\n    input(); print(np.int64(sum(map(int, input().split()))))",
    "def main():\n    import numpy as np\n    input()\n    print(np.sum([int(x) for x in input().split()]))\nmain()",
    "import numpy as np, random\nnp.random.seed(0); random.seed(0)\ninput()\nx=np.array([int(v) for v in input().split()], float)\nprint(int((np.linalg.inv(np.eye(3)) @ x).sum()))",
    "try:\n    import numpy as np\nexcept ImportError:\n    np = None\ninput(); print(sum(map(int, input().split())))",
]  # fmt: skip

# Program, arguments, expected value.
RETURNED = [
    ("import numpy as np\ndef f(x): return np.array(x) * 2", [[1, 2]], [2, 4]),
    ("import numpy as np\ndef f(x): return np.sum(x)", [[1, 2]], 3),
    ("import numpy as np\ndef f(x): return np.mean(x)", [[1, 2]], 1.5),
    ("import numpy as np\ndef f(x): return np.array(x).max(), np.bool_(True)", [[1, 2]], [2, True]),
    ("import numpy as np\ndef f(x): return {'a': np.arange(3), 'b': [np.float32(0.5)]}", [[1, 2]], {'a': [0, 1, 2], 'b': [0.5]}),
    ("import numpy as np\ndef f(x): return np.array([[1,2],[3,4]]).T", [[1]], [[1, 3], [2, 4]]),
    ("import numpy as np\ndef f(x): return list(np.array(['a','b']))", [[1]], ['a', 'b']),
    ("import numpy as np\ndef f(x): return np.nan", [[1]], float('nan')),
]  # fmt: skip

# Test, program.
ASSERTED = [
    ("import numpy as np\nassert np.array_equal(f(3), np.arange(3))", "import numpy as np\ndef f(n): return np.arange(n)"),
    ("assert f([1,2]) == 1.5", "import numpy as np\ndef f(n): return np.mean(n)"),
    ("assert list(f([1,2])) == [2,4]", "import numpy as np\ndef f(n): return np.array(n)*2"),
    ("import numpy as np\nassert np.allclose(f(np.eye(2)), np.eye(2))", "import numpy as np\ndef f(a): return np.linalg.inv(a)"),
    ("assert f([3,1]) == 3", "import numpy as np\ndef f(a): return int(np.max(a))"),
]  # fmt: skip


@pytest.mark.parametrize("source", PRINTED)
def test_numpy_reads_and_prints(judge: Judge, source: str) -> None:
    judgement = judge.judge(stdin_problem(("3\n1 2 3\n", "6"), limits=LIMITS), python(source))
    assert judgement.accepted, judgement


@pytest.mark.parametrize(("source", "args", "expected"), RETURNED)
def test_numpy_values_count_by_value(judge: Judge, source: str, args: list[Any], expected: Any) -> None:
    judgement = judge.judge({**call_problem("f", (args, expected)), "limits": LIMITS}, python(source))
    assert judgement.accepted, judgement


@pytest.mark.parametrize(("test", "source"), ASSERTED)
def test_test_code_meets_numpy_values(judge: Judge, test: str, source: str) -> None:
    judgement = judge.judge({**assert_problem(asserts=[test]), "limits": LIMITS}, python(source))
    assert judgement.accepted, judgement
