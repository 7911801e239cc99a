"""What a worker does with the answer of a program."""

from __future__ import annotations

from whetstone.judge.answers.equality import equal
from whetstone.judge.answers.inert import read_one, show
from whetstone.judge.value_reader import WireError
from whetstone_graders.values import lcb_equal


def judged(data: bytes, expected: object) -> None:
    """Read an encoded answer, compare it by each rule, and show it. One that cannot be read is refused."""
    try:
        value = read_one(data, expected)
    except WireError:
        return
    equal(value, expected)
    lcb_equal(value, expected, [])
    show(value)
