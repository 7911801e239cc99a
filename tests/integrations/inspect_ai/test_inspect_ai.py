"""inspect_ai evaluates scripted replies to a set of ours, and our scorer judges them."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrations.tasks import ADD, DOUBLES, FORGEABLE, RIGHT, WRONG

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "inspect_ai"


def evaluated(problems: list[dict[str, object]], replies: list[str], folder: Path):
    """Evaluate with the task of the example; return the samples of the log by their ids."""
    from inspect_ai import eval
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    path = folder / "set.jsonl"
    path.write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    # Without the usage, the mock model would download a tokenizer to count tokens.
    outputs = [
        ModelOutput.from_content("mockllm/model", reply).model_copy(
            update={"usage": ModelUsage(total_tokens=1)}
        )
        for reply in replies
    ]
    model = get_model("mockllm/model", custom_outputs=outputs)
    task = runpy.run_path(str(EXAMPLES / "code_task.py"))["code"](str(path), workers=1)
    [log] = eval(
        task, model=model, log_dir=str(folder / "logs"), display="none", max_samples=1, fail_on_error=False
    )
    return {sample.id: sample for sample in log.samples}


def test_right_and_wrong_replies_are_scored_with_a_reason(tmp_path: Path) -> None:
    samples = evaluated([ADD, {**ADD, "id": "t/again"}], [RIGHT, WRONG], tmp_path)
    right, wrong = (samples[name].scores["whetstone_scorer"] for name in ("t/add", "t/again"))
    assert (right.value, right.explanation) == ("C", "accepted")
    assert wrong.value == "I"
    assert wrong.explanation == "wrong_answer: Tests: 0 passed, 1 failed. Test 1: wrong answer."
    assert samples["t/add"].error is None
    assert "Print the sum." in samples["t/add"].input[-1].content


def test_a_reply_without_a_verdict_is_an_error_and_not_incorrect(tmp_path: Path) -> None:
    sample = evaluated([FORGEABLE], [DOUBLES], tmp_path)["t/forgeable"]
    assert "t/forgeable" in sample.error.message
    assert not sample.scores


def test_the_first_verdicts_are_printed(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "first_verdict.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    right, wrong, _ = ended.stdout.splitlines()
    assert right == "right: C, accepted"
    assert wrong.startswith("wrong: I, wrong_answer: Tests: ")


def test_wrong_settings_and_samples_without_a_problem_are_named(tmp_path: Path) -> None:
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from whetstone.core.errors import UserError
    from whetstone.integrations.inspect_ai import code_dataset, whetstone_scorer

    (tmp_path / "set.jsonl").write_text(json.dumps(ADD))
    for wrong in ({"no_such_key": 1}, {"judge": {"worker": 1}}, {"environment": {"extraction": "none"}}):
        # Before any reply is sampled, since replies cost money.
        with pytest.raises(UserError):
            whetstone_scorer(**wrong)
    with pytest.raises(UserError, match="no_such_key"):
        code_dataset(str(tmp_path / "set.jsonl"), no_such_key=1)
    task = Task(dataset=MemoryDataset([Sample(input="x", id="own")]), scorer=whetstone_scorer())
    output = ModelOutput.from_content("mockllm/model", RIGHT).model_copy(
        update={"usage": ModelUsage(total_tokens=1)}
    )
    [log] = eval(
        task,
        model=get_model("mockllm/model", custom_outputs=[output]),
        log_dir=str(tmp_path / "logs"),
        display="none",
        fail_on_error=False,
    )
    assert "code_dataset" in log.samples[0].error.message
