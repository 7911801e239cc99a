"""Whether processes share one memory, as a child of ``vfork`` does with its parent until it executes."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Collection

_KCMP = {"x86_64": 312, "aarch64": 272}
_KCMP_VM = 1


def share_memory(one: int, other: int) -> bool:
    """By kcmp(2); False too where one has ended, or the kernel does not say."""
    if (number := _KCMP.get(os.uname().machine)) is None:
        return False
    return ctypes.CDLL(None).syscall(number, one, other, _KCMP_VM, 0, 0) == 0


def in_our_numbers(first: int, wanted: Collection[str]) -> dict[str, int]:
    """The processes that have these numbers in the pid namespace of ``first``, by the numbers that we see."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        namespace = os.readlink(f"/proc/{first}/ns/pid")
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                number = _innermost(name)
                if number in wanted and os.readlink(f"/proc/{name}/ns/pid") == namespace:
                    found[number] = int(name)
    return found


def _innermost(name: str) -> str:
    with open(f"/proc/{name}/status", encoding="utf-8", errors="replace") as file:
        return next((line.split()[-1] for line in file if line.startswith("NSpid:")), name)
