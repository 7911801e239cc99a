"""The attack suite: no attack earns reward, and every honest program is accepted."""

from __future__ import annotations

import json
import os
import re
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.other_pythons import SERIES, empty_environment, other_python
from tests.tiers import ALL_TIERS, skip_unless_offered
from whetstone.cli.main import main
from whetstone.core.problem import Program, case_count, deciding_program
from whetstone.judge import CaseJudgement, Judgement, Verdict
from whetstone.judge.rpc import call, shared_interpreter
from whetstone.sandbox import Tier
from whetstone.testing.attacks import suite
from whetstone.testing.attacks.corpus import Attack, Corpus, load_corpus
from whetstone.testing.attacks.suite import AttackTrial, corpus_trials, run_trials, trial_outcome


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load_corpus()


PACKAGES = re.compile(r"\b(?:numpy|pandas|scipy|sympy|networkx|sortedcontainers)\b")
WITHIN_A_PROCESS = {
    "argument_mutation",
    "asked_answers",
    "call_results",
    "class_design",
    "forged_equality",
    "lazy_values",
    "numpy_values",
    "problems",
    "program_checkers",
    "standard_checkers",
    "text_comparison",
    "vacuous_passes",
    "value_comparison",
}
"""Classes that the comparison decides, or the interpreter: the kernel has no part in them."""


def failures(chosen: list[AttackTrial], **options: Any) -> dict[str, str]:
    """What is wrong with each trial whose outcome is not as it must be, by the name of the trial."""
    outcomes = list(run_trials(chosen, **options))
    if tier := options.get("tier"):
        assert {o.judgement.isolation for o in outcomes} == {tier}
    if not options.get("fork_per_case", True):
        assert any(o.judgement.shared_process for o in outcomes)
    names = [f"{o.trial.class_name} / {o.trial.name} ({o.trial.role})" for o in outcomes]
    return {name: o.failure for name, o in zip(names, outcomes, strict=True) if o.failure}


def test_trials_need_the_language_of_the_checker_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def checkers(trials: list[AttackTrial]) -> set[str]:
        return {decides.language for trial in trials if (decides := deciding_program(trial.problem))}

    monkeypatch.setattr(suite, "runs_here", lambda name, isolation="": True)
    assert {"c", "cpp"} & checkers(corpus_trials(load_corpus()))
    monkeypatch.setattr(suite, "runs_here", lambda name, isolation="": name == "python")
    assert checkers(corpus_trials(load_corpus())) == {"python"}


def first_attacks(corpus: Corpus) -> Corpus:
    """Return the corpus with the first attack of each class."""
    return Corpus(corpus.problems, {name: attacks[:1] for name, attacks in corpus.classes.items()})


@pytest.mark.process
@pytest.mark.parametrize("tier", ALL_TIERS)
def test_the_first_attack_of_each_class_fails(corpus: Corpus, tier: Tier) -> None:
    skip_unless_offered(tier)
    trials = corpus_trials(first_attacks(corpus))
    assert {trial.class_name for trial in trials} >= set(corpus.classes)
    assert failures(trials, tier=tier.label) == {}


@pytest.mark.process
@pytest.mark.every_tier
@pytest.mark.parametrize("tier", ALL_TIERS)
def test_a_few_attacks_fail_on_every_tier(corpus: Corpus, tier: Tier) -> None:
    skip_unless_offered(tier)
    trials = [trial for trial in corpus_trials(first_attacks(corpus)) if trial.attack is not None]
    assert failures(trials[::8], tier=tier.label) == {}


QUARTERS = 4


@pytest.mark.process
@pytest.mark.drawn(1)
@pytest.mark.parametrize("quarter", range(QUARTERS))
@pytest.mark.parametrize("tier", ALL_TIERS)
def test_every_program_of_the_corpus_gets_its_verdict(corpus: Corpus, tier: Tier, quarter: int) -> None:
    skip_unless_offered(tier)
    assert failures(corpus_trials(corpus)[quarter::QUARTERS], tier=tier.label) == {}


