"""The audit of an asynchronous run stands on its page, and in `status` once its roles have ended."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.report.synthetic_run import write_run
from tests.rollout.doubles import facts_at
from whetstone.cli.main import main
from whetstone.report.audit import KeptAudit, audit_rows, keep_audit, read_audit
from whetstone.report.page import write_page
from whetstone.rollout.audit import Audit
from whetstone.run.run_dir import write_flow_url

ACCOUNTS = {"trained": 2, "zero_variance": 2, "buffered": 1, "under_way": 3}


def figures() -> dict[str, float]:
    """Of two groups that were trained, and two longer ones that were dropped."""
    audit = Audit()
    for reason, length in (("", 10), ("", 20), ("zero_variance", 90), ("zero_variance", 80)):
        reward = 1.0 if reason else 0.5
        audit.add(facts_at("p", "a", "x", [reward, reward], [length, length], 0), reason)
    return audit.figures()


def finished(folder: Path, *, audited: bool = True) -> Path:
    run = write_run(folder / "run", steps=6)
    recipe = run / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("{preset: dapo}", "{preset: grpo}"))
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    write_flow_url(run, f"http://127.0.0.1:{port}")
    if audited:
        keep_audit(run, KeptAudit(6, figures(), ACCOUNTS))
    return run


def test_the_audit_has_a_sentence_for_each_figure() -> None:
    rows = dict(audit_rows(figures()))
    assert rows["groups trained"] == "2 of 4 sampled"
    assert rows["tokens of a reply, mean"] == "15.0 trained, 50.0 sampled"
    assert rows["reward, mean"] == "0.500 trained, 0.750 sampled"
    assert rows["difference of lengths"].startswith("0.500 ")
    assert rows["dropped as zero variance"].startswith("50.0% of the groups; ")
    assert "the mean length would change by -35.0;" in rows["dropped as zero variance"]
    assert rows["dropped as zero variance"].endswith("the mean reward would change by -0.250")
    assert not list(audit_rows({}))


@pytest.mark.process
def test_status_of_a_finished_run_reads_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(finished(tmp_path)), "--text"]) == 0
    said = capsys.readouterr().out
    assert "step 6 of 6 is complete; the run is complete" in said
    assert "its roles have ended" in said
    assert "prompts of policy, up to step 6: 2 trained, dropped: 2 zero_variance; 1 wait for a batch" in said
    assert "audit of policy: groups trained: 2 of 4 sampled; " in said
    assert "ConnectError" not in said
    assert "none answers" not in said


@pytest.mark.process
def test_status_of_an_interrupted_run_says_that_no_flow_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished(tmp_path, audited=False)
    recipe = run / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("steps: 6", "steps: 9"))
    assert main(["view", str(run), "--text"]) == 0
    assert "flow: none answers at http://127.0.0.1:" in capsys.readouterr().out


def test_the_page_shows_the_audit_of_a_run_that_has_one(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert "Audit of the dataflow" not in write_page(run).read_text(encoding="utf-8")
    keep_audit(run, KeptAudit(6, figures(), ACCOUNTS))
    page = write_page(run).read_text(encoding="utf-8")
    assert "Audit of the dataflow" in page
    assert '["groups trained","2 of 4 sampled"]' in page
    (run / "flow-audit.json").write_text('{"step": "<b>"}')
    assert read_audit(run) is None
    assert "Audit of the dataflow" not in write_page(run).read_text(encoding="utf-8")
