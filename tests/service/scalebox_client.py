"""A reward client as trainers on ScaleBox have it, written after the description of theirs.

The completion is the reply without its thinking; the language is the first fence's; three tries on 500 and
504; the score is 1 for ``accepted``, else the mean of ``tests[].passed``; any other failure is 0.
"""

from __future__ import annotations

import re
from typing import Any

import requests

_LANGUAGES = {"python": "python", "py": "python", "cpp": "cpp", "c++": "cpp", "java": "java"}
_TRIES = 3
_TIMEOUT_S = 70


def score(url: str, reply: str, ground_truth: dict[str, Any]) -> float:
    completion = re.sub(r"<think>.*?</think>", "", reply, flags=re.DOTALL).strip()
    fence = re.search(r"```(\S+)", completion)
    language = _LANGUAGES.get(fence[1].lower(), "") if fence else ""
    if not language:
        return 0.0
    body = {
        "completion": completion,
        "config": {
            "language": language,
            "compile_timeout": 30,
            "run_timeout": 1,
            "memory_limit_mb": 1024,
            "provided_data": {"test_cases": ground_truth},
            "extra": {"run_all_cases": True, "total_timeout": 30},
        },
    }
    for _ in range(_TRIES):
        answer = requests.post(f"{url}/common_evaluate_batch", json=body, timeout=_TIMEOUT_S)
        if answer.status_code not in (500, 504):
            break
    if answer.status_code != 200:
        return 0.0
    said = answer.json()
    if said["accepted"]:
        return 1.0
    passed = [bool(test["passed"]) for test in said["tests"]]
    return sum(passed) / len(passed) if passed else 0.0