@pytest.mark.extended
@pytest.mark.process
def test_the_weakest_tier_stops_the_attacks_that_leave_their_process(corpus: Corpus) -> None:
    """Its layers are other ones than those of the tiers with namespaces."""
    skip_unless_offered(Tier.RESTRICTED)
    assert WITHIN_A_PROCESS.issubset(trial.class_name for trial in corpus_trials(corpus))
    outside = [t for t in corpus_trials(corpus) if t.class_name not in WITHIN_A_PROCESS or excused(t)]
    assert len(outside) > 800
    assert failures(outside, tier=Tier.RESTRICTED.label) == {}


def excused(trial: AttackTrial) -> bool:
    """Whether the corpus says that the weakest tier does not stop this attack."""
    return trial.attack is not None and Tier.RESTRICTED.label in trial.attack.not_stopped


@pytest.mark.process
@pytest.mark.drawn(1)
@pytest.mark.parametrize("part", range(2 * QUARTERS))
def test_cases_in_one_process_let_no_attack_in(corpus: Corpus, part: int) -> None:
    """Where there is more than one case and the program is Python; all else is judged as above."""
    several = [
        t for t in corpus_trials(corpus) if t.program.language == "python" and case_count(t.problem) > 1
    ]
    assert len(several) > 100
    assert failures(several[part :: 2 * QUARTERS], fork_per_case=False) == {}


def attack_trial(corpus: Corpus, **fields: Any) -> AttackTrial:
    attack = Attack("n", "call_add", "a", "p", **fields)
    return AttackTrial("c", "n", "attack", corpus.problems["call_add"], Program("python", "p"), attack)


def judgement(verdict: Verdict, *cases: Verdict, **fields: Any) -> Judgement:
    score = None if verdict is Verdict.JUDGE_ERROR else float(verdict is Verdict.ACCEPTED)
    return Judgement(verdict, [CaseJudgement(case) for case in cases], score, "restricted", **fields)


ACCEPTED = judgement(Verdict.ACCEPTED, Verdict.ACCEPTED)
WRONG = judgement(Verdict.WRONG_ANSWER, Verdict.WRONG_ANSWER)


def test_an_attack_fails_the_suite_unless_it_is_stopped_or_excused(corpus: Corpus) -> None:
    partly = judgement(Verdict.WRONG_ANSWER, Verdict.WRONG_ANSWER, Verdict.ACCEPTED)
    failed = judgement(Verdict.JUDGE_ERROR)
    shared = judgement(Verdict.ACCEPTED, Verdict.ACCEPTED, shared_process=True)
    excuse = {
        where: {"not_stopped": {where: "because"}} for where in ("restricted", "root", "shared_process")
    }
    fields: dict[str, Any]
    for fields, got, outcome in (
        ({}, ACCEPTED, "failure"),
        ({}, failed, "failure"),
        ({}, partly, "failure"),
        ({}, WRONG, "stopped"),
        ({"verdicts": [Verdict.WRONG_ANSWER]}, WRONG, "stopped"),
        ({"verdicts": [Verdict.TIME_LIMIT]}, WRONG, "failure"),
        # Only the named tier or mark excuses an attack.
        (excuse["restricted"], ACCEPTED, "known"),
        (excuse["root"], ACCEPTED, "failure"),
        (excuse["shared_process"], ACCEPTED, "failure"),
        (excuse["shared_process"], shared, "known"),
        # A judge that failed is excused nowhere.
        (excuse["restricted"], failed, "failure"),
    ):
        found = trial_outcome(attack_trial(corpus, **fields), got)
        assert found.known == ("because" if outcome == "known" else "")
        assert bool(found.failure) == (outcome == "failure")


def test_a_forgeable_verdict_without_a_reward_is_no_success(corpus: Corpus) -> None:
    cases = [CaseJudgement(Verdict.ACCEPTED, shared_interpreter=True)]
    for score, escaped in ((None, False), (1.0, True)):
        forged = Judgement(Verdict.ACCEPTED, cases, score, "restricted", shared_interpreter=True)
        assert bool(trial_outcome(attack_trial(corpus), forged).failure) is escaped


