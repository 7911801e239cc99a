"""Control arms sample with the starting weights, are evaluated with the trained ones, and resume exactly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.run.tiny_recipe import finished, timeless
from whetstone.report.metrics import Record, read_metrics
from whetstone.report.rollouts import read_rollouts, rollout_steps
from whetstone.run.recipe import load_recipe

SMALL = ("warmup.steps=20", "evaluation={n: 1, k: [1], every: 2}", "trainer.steps=4")
ARM = (*SMALL, "algorithm={preset: ssd}", "sampling.temperature=1.3")


def replies(out: Path) -> list[list[str]]:
    return [[row.reply for row in read_rollouts(out, step)] for step in rollout_steps(out)]


def trained(out: Path) -> list[Record]:
    return [record for record in read_metrics(out / "metrics.jsonl") if record["kind"] == "train"]


def evaluated(out: Path) -> dict[int, list[tuple[str, str]]]:
    """The replies of each evaluation, by problem."""
    found: dict[int, list[tuple[str, str]]] = {}
    for folder in (out / "evaluations").glob("step-*-heldout"):
        lines = (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()
        samples = [json.loads(line) for line in lines]
        found[int(folder.name.split("-")[1])] = sorted((s["problem_id"], s["text"]) for s in samples)
    return found


@pytest.fixture(scope="module")
def arm(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("arm") / "run"
    finished(recipe, out, *ARM)
    return out


@pytest.mark.extended
@pytest.mark.process
def test_all_replies_are_those_of_the_starting_weights(arm: Path, recipe: Path, tmp_path: Path) -> None:
    """A run whose weights hardly move samples the same replies, although evaluations load other weights."""
    still = tmp_path / "run"
    finished(recipe, still, *ARM, "trainer.lr=1e-12")
    assert replies(arm) == replies(still)
    assert {row.version_max for step in (1, 4) for row in read_rollouts(arm, step)} == {0}
    assert all(record["loss/replies"] == 16 for record in trained(arm))
    # The evaluations are of the trained weights: at step 0 they agree, and later they do not.
    ours, theirs = evaluated(arm), evaluated(still)
    assert ours[0] == theirs[0]
    assert ours[4] != theirs[4]
    assert ours[2] != ours[4]


@pytest.mark.extended
@pytest.mark.process
def test_with_the_current_weights_later_replies_differ(arm: Path, recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    current = "algorithm={preset: ssd, sampling_weights: current}"
    finished(recipe, out, *ARM, current)
    first, *later = replies(out)
    assert first == replies(arm)[0]
    assert later[-1] != replies(arm)[-1]


@pytest.mark.extended
@pytest.mark.process
def test_a_resumed_arm_equals_an_uninterrupted_one(arm: Path, recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished(recipe, out, *ARM, "trainer.steps=2")
    finished(recipe, out, *ARM)
    assert timeless(out / "metrics.jsonl") == timeless(arm / "metrics.jsonl")
    assert replies(out) == replies(arm)


@pytest.mark.extended
@pytest.mark.process
def test_an_arm_without_an_accepted_reply_ends_and_counts_its_groups(recipe: Path, tmp_path: Path) -> None:
    """The model of this recipe solves nothing."""
    out = tmp_path / "run"
    finished(recipe, out, *SMALL, "algorithm={preset: rejection_sft}", "trainer.steps=2")
    for record in trained(out):
        assert record["dropped/rejected"] == record["group/sampled"] == 4
        assert record["group/trained"] == record["loss/updates"] == record["loss/replies"] == 0


@pytest.mark.parametrize("name", ["quickstart-ssd", "quickstart-rejection-sft"])
def test_the_arms_of_the_quickstart_differ_from_it_in_algorithm_and_sampling_only(name: str) -> None:
    arm, base = load_recipe(name).model_dump(), load_recipe("quickstart").model_dump()
    differing = {key for key in base if arm[key] != base[key]}
    assert differing <= {"name", "algorithm", "sampling"}
    drawn = ("temperature", "top_p", "top_k")
    assert all(arm["sampling"][key] == value for key, value in base["sampling"].items() if key not in drawn)
