"""Tests for the fuzzer: they use the program in many ways, and then assert that a result equals a secret.

No message before the assertion depends on the secret. Two tests that differ in the secret only must therefore
send equal messages to a program that sends equal messages. Their code is in ``fuzz_tests.toml``.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from random import Random
from textwrap import indent
from typing import Any

_TESTS = tomllib.loads((resources.files("whetstone_exam.fuzz") / "fuzz_tests.toml").read_text("utf-8"))
_PROBES = _TESTS["probe"]
# A leak may need state of an earlier round, such as an object that is already known.
_ROUNDS = 8
# The number of different tests.
COUNT = len(_PROBES) + 1


def unit(number: int, secret: object, neighbours: list[object]) -> dict[str, Any]:
    """Return the unit with this number for the harness of the test process."""
    code = _TESTS["unittest"].replace("ROUNDS", str(_ROUNDS))
    if number < len(_PROBES):
        probe, asserted = _PROBES[number]["code"], _PROBES[number]["asserted"]
        code = f"def probe():\n{indent(probe, '    ')}\nfor _ in range({_ROUNDS}): attempt(probe)\n"
        code += f"{probe}\nassert {asserted} == SECRET"
    setup = _TESTS["setup"].replace("SECRETS", repr(neighbours)[1:-1])
    return {
        "kind": "asserts" if number < len(_PROBES) else "unittest",
        "setup": setup.replace("SECRET", repr(secret)),
        "code": code.replace("SECRET", repr(secret)),
        "entry_point": "f",
        "names": ["f", "Err"],
        "classes": [],
        "imports": {},
        "free": ["f", "Err"],
        "captures": False,
        "seeds": False,
        "files": None,
    }


def secrets(rng: Random) -> tuple[object, list[object]]:
    """Return a secret and a second random value, both of constant size."""
    texts: list[object] = [f"canary-{rng.getrandbits(96):024x}" for _ in range(8)]
    return rng.choice((texts[0], rng.getrandbits(61) | 1 << 60)), texts[1:]
