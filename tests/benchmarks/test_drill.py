"""The vocabulary of the drill, its policy, and two steps of training with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.drill.__main__ import Drill, judged
from benchmarks.drill.policy import HACK_SHARE, RIGHT_SHARE, write_policy
from benchmarks.drill.world import FORMS, HACKS, mixed_problems, problems, right_program, vocabulary


@pytest.mark.extended
@pytest.mark.process
def test_right_programs_solve_their_problems_in_every_form_and_hacks_solve_none() -> None:
    programs = vocabulary(hacks=True)
    assert set(vocabulary(hacks=False)) | set(HACKS.values()) == set(programs)
    for form in FORMS:
        for hidden in (False, True):
            tasks = problems(form, hidden=hidden)
            answers = judged(tasks, programs)
            for task in tasks:
                solutions = {text for text in programs if answers[task.id][text]}
                assert right_program(task) in solutions
                assert not solutions & set(HACKS.values())


@pytest.mark.extended
def test_the_policy_begins_with_the_stated_shares(tmp_path: Path) -> None:
    tasks, programs = mixed_problems()[:3], vocabulary(hacks=True)
    write_policy(tmp_path, tasks, programs, 0)
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path)
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path)
    for task in tasks:
        given = torch.tensor([[tokenizer.convert_tokens_to_ids(task.statement)]])
        shares = model(given).logits[0, -1].softmax(-1)
        ids = tokenizer.convert_tokens_to_ids([right_program(task), *HACKS.values()])
        right, *hacks = shares[ids].tolist()
        assert right == pytest.approx(RIGHT_SHARE, rel=0.2)
        assert sum(hacks) == pytest.approx(HACK_SHARE, rel=0.2)


@pytest.mark.extended
@pytest.mark.process
def test_a_policy_is_trained_with_this_judge(tmp_path: Path) -> None:
    figures = Drill(tmp_path, cpu_hours=1, steps=2, samples=16, lr=1e-3).run("whetstone", 0, "")
    assert [len(figures[name]) for name in ("rewarded", "hacks", "right")] == [2, 2, 2]
    assert sum(figures["hacks"]) == 0
    assert sum(figures["rewarded"]) > 0
