"""``examples/minimal_rl.py`` runs as it is printed in the documentation."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "minimal_rl.py"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    from whetstone.engine.loading import save_model
    from whetstone.engine.scratch import build_miniature

    built, tokenizer = build_miniature("llama", ["def f(xs):\n    return sum(xs)\n"] * 4, 0)
    folder = tmp_path_factory.mktemp("model")
    save_model(built, tokenizer, folder)
    return folder


@pytest.mark.extended
@pytest.mark.process
@pytest.mark.parametrize("chat", [True, False], ids=["chat", "base model"])
def test_it_samples_judges_trains_and_serves_the_new_weights(model: Path, chat: bool) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = "{{ messages[0]['content'] }}" if chat else None
    (model / "chat_template.jinja").unlink(missing_ok=True)
    tokenizer.save_pretrained(model)
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE), str(model), "--steps", "2"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["step 1", "step 2"]


def test_only_groups_with_different_rewards_are_trained_on() -> None:
    pytest.importorskip("torch")
    from whetstone.core.sample import Group, Sample

    def group(*rewards: float | None) -> Group:
        return Group("p", [1], [Sample([2], [-0.1], [0], "stop", "", reward=reward) for reward in rewards])

    informative = runpy.run_path(str(EXAMPLE))["informative"]
    mixed = group(0.0, None, 1.0)
    assert informative([group(1.0, 1.0), mixed, group(0.0, None), group(None)]) == [mixed]
