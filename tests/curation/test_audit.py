"""The audit counts misjudged programs, its intervals cover the true rate, and it can be interrupted."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.core.problem import CallCase, CallTests, Problem, Program
from whetstone.data.files import write_problems
from whetstone.judge import Judge
from whetstone_curation.audit.labelled_programs import read_submissions
from whetstone_curation.audit.problem_audit import OriginCounts, ProblemAudit
from whetstone_curation.audit.whole_set import AuditPlan, audit_set, journal_path, summarize

ABSOLUTE = "def size(n):\n    return abs(n)\n"
SAME = "def size(n):\n    return n\n"


def problem(name: str, cases: list[CallCase]) -> Problem:
    return Problem(
        name,
        "The absolute value of n.",
        CallTests(cases, "size"),
        references=[Program("python", ABSOLUTE)],
        wrong=[Program("python", SAME)],
    )


WEAK = problem("weak", [CallCase(2, [2]), CallCase(0, [0])])
STRONG = problem("strong", [CallCase(2, [2]), CallCase(3, [-3])])
FALSE = problem("false", [CallCase(2, [2]), CallCase(-3, [-3])])


@pytest.mark.process
def test_wrong_programs_that_slip_through_and_rejected_correct_ones_are_found(tmp_path: Path) -> None:
    source, labelled = tmp_path / "set.jsonl", tmp_path / "labelled.jsonl"
    write_problems(source, [STRONG, WEAK, FALSE])
    rows = [
        {"problem_id": "strong", "source": "def size(n):\n    return max(n, -n)\n", "correct": True},
        {"problem_id": "strong", "source": SAME, "correct": False},
        {"problem_id": "weak", "source": "def size(n):\n    return 2 if n else 0\n", "correct": False},
    ]
    labelled.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Judge(workers=1) as judge:
        found = audit_set(source, judge, AuditPlan(programs=str(labelled), mutants=4), workers=1)
    known, mutated, references, submissions = found.rates
    # strong rejects both of its wrong programs, weak accepts both, and false accepts its one.
    assert (known.problems, known.programs, known.misjudged) == (3, 5, 3)
    assert known.rate == pytest.approx(2 / 3)
    assert known.low is not None
    assert known.high is not None
    assert known.low < 2 / 3 < known.high
    assert (references.programs, references.misjudged) == (3, 1)
    assert (submissions.programs, submissions.misjudged) == (1, 0)
    # The reference of `false` is rejected, so it has no mutants.
    assert mutated.problems == 2
    assert {weak.problem_id for weak in found.weakest} >= {"weak", "false"}
    assert {weak.program.source for weak in found.weakest if weak.problem_id == "weak"} == {SAME}
    assert list(found.rejected) == ["false"]


@pytest.mark.parametrize("wrong", ['{"problem_id": "a", "source": ""}', "[]", "{"])
def test_a_line_without_a_label_is_an_error_that_names_it(wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "labelled.jsonl"
    path.write_text('{"problem_id": "a", "source": "", "correct": true}\n' + wrong + "\n")
    with pytest.raises(UserError, match="line 2"):
        read_submissions(path)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("problems", [20, 80])
def test_intervals_cover_the_rate_of_clustered_programs(problems: int) -> None:
    draw = random.Random(7)
    # Programs of a problem are alike: a quarter of the problems accept most wrong programs.
    often, seldom, weak = 0.7, 0.02, 0.25
    truth = weak * often + (1 - weak) * seldom
    covered, runs = 0, 400
    for _ in range(runs):
        audits: list[ProblemAudit] = []
        for number in range(problems):
            chance = often if draw.random() < weak else seldom
            accepted = sum(draw.random() < chance for _ in range(5))
            audits.append(ProblemAudit(str(number), "", [OriginCounts("wrong", False, 5, accepted)]))
        rate = summarize("simulated", audits).rates[0]
        assert rate.low is not None
        assert rate.high is not None
        covered += rate.low <= truth <= rate.high
    assert covered / runs >= 0.93


@pytest.mark.process
def test_the_command_writes_a_report_and_takes_over_stored_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, report = tmp_path / "set.jsonl", tmp_path / "audit.json"
    write_problems(source, [problem(f"p/{n}", [CallCase(n, [n])]) for n in range(12)])

    def interrupt(judged: Problem, audit: ProblemAudit) -> None:
        raise KeyboardInterrupt

    with Judge(workers=1) as judge, pytest.raises(KeyboardInterrupt):
        audit_set(source, judge, AuditPlan(mutants=2), report=report, workers=1, watch=interrupt)
    journal = journal_path(report)
    journal.write_bytes(journal.read_bytes().replace(b'"unjudged":0', b'"unjudged":17', 1))
    words = ["data", "audit", source, "--report", report, "--workers", "1", "--mutants", "2"]
    assert main(list(map(str, words))) == 0
    assert "12 of 12" in capsys.readouterr().out
    assert not journal.exists()
    written = json.loads(report.read_text())
    assert (written["problems"], written["unjudged"], len(written["weakest"])) == (12, 17, 10)