def test_every_text_is_a_program_of_its_own() -> None:
    attack = Attack(
        "n", "p", "a", "print(TEXT)", texts=["'", "\\\n"], twin="print(TEXT, TEXT)", twin_texts=["é"]
    )
    assert attack.programs() == ["""print("'")""", "print('\\\\\\n')"]
    assert attack.twins() == ["print('\\xe9', '\\xe9')"]
    wrong: dict[str, Any]
    for wrong in ({"texts": ["x"]}, {"program": "TEXT"}, {"twin_texts": ["x"]}):
        with pytest.raises(ValueError, match="TEXT"):
            Attack("n", "p", "a", wrong.pop("program", "p"), **wrong)


def test_an_honest_program_that_is_not_accepted_is_a_failure(corpus: Corpus) -> None:
    for role in ("twin", "reference"):
        trial = msgspec.structs.replace(attack_trial(corpus), role=role)
        assert trial_outcome(trial, WRONG).failure
        assert not trial_outcome(trial, ACCEPTED).failure


@pytest.mark.process
def test_the_judgement_of_the_attack_counts_and_not_that_of_an_earlier_program(corpus: Corpus) -> None:
    fields = {"earlier": [corpus.problems["call_add"].references[0].source]}
    trial = attack_trial(corpus, **fields)
    [found] = run_trials([msgspec.structs.replace(trial, program=Program("python", "def add(a, b): pass"))])
    assert (found.judgement.verdict, found.failure) == (Verdict.WRONG_ANSWER, "")


@pytest.mark.process
def test_the_doctor_runs_the_suite_and_says_so(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two classes are enough here: the whole corpus was run above."""
    attacks = corpus.classes["early_exit"][:3]
    problems = {name: corpus.problems[name] for name in {"call_add", *(each.problem for each in attacks)}}
    few = Corpus(problems, {"early_exit": attacks})
    monkeypatch.setattr("whetstone.cli.doctor_attack.load_corpus", lambda: few)
    assert main(["doctor", "--attack", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["held"]
    assert (
        report["classes"]["early_exit"]["stopped"] == sum(t.role == "attack" for t in corpus_trials(few)) >= 3
    )
    assert report["classes"]["problems"]["accepted"] == len(corpus_trials(Corpus(problems, {})))

    honest = Attack("honest", "call_add", "be right", corpus.problems["call_add"].references[0].source)
    monkeypatch.setattr("whetstone.cli.doctor_attack.load_corpus", lambda: Corpus(problems, {"x": [honest]}))
    assert main(["doctor", "--attack"]) == 1
    assert "x / honest: had a case accepted" in capsys.readouterr().out


def test_the_harness_names_that_attacks_use_exist() -> None:
    """After a renaming, these attacks would find nothing, and pass without testing anything."""
    names = {*vars(shared_interpreter), *shared_interpreter.main.__code__.co_varnames, *vars(call)}
    used = {"token", "result_fd", "encode", "_write", "_run_unit", "run_tests", "_explain", "_materialise"}
    folder = resources.files("whetstone.testing.attacks") / "corpus"
    corpus = "".join(file.read_text() for file in folder.iterdir())
    assert used <= names
    assert {name for name in used if name not in corpus} == set()


@pytest.mark.process
@pytest.mark.parametrize("series", SERIES)
def test_a_few_attacks_fail_under_every_version_of_python(
    corpus: Corpus, series: str, tmp_path: Path
) -> None:
    os.chmod(tmp_path, 0o755)
    environment = empty_environment(other_python(series), tmp_path / "other")
    # The environment has no packages, so honest programs that import one would fail.
    trials = [
        trial
        for trial in corpus_trials(first_attacks(corpus))
        if trial.program.language == "python"
        and not PACKAGES.search(f"{trial.program.source}{trial.problem}")
    ]
    assert len(trials) > 100
    assert failures(trials[::4], environment=environment, workers=2) == {}
