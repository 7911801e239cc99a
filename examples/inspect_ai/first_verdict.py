"""Two verdicts in inspect_ai, without a model, a network or a file of problems.

pip install -c constraints.txt -e . && pip install inspect_ai  # in a clone
python first_verdict.py
"""

import json
import tempfile
import time
from pathlib import Path

from inspect_ai import Task, eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from whetstone.integrations.inspect_ai import code_dataset, whetstone_scorer

TESTS = {"kind": "stdin", "cases": [{"input": "1 2\n", "output": "3\n"}, {"input": "2 2\n", "output": "4\n"}]}
REPLIES = ("```python\nprint(sum(map(int, input().split())))\n```", "```python\nprint(3)\n```")


def scripted(reply: str) -> ModelOutput:
    """Return an output with its usage. Without it, inspect_ai downloads a tokenizer to count tokens."""
    output = ModelOutput.from_content("mockllm/model", reply)
    output.usage = ModelUsage(total_tokens=1)
    return output


def main() -> None:
    began = time.monotonic()
    problems = [
        {"id": name, "statement": "Print the sum of two numbers.", "tests": TESTS}
        for name in ("right", "wrong")
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problems.jsonl"
        path.write_text("".join(json.dumps(problem) + "\n" for problem in problems))
        [log] = eval(
            Task(dataset=code_dataset(str(path)), scorer=whetstone_scorer(judge={"workers": 1})),
            model=get_model("mockllm/model", custom_outputs=[scripted(reply) for reply in REPLIES]),
            log_dir=folder,
            display="none",
            max_samples=1,  # the replies are in the order of the samples
        )
        if log.status != "success":
            raise SystemExit(f"the evaluation failed: {log.error.message if log.error else log.status}")
        for sample in log.samples or []:
            score = (sample.scores or {})["whetstone_scorer"]
            print(f"{sample.id}: {score.value}, {score.explanation}")
    print(f"evaluation: {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
