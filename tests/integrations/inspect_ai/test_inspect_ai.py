"""inspect_ai evaluates scripted replies to a set of ours, and our scorer judges them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ADD = {
    "id": "t/add",
    "statement": "Print the sum.",
    "tests": {"kind": "stdin", "cases": [{"input": "1 2\n", "output": "3\n"}]},
}
FORGEABLE = {
    "id": "t/forgeable",
    "statement": "Double x.",
    "tests": {"kind": "assert", "asserts": ["assert f.__code__.co_argcount == 1"]},
    "references": [{"language": "python", "source": "def f(x):\n    return 2 * x\n"}],
}
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
WRONG = "```python\nprint(4)\n```"


def evaluated(problems: list[dict[str, object]], replies: list[str], folder: Path):
    from inspect_ai import Task, eval
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from whetstone.integrations.inspect_ai import code_dataset, whetstone_scorer

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
    task = Task(dataset=code_dataset(str(path)), scorer=whetstone_scorer(judge={"workers": 1}))
    [log] = eval(
        task, model=model, log_dir=str(folder / "logs"), display="none", max_samples=1, fail_on_error=False
    )
    return {sample.id: sample for sample in log.samples}


def test_right_and_wrong_replies_are_scored_with_a_reason(tmp_path: Path) -> None:
    samples = evaluated([ADD, {**ADD, "id": "t/again"}], [RIGHT, WRONG], tmp_path)
    right, wrong = (samples[name].scores["whetstone_scorer"] for name in ("t/add", "t/again"))
    assert (right.value, right.explanation) == ("C", "accepted")
    assert wrong.value == "I"
    assert wrong.explanation.startswith("wrong_answer: case 0: ")
    assert samples["t/add"].error is None
    assert "Print the sum." in samples["t/add"].input[-1].content


def test_a_reply_without_a_verdict_is_an_error_and_not_incorrect(tmp_path: Path) -> None:
    sample = evaluated([FORGEABLE], ["```python\ndef f(x):\n    return 2 * x\n```"], tmp_path)["t/forgeable"]
    assert "t/forgeable" in sample.error.message
    assert not sample.scores
