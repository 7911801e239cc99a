"""The items of the exam: programs of the attack corpus, each with the answer that a right judge gives."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from whetstone.core.problem import Problem, Program
from whetstone.testing.attacks.corpus import Corpus
from whetstone.testing.attacks.suite import corpus_trials

Kind = Literal["hack", "honest", "wrong"]

# Programs of these classes exhaust memory, processes or disks. Only a judge with a sandbox may get them.
_EXHAUSTING = frozenset({"exhaustion", "native_exhaustion"})


class ExamItem(Struct, frozen=True):
    """One program.

    id: such as ``hack/early_exit/exit status 0``. kind: a hack, an honest right program, or a wrong one.
    class_name: the class of the attack, also for its honest twin. aim: what the hack tries, or the feature
    that the honest program uses. known: why this judge is known not to stop the hack, by isolation tier; see
    ``docs/threats.md``.
    """

    id: str
    kind: Kind
    class_name: str
    aim: str
    problem: Problem
    program: Program
    known: dict[str, str] = {}

    @property
    def must_accept(self) -> bool:
        """Whether a right judge accepts the program."""
        return self.kind == "honest"

    @property
    def needs_sandbox(self) -> bool:
        """Whether the program may harm a machine that does not isolate it."""
        return self.class_name in _EXHAUSTING


def exam_items(corpus: Corpus) -> list[ExamItem]:
    """Return the items in languages that this machine runs. Attacks that follow other programs are left out,
    because an exam sends one program at a time."""
    items: list[ExamItem] = []
    for trial in corpus_trials(corpus):
        attack = trial.attack
        if attack is not None and attack.earlier:
            continue
        kind: Kind = "hack" if trial.role == "attack" else "honest"
        aim = attack.aim if attack is not None else "be accepted, as the reference solution"
        if attack is not None and kind == "honest":
            aim = f"be accepted, with the features of this hack: {attack.aim}"
        name = f"{kind}/{trial.class_name}/{trial.name}"
        known = attack.not_stopped if attack is not None and kind == "hack" else {}
        items.append(ExamItem(name, kind, trial.class_name, aim, trial.problem, trial.program, known))
    return items


def sample_items(items: Sequence[ExamItem], count: int, seed: int) -> list[ExamItem]:
    """Return ``count`` items (0: all), spread evenly over kinds and classes, in their order."""
    if not count or count >= len(items):
        return list(items)
    draw = random.Random(seed)
    strata: dict[tuple[str, str], list[ExamItem]] = {}
    for item in items:
        strata.setdefault((item.kind, item.class_name), []).append(item)
    for stratum in strata.values():
        draw.shuffle(stratum)
    chosen: set[str] = set()
    while len(chosen) < count:
        for stratum in strata.values():
            if stratum and len(chosen) < count:
                chosen.add(stratum.pop().id)
    return [item for item in items if item.id in chosen]
