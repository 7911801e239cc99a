"""System call numbers of the two supported architectures, for every call that the sandbox names.

They are in ``syscall_numbers.txt``, in this folder. None means that an architecture has no such call.
"""

from __future__ import annotations

import os

X86_64 = 0xC000003E
AARCH64 = 0xC00000B7
AUDIT_ARCH = {"x86_64": X86_64, "aarch64": AARCH64}

_Numbers = tuple[int | None, int | None]


def _read_tables() -> dict[str, dict[str, _Numbers]]:
    """Return the numbers of each call on both architectures, by the section of the file."""
    tables: dict[str, dict[str, _Numbers]] = {}
    section = ""
    with open(os.path.splitext(os.path.realpath(__file__))[0] + ".txt", encoding="ascii") as file:
        for line in file:
            words = line.split()
            if len(words) == 1:
                section = words[0].strip("[]")
                tables[section] = {}
            elif words and words[0] != "#":
                name, *numbers = words
                x86_64, aarch64 = (None if number == "-" else int(number) for number in numbers)
                tables[section][name] = x86_64, aarch64
    return tables


TABLES = _read_tables()
HARMLESS, EXECUTING = TABLES["harmless"], TABLES["executing"]


def audit_arch() -> int:
    """Return the kernel's number for this machine's architecture. Raises OSError for an unsupported one."""
    machine = os.uname().machine
    if machine not in AUDIT_ARCH:
        raise OSError(
            f"no system call table for {machine}; programs can be confined on {', '.join(AUDIT_ARCH)}"
        )
    return AUDIT_ARCH[machine]


def number(name: str) -> int | None:
    """Return the number of a call on this machine. None if it does not exist here."""
    column = 0 if audit_arch() == X86_64 else 1
    for table in TABLES.values():
        if name in table:
            return table[name][column]
    raise KeyError(name)
