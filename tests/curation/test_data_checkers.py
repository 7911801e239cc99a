"""``whetstone data checkers`` with an endpoint over a real socket that writes checkers of every kind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.curation.checker_sources import REFUSED, RIGHT, pair_problem
from tests.data.clean_problems import SUM, SUM_CASES, problem, stdin
from tests.evaluate.scripted_server import Answer, Scripted, completion, fenced, serving
from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, PythonChecker
from whetstone.data.card import read_card
from whetstone.data.dataset import open_problems
from whetstone.data.decisions import ProblemDecision, read_decisions
from whetstone.data.files import write_problems
from whetstone_curation.checkers.writing import journal_path

pytestmark = pytest.mark.process

LENIENT, STALLS = REFUSED["lenient"][0], REFUSED["stalls"][0]


def written(by: dict[str, list[str | None]]) -> Callable[[str, dict[str, Any], int], Answer]:
    """An endpoint that answers by the word of the problem's name in the question, each time with the next."""
    left = {name: list(sources) for name, sources in by.items()}

    def answer(path: str, body: dict[str, Any], before: int) -> Answer:
        text = body["messages"][-1]["content"]
        name = next(name for name in left if f"[{name}]" in text)
        source = left[name].pop(0) if left[name] else None
        return completion("I do not know.") if source is None else completion(fenced(source))

    return answer


def named(name: str, **fields: object) -> Problem:
    one = pair_problem(name, **fields)
    return msgspec.structs.replace(one, statement=f"[{name}] {one.statement}")


def checkers(source: Path, out: Path, url: str, *more: str) -> int:
    return main(["data", "checkers", str(source), "--out", str(out), "--endpoint", url, "--workers", "2",
                 "--patience", "0.3", *more])  # fmt: skip


def decisions(out: Path) -> dict[str, ProblemDecision]:
    return {d.problem_id.removeprefix("made/"): d for d in read_decisions(out / "decisions.jsonl")}


@pytest.mark.extended
def test_valid_checkers_are_kept_and_others_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by: dict[str, list[str | None]] = {
        "right": [RIGHT], "second": [LENIENT, RIGHT], "lenient": [LENIENT, LENIENT],
        "stalls": [STALLS, None],
    }  # fmt: skip
    plain = problem("plain", "Print the sum.", stdin(*SUM_CASES), SUM)
    untried = named("untried", references=[])
    problems = [*(named(name) for name in by), plain, untried]
    write_problems(tmp_path / "raw.jsonl", problems)
    out = tmp_path / "out"
    with serving(Scripted(written(by))) as server:
        assert checkers(tmp_path / "raw.jsonl", out, server.url) == 0
    kept = {one.id.removeprefix("made/"): one for one in open_problems(out)}
    assert {name for name, one in kept.items() if one.checker is not None} == {"right", "second"}
    assert isinstance(kept["right"].checker, PythonChecker)
    assert kept["right"].checker.source.strip() == RIGHT.strip()
    facts = kept["second"].meta["checker_evidence"]
    assert (facts["model"], facts["attempt"], facts["references"]) == ("scripted", 1, 2)
    assert kept["plain"] == plain
    said = decisions(out)
    assert {name: d.reason for name, d in said.items()} == {
        "right": "checker_written", "second": "checker_written", "lenient": "checker_refused",
        "stalls": "checker_refused", "untried": "checker_untried",
    }  # fmt: skip
    assert "refuses_reference" not in said["lenient"].detail
    assert said["lenient"].detail.startswith("accepts_trivial: ")
    assert said["stalls"].detail.startswith("no_checker: ")
    # "plain" and "untried" are not asked about; what was kept is not asked about again.
    assert len(server.requests) == 7
    assert {body["seed"] for _, body in server.requests} != {server.requests[0][1]["seed"]}
    assert "2 of 4 got a checker" in capsys.readouterr().out
    assert not journal_path(out).exists()
    card = read_card(out)
    assert card is not None
    assert [(one.problem_id, one.model) for one in card.checkers] == [
        ("made/right", "scripted"), ("made/second", "scripted"),
    ]  # fmt: skip
    assert "accepts 2 references on 4 cases" in (out / "card.html").read_text()


def test_a_problem_with_its_checker_is_valid(tmp_path: Path) -> None:
    write_problems(tmp_path / "raw.jsonl", [named("right")])
    with serving(Scripted(written({"right": [RIGHT]}))) as server:
        checkers(tmp_path / "raw.jsonl", tmp_path / "out", server.url, "--attempts", "1")
    valid = tmp_path / "valid.jsonl"
    assert main(["data", "validate", str(tmp_path / "out"), "--out", str(valid), "--workers", "2"]) == 0
    assert [one.id for one in open_problems(valid)] == ["made/right"]


