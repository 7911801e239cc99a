"""A recorded conversation between test code and a program, for each of the two sides.

A fork-server plays it before it serves. This warms up the code that every run executes, because the
interpreter specializes its bytecode. It also shows which pages such runs write (see
``sandbox.zygote.rehearsal``). The messages of the other side are recorded here. If a side reacts in another
way, its runs are only slower. A test plays the conversation to its end.
"""

from __future__ import annotations

import _socket
import importlib
import marshal
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Any, NamedTuple

from whetstone.judge.rpc.link import LinkLost
from whetstone.judge.values import encode


class Rehearsal(NamedTuple):
    """One side of the conversation."""

    payload: bytes
    """The payload of the run."""
    received: bytes
    """All messages that it receives on its link."""
    last_sent: bytes
    """A part of the last message that it sends."""


# The interpreter specializes code only after several executions.
_REPETITIONS = 20

_HEADER = Struct("<Q")
_SOURCE = '''
from typing import Dict, List, Optional
import math
import re
from collections import Counter, defaultdict


def helper(values: List[int], least: int = 0) -> Dict[int, int]:
    """The values, counted."""
    return {value: count for value, count in Counter(values).items() if value >= least}


def solve(values: List[int], text: str) -> Optional[List[int]]:
    """Examples:
    >>> solve([1, 2], "a b")
    [1, 2]
    """
    if not values:
        return None
    words = re.findall(r"[a-z]+", text.lower())
    groups = defaultdict(list)
    for number, value in enumerate(sorted(values, key=lambda v: (-v, v))):
        groups[value % 3].append(number + math.gcd(value, 6))
    total = sum(helper(values).values()) + len("".join(reversed(words)))
    return [total, *groups[0]] + [int(str(value)) for value in values if value % 2 == 0 and value != 7]
'''
# Every fork copies the pinned pages. A sandbox that loads few modules should pin only pages that each
# program writes, so its source is short.
_SHORT_SOURCE = '''
def solve(values, text):
    """Numbers and text."""
    total = 0
    for number, value in enumerate(values):
        if value % 2 == 0 and value > number:
            total += value
    return [total, text.lower(), sorted(values)]
'''
_TEST = """

METADATA = {"author": "rehearsal", "dataset": "test"}


def check(candidate):
    assert candidate([3, 1, 2, 4], "One two") == [14, 0, 3], "first"
    assert candidate([5, 6, 9], "x y, z") == [1, "two", 3.5]
    assert candidate([], "") is None
    assert candidate([2], "b") == "text"
    assert sorted(candidate([1, 2, 3], "c")) == [1, 2]
    assert abs(candidate([7], "d") - 1.5) < 1e-6
    assert not candidate([8], "e")
    assert candidate([9, 10], "f")[0] == (1, 2)
"""
_ARGUMENTS = ([[3, 1, 2, 4], "One two"], [[5, 6, 9], "x y, z"], [[], ""], [[2], "b"], [["a", None, 1.5], "c"])
_ANSWERS = ([14, 0, 3], [1, "two", 3.5], None, "text", [2, 1], 1.5, False, [(1, 2)])
_UNIT: dict[str, Any] = {
    **{"kind": "check", "setup": "import math\n", "code": _TEST, "entry_point": "solve", "names": ["solve"]},
    **{"imports": {}, "classes": [], "free": ["solve"], "files": None, "captures": False, "seeds": False},
}


class _Named:
    """An object that does not cross by value, with the name that is sent for it."""

    def __init__(self, *name: Any) -> None:
        self.name = list(name)


def rehearse(role: str) -> list[Rehearsal]:
    """Play the conversation of a role several times in this process, and return it for the fork-server."""
    if role == "called_by_tests":
        rehearsal, play = program_rehearsal(), _program_player()
    elif role == "queried_by_judge":
        rehearsal, play = program_server_rehearsal(), _program_server_player()
    elif role == "tests":
        rehearsal, play = rehearsal_of_tests(), _tests_player()
    else:
        return []
    for _ in range(_REPETITIONS):
        other_end, own_end = _socket.socketpair()
        other_end.sendall(rehearsal.received)
        other_end.shutdown(_socket.SHUT_WR)
        play(rehearsal, own_end.fileno())
        other_end.close()
        own_end.close()
    return [rehearsal]


def program_rehearsal() -> Rehearsal:
    """Return the program's side: the test requests its names, and calls it."""
    # It calls a builtin, because the number of the program's own function is not known in advance.
    calls = [["call", _Named("import", "builtins", "len"), arguments, {}] for arguments in _ARGUMENTS]
    requests = [["names", ("solve",)], *calls, ["ping", b"rehearse"]]
    received = b"".join(_message(b"?", message) for message in requests)
    return Rehearsal(b"program\n" + _SOURCE.encode(), received, b"rehearse")


def program_server_rehearsal() -> Rehearsal:
    """Return the side of ``program_server``: several calls, the last one of an undefined function."""
    requests = [*(["solve", arguments, {}] for arguments in _ARGUMENTS), ["unheard_of", [], {}]]
    received = b"".join(len(data).to_bytes(4, "little") + data for data in map(encode, requests))
    return Rehearsal(b"program_server\n" + _SHORT_SOURCE.encode(), received, b"missing")


def rehearsal_of_tests() -> Rehearsal:
    """Return the test's side: the program greets, names its function, and replies to calls of it."""
    function = _Named("object", 1, [True, False, False], [0], {"__name__": "solve", "__module__": "main"})
    replies = [[["returned", {"solve": function}], 0, []], *([["returned", a], 1, []] for a in _ANSWERS)]
    received = b"".join(_message(b"!", message) for message in (["loaded"], *replies))
    codes = [compile(_UNIT[part], "<rehearsal>", "exec", dont_inherit=True) for part in ("setup", "code")]
    return Rehearsal(b"tests\n" + marshal.dumps([[[_UNIT, codes]], None]), received, b"ping")


_Player = Callable[[Rehearsal, int], None]


def _program_player() -> _Player:
    ObjectHolder = importlib.import_module("whetstone.judge.rpc.program").ObjectHolder
    scope: dict[str, Any] = {}
    exec(compile(_SOURCE, "<rehearsal>", "exec"), scope)

    def play(_: Rehearsal, link_fd: int) -> None:
        holder = ObjectHolder(link_fd)
        holder.scope = scope
        holder.link.send_greeting(["loaded"])
        with suppress(LinkLost):
            holder.link.serve_forever()

    return play


def _program_server_player() -> _Player:
    answer_all = importlib.import_module("whetstone.judge.rpc.program_server").answer_all
    scope: dict[str, Any] = {}
    exec(compile(_SOURCE, "<rehearsal>", "exec"), scope)

    def play(_: Rehearsal, link_fd: int) -> None:
        answer_all(link_fd, scope)

    return play


def _tests_player() -> _Player:
    run_units = importlib.import_module("whetstone.judge.rpc.tests").run_units

    def play(rehearsal: Rehearsal, link_fd: int) -> None:
        result_fd = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        run_units(rehearsal.payload.partition(b"\n")[2], result_fd, link_fd)
        os.close(result_fd)
        sys.modules.pop("__test__", None)

    return play


def _message(kind: bytes, content: list[Any]) -> bytes:
    data = kind + encode(content, lambda value: value.name if isinstance(value, _Named) else value)
    return _HEADER.pack(len(data)) + data
