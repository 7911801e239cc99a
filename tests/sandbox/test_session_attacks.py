"""Programs that attack their session end it, or show text of their own. Each has an honest twin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.beside import data_beside
from tests.sandbox.sessions import SMALL, played, started
from whetstone.sandbox import CallEnd, PythonSessions, Tier

pytestmark = pytest.mark.isolation

DONE, ERROR = CallEnd.DONE, CallEnd.ERROR
FORGE = "import os, struct, time\nos.write(8, struct.pack('=QB', {}, {}))\n"
OF_MACHINE = f"""
import os
found = []
for pid in (1, os.getppid(), {os.getpid()}):
    for name in ("environ", "mem", "maps", "cmdline", "status"):
        try: found.append(open(f"/proc/{{pid}}/{{name}}", "rb").read(1))
        except (OSError, OverflowError): pass
for path in ("/etc/passwd", "/etc/shadow", "/root", {__file__!r}, "/proc/self/environ"):
    try: found.append(open(path, "rb").read(1))
    except OSError: pass
found, sorted(os.environ)
"""


ATTACKS: dict[str, dict[str, Any]] = data_beside(__file__)


@pytest.fixture(scope="module")
def sessions(tier: Tier) -> Iterator[PythonSessions]:
    sessions = started(tier, replace(SMALL, cpu_s=1.0, wall_s=3.0))
    yield sessions
    sessions.close_now()


@pytest.mark.drawn(12)
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_at_most_its_own_session_and_its_twin_works(
    sessions: PythonSessions, tier: Tier, name: str
) -> None:
    attack = ATTACKS[name]
    if attack.get("processes") and tier is Tier.RESTRICTED:
        pytest.skip("a program has one process there")
    calls = [OF_MACHINE if call == "OF_MACHINE" else call for call in attack["calls"]]
    results = played(sessions, *calls, "'after'")
    assert results[len(calls) - 1].ended in attack["ends"], results
    assert all(len(result.text) < 2500 for result in results)
    alive = results[-2].alive
    assert results[-1].ended is CallEnd.SESSION_ENDED or alive, results
    twin = played(sessions, *attack["twin"])
    assert (twin[-1].text, twin[-1].ended) == (attack["text"], DONE)
    assert twin[-1].alive


def test_nothing_of_the_machine_or_of_the_judge_can_be_read(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPECTED", "a secret")
    sessions = started(tier)
    try:
        [result] = played(sessions, OF_MACHINE)
    finally:
        sessions.close_now()
    assert result.text == "([], ['HOME', 'LANG', 'PATH', 'TMPDIR'])\n"


def test_output_of_a_child_is_output_of_its_session(sessions: PythonSessions, tier: Tier) -> None:
    if tier is Tier.RESTRICTED:
        pytest.skip("a program has one process there")
    calls = ATTACKS["child that runs on in the next call"]["calls"]
    results = played(sessions, *calls)
    lines = {line for result in results for line in result.text.splitlines()}
    assert "mine" in lines <= {"mine", "child"}


def test_a_forged_answer_shows_only_text_of_its_own_program(sessions: PythonSessions) -> None:
    results = played(sessions, "print('own')\n" + FORGE.format(1, 2) + "time.sleep(600)", "'next'")
    assert (results[0].text, results[0].ended, results[0].alive) == ("own\n", ERROR, True)
    assert (results[1].ended, results[1].alive) == (CallEnd.WALL_LIMIT, False)
