"""Problems and replies that the tests of several adapters share, as rows hold them."""

from __future__ import annotations

from typing import Any

ADD: dict[str, Any] = {
    "id": "t/add",
    "statement": "Print the sum.",
    "tests": {"kind": "stdin", "cases": [{"input": "1 2\n", "output": "3\n"}]},
}
FORGEABLE: dict[str, Any] = {
    "id": "t/forgeable",
    "statement": "Double x.",
    "tests": {"kind": "assert", "asserts": ["assert f.__code__.co_argcount == 1"]},
    "references": [{"language": "python", "source": "def f(x):\n    return 2 * x\n"}],
}
"""Its test needs the program's interpreter, so it has no verdict that counts."""
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
WRONG = "```python\nprint(4)\n```"
DOUBLES = "```python\ndef f(x):\n    return 2 * x\n```"
"""A reply to ``FORGEABLE``."""
