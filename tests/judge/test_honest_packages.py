"""Honest programs that import the competition packages are accepted on every tier, whatever way they do it.

The limit is a usual one: what plain Python fits into, a program fits into here.
"""
# ruff: noqa: E501 (programs on one line each read better than wrapped)

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.judge.judge_problems import python, stdin_problem
from whetstone.core.errors import SandboxUnavailable
from whetstone.core.verdict import Verdict
from whetstone.judge import Judge
from whetstone.judge.environments.environment import COMPETITION, default_environment
from whetstone.sandbox import Tier

pytestmark = pytest.mark.skipif(
    set(default_environment().preload) != set(COMPETITION), reason="the extra `programs` is not installed"
)
PROBLEM = stdin_problem(("5\n", "10"), limits={"cpu_s": 10.0, "memory_mb": 256.0, "output_mb": 1.0})

# All print twice the number that they read.
PROGRAMS = {
    "numpy": "import numpy as np\nn = int(input())\nprint(int(np.linalg.solve(np.eye(2) / 2, [n, n])[0]))",
    "numpy fft": "import numpy as np\nn = int(input())\nprint(round(abs(np.fft.fft(np.ones(2 * n))[0])))",
    "pandas": "import io, sys\nimport pandas as pd\nd = pd.read_csv(io.StringIO('a\\n' + sys.stdin.read()))\nprint(d['a'].sum() * 2)",
    "pandas groups": "import pandas as pd\nn = int(input())\nd = pd.DataFrame({'k': list('ab') * n, 'v': [1] * (2 * n)})\nprint(d.merge(d.groupby('k', as_index=False).v.sum(), on='k').v_y.iloc[0] * 2)",
    "scipy.stats": "from scipy import stats\nn = int(input())\nprint(round(stats.norm(loc=2 * n).mean()))",
    "scipy.optimize": "from scipy.optimize import linprog, brentq\nn = int(input())\nprint(round(brentq(lambda x: x - 2 * n, 0, 100)))",
    "scipy.sparse": "from scipy.sparse import csr_matrix\nfrom scipy.sparse.csgraph import dijkstra\nn = int(input())\nprint(int(dijkstra(csr_matrix([[0, 2 * n], [0, 0]]), indices=0)[1]))",
    "sympy": "from sympy import solve, symbols\nx = symbols('x')\nprint(solve(x / 2 - int(input()), x)[0])",
    "networkx": "import networkx as nx\nn = int(input())\nprint(len(nx.shortest_path(nx.path_graph(2 * n), 0, 2 * n - 1)))",
    "sortedcontainers": "from sortedcontainers import SortedDict, SortedList\nn = int(input())\ns = SortedList([2 * n, 0])\ns.add(1)\nprint(s[-1])",
    "several": "import numpy as np, pandas as pd, scipy.stats, sympy, networkx\nprint(sympy.Integer(int(input())) * 2)",
    "several with memory": "import pandas, scipy.stats, sympy\nx = bytearray(120 << 20)\nprint(int(input()) * 2)",
    "computed name": "m = __import__('num' + 'py')\nprint(m.full(1, int(input()))[0] * 2)",
    "importlib": "import importlib\nm = importlib.import_module(chr(112) + 'andas')\nprint(m.Series([int(input())] * 2).sum())",
    "within a function": "def f(n):\n    from sortedcontainers import SortedList as S\n    return S([n, 2 * n])[1]\nprint(f(int(input())))",
    "exec": "exec('im' + 'port sym' + 'py')\nprint(sympy.Integer(int(input())) * 2)",
    "threads": "import threading\nimport numpy as np\nassert threading.active_count() == 1\na = np.ones((300, 300)) @ np.ones((300, 300))\nprint(int(input()) * 2)",
}  # fmt: skip


@pytest.fixture(scope="module", params=list(Tier), ids=lambda tier: tier.label)
def tiered(request: pytest.FixtureRequest) -> Iterator[Judge]:
    try:
        judge = Judge(workers=1, tier=request.param.label)
    except SandboxUnavailable as refused:
        pytest.skip(str(refused))
    with judge:
        yield judge


@pytest.mark.process
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_imports_packages_is_accepted(tiered: Judge, name: str) -> None:
    judgement = tiered.judge(PROBLEM, python(PROGRAMS[name]))
    assert judgement.accepted, judgement


@pytest.mark.process
def test_a_package_tells_its_version(tiered: Judge) -> None:
    if tiered.isolation == "restricted":
        pytest.skip("folders of packages cannot be listed there: others would be seen in them")
    source = (
        "from importlib.metadata import version\nassert version('numpy') == __import__('numpy').__version__"
    )
    judgement = tiered.judge(PROBLEM, python(f"{source}\nprint(int(input()) * 2)"))
    assert judgement.accepted, judgement


@pytest.mark.process
def test_preloaded_memory_is_not_counted_and_allocated_memory_is(tiered: Judge) -> None:
    held = "import numpy as np\nx = np.ones({} << 17)\nprint(int(input()) * 2)"
    assert tiered.judge(PROBLEM, python(held.format(200))).accepted
    judgement = tiered.judge(PROBLEM, python(held.format(290)))
    assert judgement.verdict is Verdict.MEMORY_LIMIT, judgement
