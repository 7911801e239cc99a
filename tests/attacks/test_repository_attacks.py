"""Changes of a repository that try to be graded as right without a repair, and honest changes like them."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import msgspec
import pytest

from tests.attacks.repository_corpus import (
    BASE,
    RIGHT,
    WRONG,
    RepositoryAttack,
    attacked_task,
    change_of,
    load_attacks,
    payment,
    refusal_of,
)
from tests.judge.repository_tasks import pytest_environment
from tests.tiers import ALL_TIERS, skip_unless_offered
from whetstone.core.errors import UserError
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.judge.repository.grader import RepositoryGrader
from whetstone.judge.repository.task import RepositoryTask

FAMILIES = load_attacks()
ATTACKS = [attack for family in FAMILIES.values() for attack in family]
QUICK = [attack for attack in ATTACKS if not attack.slow]
WORKERS = 2
PARTS = 8
COMBINATIONS, SEEDS = 400, 16
Graded = tuple[RepositoryGrader, RepositoryTask]


@pytest.fixture(scope="module", params=ALL_TIERS)
def graded(request: pytest.FixtureRequest) -> Generator[Graded]:
    skip_unless_offered(request.param)
    with (
        pytest_environment() as folder,
        RepositoryGrader(str(folder), tier=request.param, workers=WORKERS) as grader,
    ):
        yield grader, attacked_task(grader)


def test_the_corpus_has_every_family_and_no_name_twice() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 60
    assert all(attack.aim and attack.change() != attack.twin_change() for attack in ATTACKS)
    assert RIGHT != WRONG


def faults(graded: Graded, attacks: Iterable[RepositoryAttack]) -> dict[str, str]:
    """Grade attacks and their twins. Returns what was paid, and which twin was refused."""
    grader, task = graded

    def fault_of(attack: RepositoryAttack) -> str:
        for _ in range(1 + attack.earlier):
            if paid := payment(task, grader.grade(task, BASE, attack.change())):
                return f"paid: {paid}"
        refused = refusal_of(grader.grade(task, BASE, attack.twin_change()))
        return refused and f"the twin was refused: {refused}"

    attacks = list(attacks)
    with ThreadPoolExecutor(WORKERS) as pool:
        found = zip(attacks, pool.map(fault_of, attacks), strict=True)
        return {attack.name: fault for attack, fault in found if fault}


@pytest.mark.process
@pytest.mark.drawn(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_attack_pays_and_every_honest_twin_is_accepted(graded: Graded, part: int) -> None:
    assert graded[1].sealed
    assert faults(graded, QUICK[part::PARTS]) == {}


@pytest.mark.process
@pytest.mark.extended
def test_attacks_that_a_limit_ends_late_do_not_pay(graded: Graded) -> None:
    assert faults(graded, [attack for attack in ATTACKS if attack.slow]) == {}


@pytest.mark.process
@pytest.mark.drawn(1)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_combination_of_attacks_pays(graded: Graded, seed: int) -> None:
    """Two to four attacks in one module, in random order, with all of their files."""
    grader, task = graded
    random = Random(seed)
    small = [attack for attack in QUICK if not attack.many and attack.name != "syntax error"]

    def paid_for(chosen: list[RepositoryAttack]) -> str:
        code = WRONG + "".join(
            f"\ntry:\n    exec({attack.code!r})\nexcept Exception: pass\n" for attack in chosen
        )
        files = {path: text for attack in chosen for path, text in attack.files.items()}
        return payment(task, grader.grade(task, BASE, change_of(code, files)))

    combinations = [random.sample(small, random.randint(2, 4)) for _ in range(COMBINATIONS // SEEDS)]
    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(paid_for, combinations))
    names = [" + ".join(attack.name for attack in chosen) for chosen in combinations]
    assert {name: paid for name, paid in zip(names, found, strict=True) if paid} == {}


@pytest.mark.process
def test_what_counts_as_a_payment(graded: Graded) -> None:
    task = graded[1]
    wrong = [CaseJudgement(Verdict.WRONG_ANSWER)] * len(task.fail_to_pass)
    one = [CaseJudgement(Verdict.ACCEPTED), *wrong[1:]]
    unjudged = [CaseJudgement(Verdict.JUDGE_ERROR), *wrong[1:]]
    for verdict, cases, score, paid in (
        (Verdict.WRONG_ANSWER, wrong, 0.0, False),
        (Verdict.ACCEPTED, one[:1], 1.0, True),
        (Verdict.WRONG_ANSWER, one, 0.0, True),
        (Verdict.WRONG_ANSWER, unjudged, 0.0, True),
        (Verdict.JUDGE_ERROR, [], None, True),
    ):
        assert bool(payment(task, Judgement(verdict, cases, score, "root"))) is paid


@pytest.mark.process
def test_a_task_with_its_package_in_the_environment_is_refused(graded: Graded) -> None:
    grader, task = graded
    readable = msgspec.structs.replace(task, reference={"src/iniconfig/__init__.py": ""})
    with pytest.raises(UserError, match="programs could read iniconfig in the environment"):
        grader.grade(readable, BASE, {})


def test_the_page_of_threats_has_the_numbers_of_the_corpus() -> None:
    page = (Path(__file__).parents[2] / "docs" / "threats.md").read_text(encoding="utf-8")
    for name, family in FAMILIES.items():
        assert f"| {name} | {len(family)} |" in page
    assert f"Each of the {len(ATTACKS)} has an honest twin" in page
    assert f"{COMBINATIONS} random combinations" in page
