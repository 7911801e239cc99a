"""The stress check finds nothing on a sound judge, and finds what is wrong where something is."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from whetstone.cli.main import main
from whetstone.judge import Verdict
from whetstone_exam.load.footprint import find_leftovers, process_tree, process_usage, read_traces
from whetstone_exam.load.load import stress
from whetstone_exam.load.mix import known_programs, mix

pytestmark = pytest.mark.process


def test_every_sort_of_program_gets_its_verdict_and_leaves_nothing() -> None:
    seen: list[int] = []
    programs = known_programs()
    findings = stress(programs, workers=4, on_progress=seen.append)
    assert findings.differences == []
    assert findings.left == {}
    assert findings.ok
    assert findings.programs == seen[-1] == len(programs)
    assert findings.tree_cpu_s > findings.program_cpu_s > 0.0
    assert findings.processes >= 8  # four workers, each with a fork-server


def test_a_wrong_verdict_is_a_difference() -> None:
    right = next(known for known in known_programs() if known.name == "right")
    expected_wrong = msgspec.structs.replace(right, verdicts=(Verdict.WRONG_ANSWER,))
    findings = stress([right, expected_wrong], workers=1)
    assert not findings.ok
    [difference] = findings.differences
    assert (difference.name, difference.got, difference.expected) == ("right", "accepted", ["wrong_answer"])


def test_the_mix_follows_its_seed_and_its_shares() -> None:
    assert sum(known.share for known in known_programs()) == 1000
    names = [known.name for known in mix(5000, seed=3)]
    assert names == [known.name for known in mix(5000, seed=3)]
    assert names != [known.name for known in mix(5000, seed=4)]
    for known in known_programs():
        assert abs(names.count(known.name) - 5 * known.share) < 5 * max(20, known.share / 2)


def test_leftovers_are_named() -> None:
    before = read_traces()
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    ours = process_tree([process.pid])
    assert [pid for pid, _ in ours] == [process.pid]
    assert process_usage(ours).resident_bytes > 0
    near, far = socket.socketpair()
    left_file = Path(tempfile.gettempdir(), f"whetstone-{process.pid}-left")
    left_file.touch()
    try:
        left = find_leftovers(before, ours, grace_s=0.0)
        assert left["processes"][0].startswith(f"{process.pid} ")
        assert left["files"] == [str(left_file)]
        assert sum("socket" in descriptor for descriptor in left["descriptors"]) == 2
    finally:
        left_file.unlink()
        near.close()
        far.close()
        process.communicate()
    assert find_leftovers(before, ours, grace_s=0.0) == {}


def test_a_process_that_took_over_the_number_of_an_ended_one_is_not_taken_for_it() -> None:
    own = os.getpid()
    assert find_leftovers(read_traces(), [(own, 1)], grace_s=0.0) == {}


@pytest.mark.extended
def test_the_command_reports_and_says_by_its_status_whether_the_judge_held(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "--stress", "12", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert report["programs"] == 12
    assert main(["doctor", "--stress", "0"]) == 2
    assert "--stress" in capsys.readouterr().err