def test_killed_it_goes_on_and_asks_for_nothing_twice(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(4)]
    write_problems(tmp_path / "raw.jsonl", [named(name) for name in names])
    out, gate = tmp_path / "out", tmp_path / "gate"
    script = written({name: [RIGHT] for name in names})

    def answer(path: str, body: dict[str, Any], before: int) -> Answer:
        if gate.exists() or before < 2:
            return script(path, body, before)
        deadline = time.monotonic() + 120
        while not gate.exists() and time.monotonic() < deadline:  # the run that asked is killed meanwhile
            time.sleep(0.01)
        return 0, None

    with serving(Scripted(answer)) as server:
        command = [sys.executable, "-m", "whetstone", "data", "checkers", str(tmp_path / "raw.jsonl")]
        command += ["--out", str(out), "--endpoint", server.url, "--concurrency", "1", "--workers", "1"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as run:
            while run.poll() is None and lines(journal_path(out)) < 3:
                time.sleep(0.01)
            os.kill(run.pid, signal.SIGKILL)
        assert not out.exists()
        there = lines(journal_path(out)) - 1
        with journal_path(out).open("ab") as torn:
            torn.write(b'{"type":"answered","problem_id":"made/n')
        gate.touch()
        asked = len(server.requests)
        assert checkers(tmp_path / "raw.jsonl", out, server.url) == 0
        assert len(server.requests) - asked == len(names) - there
    assert all(one.checker is not None for one in open_problems(out))


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_another_model_does_not_resume_earlier_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_problems(tmp_path / "raw.jsonl", [named("right")])
    out = tmp_path / "out"
    journal_path(out).write_bytes(json.dumps({"type": "asked", "how": {"model": "other"}}).encode() + b"\n")
    with serving(Scripted(written({"right": [RIGHT]}))) as server:
        said = error_of(capsys, lambda: checkers(tmp_path / "raw.jsonl", out, server.url))
    assert "repeat the first command to resume it, or delete the file" in said
    assert server.requests == []


def error_of(capsys: pytest.CaptureFixture[str], call: Callable[[], object]) -> str:
    assert call() == 2
    return capsys.readouterr().err


@pytest.mark.extended
def test_errors_name_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, none, closed = tmp_path / "one.jsonl", tmp_path / "none.jsonl", tmp_path / "closed.jsonl"
    write_problems(one, [named("right")])
    write_problems(none, [named("right", references=[])])
    write_problems(closed, [problem("plain", "Print the sum.", stdin(*SUM_CASES), SUM)])
    out = tmp_path / "out"
    dead = lambda: checkers(one, out, "http://127.0.0.1:9")  # noqa: E731
    assert "cannot be reached" in error_of(capsys, dead)
    no_url = lambda: main(["data", "checkers", str(one), "--out", str(out)])  # noqa: E731
    assert "--endpoint is missing: the address of a server" in error_of(capsys, no_url)
    with serving(Scripted(lambda path, body, before: (401, {"error": "no such key"}))) as server:
        said = error_of(capsys, lambda: checkers(one, out, server.url))
        assert "401" in said
        assert "WHETSTONE_API_KEY" in said
    with serving(Scripted(lambda path, body, before: (500, {}))) as server:
        assert "every request failed" in error_of(capsys, lambda: checkers(one, out, server.url))
    with serving(Scripted(written({"right": [RIGHT]}))) as server:
        said = error_of(capsys, lambda: checkers(none, out, server.url))
        assert "has a reference" in said
        assert "add right programs as `references`" in said
        assert "--mark several_answers" in error_of(capsys, lambda: checkers(closed, out, server.url))
        full = lambda: checkers(one, tmp_path / "no" / "out", server.url)  # noqa: E731
        (tmp_path / "no").write_text("a file where a folder should be")
        assert "cannot be written" in error_of(capsys, full)
    assert not out.exists()


def test_pending_requests_are_reported(tmp_path: Path) -> None:
    from whetstone.environments.settings import EnvironmentSection
    from whetstone.evaluate.plan import SamplingPlan
    from whetstone.evaluate.replies.endpoint import EndpointModel
    from whetstone.evaluate.replies.settings import EndpointSettings
    from whetstone.judge import Judge
    from whetstone_curation.checkers.journal import CheckerJournal
    from whetstone_curation.checkers.writing import CheckerWriting

    said: list[str] = []

    def answer(path: str, body: dict[str, Any], before: int) -> Answer:
        deadline = time.monotonic() + 60
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        return completion("I do not know.")

    write_problems(tmp_path / "raw.jsonl", [named("slow")])
    plan = SamplingPlan(n=1, k=(1,))
    with (
        serving(Scripted(answer)) as server,
        CheckerJournal(tmp_path / "j.jsonl", {}) as journal,
        Judge(workers=1) as judge,
    ):
        writer = EndpointModel(server.url, None, EndpointSettings()).writer(
            plan, EnvironmentSection(prompt="{statement}")
        )
        writing = CheckerWriting(
            tmp_path / "raw.jsonl", judge, writer, plan, "m", journal, say=said.append, minute_s=0.05
        )
        written_ = writing.run(tmp_path / "out", 1, lambda what, done, of: None)
    assert said[0].startswith("asking 1: 0 of 1 replies")
    assert (written_.kept, dict(written_.why)) == (0, {"no_checker": 1})


def test_a_full_disk_is_reported_with_the_way_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whetstone_curation.checkers.journal import CheckerJournal, ReplyEntry

    with CheckerJournal(tmp_path / "j.jsonl", {"model": "m"}) as journal:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("whetstone.core.outputs.write_all", full)
        with pytest.raises(UserError, match="free some space and run the same command again"):
            journal.add(ReplyEntry("p", "d", 0, "text"))


def test_two_runs_do_not_write_one_journal(tmp_path: Path) -> None:
    from whetstone_curation.checkers.journal import CheckerJournal

    with (
        CheckerJournal(tmp_path / "j.jsonl", {}),
        pytest.raises(UserError, match="another run is writing it"),
    ):
        CheckerJournal(tmp_path / "j.jsonl", {})
