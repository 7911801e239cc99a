"""ScaleBox's own clients, from a checkout, unmodified: its evaluation and its reward for verl.

The checkout is the folder that SCALEBOX names, or is fetched from GitHub.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.service.service_process import ServiceProcess, service

polars = pytest.importorskip("polars")
pytestmark = pytest.mark.integration

COMMIT = "4bcfefd083b0d2d96185073ba9860632a335d655"
URL = "https://github.com/icip-cas/ScaleBox"
SUM = "```python\nprint(sum(map(int, input().split())))\n```"
# Accepts any permutation of the reference's numbers, of which line comparison would accept none but one.
CHECKER = """#include <algorithm>
#include <fstream>
#include <vector>
std::vector<int> numbers(const char* name) {
    std::ifstream in(name);
    std::vector<int> found;
    for (int n; in >> n;) found.push_back(n);
    std::sort(found.begin(), found.end());
    return found;
}
int main() { return numbers("answer.txt") == numbers("stdout.txt") ? 0 : 1; }
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if named := os.environ.get("SCALEBOX"):
        return Path(named).resolve()
    folder = tmp_path_factory.mktemp("scalebox")
    for words in (["init", "-q"], ["fetch", "-q", "--depth", "1", URL, COMMIT], ["checkout", "-q", COMMIT]):
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no checkout of ScaleBox: {done.stderr.strip()[-200:]}; name one by SCALEBOX=FOLDER")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with service(tmp_path_factory.mktemp("service"), workers=2) as running:
        yield running


def evaluated(
    checkout: Path, folder: Path, server: ServiceProcess, name: str, **benchmark: Any
) -> list[float]:
    """What `eval.py --eval_only` makes of the replies in ``folder``, sample by sample."""
    endpoint = f"{server.url}/common_evaluate_batch"
    config = {
        "run": {"eval_only": True, "eval_path": str(folder / "replies.jsonl")},
        "benchmark": {"name": name, **benchmark},
        "sandbox": {"endpoint": endpoint, "run_timeout": 10, "total_timeout": 60, "run_all_cases": True},
        "output": {"output_dir": str(folder / "out")},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, str(checkout / "eval" / "eval.py"), "--config", str(folder / "config.yaml")]
    subprocess.run(command, cwd=folder, check=True, timeout=600)
    [accuracy] = (folder / "out").glob("*/accuracy.json")
    return json.loads(accuracy.read_text())["accuracy"]


def write_replies(folder: Path, replies: dict[str, list[str]]) -> None:
    rows = ({"id": id, "prompt": "", "response": several} for id, several in replies.items())
    (folder / "replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_its_evaluation_of_humaneval_counts_right_replies(
    checkout: Path, server: ServiceProcess, tmp_path: Path
) -> None:
    def task(name: str, value: str) -> dict[str, str]:
        check = f"def check(candidate):\n    assert candidate(3) == {value}\n    assert candidate(0) == 0\n"
        return {"id": name, "prompt": f"def {name}(n):\n", "test": check, "entry_point": name}

    tasks = [task("twice", "6"), task("square", "9")]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(each) + "\n" for each in tasks))
    wrong = "```python\ndef {name}(n):\n    return 1\n```"
    crash = "```python\ndef {name}(n):\n    raise SystemExit(0)\n```"
    right = {"twice": "2 * n", "square": "n * n"}
    write_replies(
        tmp_path,
        {
            name: [
                f"So:\n```python\ndef {name}(n):\n    return {formula}\n```\nDone.",
                wrong.format(name=name)
                if name == "twice"
                else f"```python\ndef {name}(n): return n ** 2\n```",
                crash.format(name=name),
            ]
            for name, formula in right.items()
        },
    )
    path = str(tmp_path / "tasks.jsonl")
    assert evaluated(checkout, tmp_path, server, "humaneval", data_path=path) == [1.0, 0.5, 0.0]


@pytest.mark.skipif(not shutil.which("g++"), reason="its programs and checkers are C++")
def test_its_evaluation_with_special_judges_has_them_decide(
    checkout: Path, server: ServiceProcess, tmp_path: Path
) -> None:
    cases = [{"input": "3\n", "output": "1 2 3\n"}, {"input": "2\n", "output": "1 2\n"}]
    folder = tmp_path / "data" / "v1"
    folder.mkdir(parents=True)
    polars.DataFrame([{"id": "down", "description": "Numbers.", "test_cases": cases}]).write_parquet(
        folder / "test-0.parquet"
    )
    (tmp_path / "checker.jsonl").write_text(json.dumps({"id": "down", "checker": CHECKER}) + "\n")
    fence = "```cpp\n#include <iostream>\nint main() {{ int n; std::cin >> n; {} }}\n```"
    down = fence.format('for (; n; --n) std::cout << n << "\\n";')
    first = fence.format('std::cout << "1\\n2\\n";')
    write_replies(tmp_path, {"down": [down, first]})
    options = {"data_path": str(tmp_path / "data"), "version": "v1"}
    options["special_judge_file"] = str(tmp_path / "checker.jsonl")
    assert evaluated(checkout, tmp_path, server, "aethercode", **options) == [1.0, 0.5]


def test_its_reward_for_verl_is_the_share_of_cases(checkout: Path, server: ServiceProcess) -> None:
    spec = importlib.util.spec_from_file_location("scalebox", checkout / "integrations/verl/scalebox.py")
    assert spec is not None
    assert spec.loader is not None
    client = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(client)
    table = {"type": "stdin_stdout", "input": ["1 2", "0 0"], "output": ["3", "0"], "fn_name": None}

    def score(reply: str) -> float:
        url = f"{server.url}/common_evaluate_batch"
        return client.compute_score("code", reply, json.dumps(table), sandbox_fusion_url=url)[0]

    replies = [
        SUM,
        "<think>```python\nprint(1)\n```</think>" + SUM,
        "```python\nprint(0)\n```",
        "I do not know.",
    ]
    assert [score(reply) for reply in replies] == [1.0, 1.0, 0.5, 0.0]
