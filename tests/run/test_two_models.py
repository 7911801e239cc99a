"""Two models trained against each other: killed roles resume exactly."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.run.roles_by_hand import CHEAPER, SECTION, process_of, until
from tests.run.tiny_recipe import RECIPE, finished, start, timeless
from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.run.recipe import load_recipe, partner_recipe

_OPTIONS = {
    "cases": 1,
    "prompt": "# {statement}\n{program}\n",
    "prefix": '{"inputs": [[[',
}
VERIFIED = (
    RECIPE.replace(
        "environment: {", f"environment: {{kind: codegen_verifier, options: {json.dumps(_OPTIONS)}, "
    )
    + """verifier:
  warmup: {writes: cases}
  sampling: {max_tokens: 30}
  algorithm: {preset: dapo, drop_zero_variance: false, refill_rounds: 0, overlong_buffer: 30}
"""
    + SECTION
)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "two.yaml"
    path.write_text(VERIFIED, encoding="utf-8")
    return path


def test_the_second_model_has_a_recipe_of_its_own(recipe: Path) -> None:
    whole = load_recipe(recipe)
    partner = partner_recipe(whole)
    assert partner.warmup is not None
    assert whole.warmup is not None
    assert (partner.warmup.writes, partner.warmup.steps) == ("cases", whole.warmup.steps)
    assert (partner.sampling.max_tokens, partner.sampling.temperature) == (30, whole.sampling.temperature)
    assert (partner.trainer, partner.seed) == (whole.trainer, whole.seed)
    assert partner.run_dir() == whole.run_dir() / "verifier"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("verifier=null", "needs a second model: set `verifier`"),
        ("flow=null", "add `flow: {staleness: 0}` to the recipe"),
        ("environment.kind=single_turn", "`single_turn` has no options"),
        ("verifier.trainer={steps: 3}", "both models share `trainer.steps`"),
        ("trainer.keep_checkpoints=1", "`trainer.keep_checkpoints` must be at least 2"),
        ("verifier.sampling={max_token: 3}", "unknown key `verifier.sampling.max_token`; did you mean"),
        ("verifier.trainer={lr: -1}", "`verifier.trainer.lr`: Input should be greater than 0"),
    ],
)
def test_two_models_reject_unsupported_settings(recipe: Path, override: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        partner_recipe(load_recipe(recipe, [override]))
    assert words in str(caught.value)


@pytest.mark.slow
def test_two_models_with_killed_roles_repeat_the_uninterrupted_metrics(recipe: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finished(recipe, whole, *CHEAPER)
    verifier = [json.loads(line) for line in (whole / "verifier" / "metrics.jsonl").read_text().splitlines()]
    assert any(record.get("loss/updates", 0) > 0 for record in verifier)
    records = [killed / name / "metrics.jsonl" for name in (".", "verifier")]
    with start(recipe, killed, *CHEAPER) as train:
        for count, *role in ((2, "trainer", "verifier"), (3, "rollout"), (4, "trainer")):
            until(
                lambda count=count: all(
                    file.exists() and file.read_bytes().count(b"\n") >= count for file in records
                ),
                f"{count} records of both",
                train,
            )
            os.kill(process_of(train.pid, *map(str, role)), signal.SIGKILL)
        assert train.wait() == 0, train.printed() + train.printed("err")
        said = train.printed()
    for name in ("trainer-coder", "trainer-verifier", "rollout-0"):
        assert f"{name} ended by SIGKILL; restarting (1 of 5)" in said
    for name in (".", "verifier"):
        assert timeless(killed / name / "metrics.jsonl") == timeless(whole / name / "metrics.jsonl")
    assert main(["report", str(killed)]) == 0


def test_the_error_for_an_unknown_model_names_the_known_ones(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"out={tmp_path / 'run'}", "--flow", "http://127.0.0.1:1"]
    assert main(["role", "trainer", str(recipe), *words, "--model", "verifer"]) == 2
    assert "unknown model `verifer`; did you mean `verifier`? (coder, verifier)" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
