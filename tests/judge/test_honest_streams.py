"""Programs in every language may open their standard streams by name, as on any Unix."""
# ruff: noqa: E501 (programs on one line each read better than wrapped)

from __future__ import annotations

import pytest

from tests.judge.judge_problems import stdin_problem
from whetstone.core.errors import UserError
from whetstone.judge import Judge, Judgement, Program

LIMITS = {"cpu_s": 5.0, "memory_mb": 512.0, "output_mb": 1.0}

SUMS = {
    "javascript": "const t = require('fs').readFileSync('/dev/stdin', 'utf8').split(/\\s+/).map(Number);\nconsole.log(t[1] + t[2] + t[3])",
    "typescript": "import * as fs from 'fs';\nconst t: number[] = fs.readFileSync('/dev/stdin', 'utf8').split(/\\s+/).map(Number);\nconsole.log(t[1] + t[2] + t[3]);",
    "c": '#include <stdio.h>\nint main(void) { freopen("/dev/stdin", "r", stdin); int n, s = 0, x; scanf("%d", &n); while (n--) { scanf("%d", &x); s += x; } printf("%d\\n", s); }',
    "cpp": '#include <fstream>\nint main() { std::ifstream in("/dev/stdin"); std::ofstream out("/dev/stdout"); int n, s = 0, x; in >> n; while (n--) { in >> x; s += x; } out << s << std::endl; }',
    "bash": "echo debug > /dev/stderr\nt=($(cat /dev/stdin))\necho $((t[1] + t[2] + t[3])) > /dev/stdout",
}


def judged(judge: Judge, language: str, source: str, wanted: str) -> Judgement:
    problem = {**stdin_problem(("3\n1 2 3\n", wanted)), "limits": LIMITS, "language": language}
    try:
        return judge.judge(problem, Program(language, source))
    except UserError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("language", SUMS)
def test_streams_have_their_names(judge: Judge, language: str) -> None:
    judgement = judged(judge, language, SUMS[language], "6")
    assert judgement.accepted, judgement


def test_the_names_of_the_streams_show_nothing_else(judge: Judge) -> None:
    if judge.isolation == "restricted":
        pytest.skip("this tier has no root of its own")
    source = (
        "for f in /proc/version /proc/mounts /proc/meminfo /proc/sys/kernel/hostname /proc/self/maps /proc/self/environ "
        "/proc/1/environ /proc/self/fd/3 /proc/self/fd/6 /proc/self/root/etc/passwd; do\n"
        '  cat "$f" 2> /dev/null\ndone\nls /proc 2> /dev/null\n'
        "for p in 1 2 3 4 5 $PPID; do [ $p != $$ ] && [ -e /proc/$p ] && echo $p; done\n"
        "echo 500 2> /dev/null > /proc/self/oom_score_adj && echo written\necho end"
    )
    judgement = judged(judge, "bash", source, "end")
    assert judgement.accepted, judgement
