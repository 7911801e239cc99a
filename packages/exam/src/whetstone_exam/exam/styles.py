"""Right programs in the many ways in which people read input and print answers (``styles.toml``).

Published graders reject some of them: they replace standard input by an object of their own, execute programs
under another name or compare text exactly. See ``docs/known_failures.md``.
"""

from __future__ import annotations

import tomllib
from importlib import resources

from whetstone.core.problem import Program, problem_from
from whetstone_exam.exam.items import ExamItem

CLASS = "styles"


def style_items() -> list[ExamItem]:
    """Return the programs as honest items of the exam."""
    file = resources.files("whetstone_exam.exam") / "styles.toml"
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    problems = {name: problem_from(value) for name, value in content["problem"].items()}
    return [
        ExamItem(
            f"honest/{CLASS}/{style['name']}",
            "honest",
            CLASS,
            f"be accepted, with this way to read, run or print: {style['name']}",
            problems[style["problem"]],
            Program("python", style["source"]),
        )
        for style in content["program"]
    ]
