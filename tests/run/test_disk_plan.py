"""The disk is compared with the checkpoints of a run before anything is loaded, trained or written."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.run.tiny_recipe import finished
from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.run import disk_plan
from whetstone.run.disk_plan import check_disk
from whetstone.run.recipe import load_recipe

pytestmark = pytest.mark.process

KEEP_ONE = "set trainer.keep_checkpoints=1, "
LORA = "trainer.lora={rank: 4}"


@pytest.fixture(scope="module")
def done(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 5 steps, with the checkpoints 4 and 5."""
    out = tmp_path_factory.mktemp("whole") / "run"
    finished(recipe, out, "evaluation.n=1", "evaluation.k=[1]")
    return out


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A disk with ``free`` bytes left."""
    disk = SimpleNamespace(free=0)
    monkeypatch.setattr(disk_plan.shutil, "disk_usage", lambda path: disk)
    return disk


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def needed(recipe: Path, *overrides: str) -> int:
    """What the plan asks for, found by asking."""
    low, high = 0, 1 << 30
    while low < high:
        middle = (low + high) // 2
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                disk_plan.shutil, "disk_usage", lambda path, free=middle: SimpleNamespace(free=free)
            )
            try:
                check_disk(load_recipe(recipe, overrides))
                high = middle
            except UserError:
                low = middle + 1
    return low


@pytest.mark.extended
def test_the_plan_is_the_size_of_the_checkpoints(recipe: Path, done: Path, tmp_path: Path) -> None:
    one = size(done / "checkpoints" / "step-5")
    # Two that are kept, and the one that is written.
    assert needed(recipe, f"out={tmp_path}") == pytest.approx(3 * one, rel=0.15)
    assert needed(recipe, f"out={tmp_path}", "trainer.keep_checkpoints=1") == pytest.approx(2 * one, rel=0.15)
    # There are only four: 0, 2, 4 and 5.
    assert needed(recipe, f"out={tmp_path}", "trainer.keep_checkpoints=9") == pytest.approx(4 * one, rel=0.15)
    # The two of the folder are there already.
    assert needed(recipe, f"out={done}", "trainer.steps=9") == pytest.approx(one, rel=0.15)
    assert needed(recipe, f"out={done}") == 0


@pytest.mark.extended
def test_adapters_need_less_and_the_starting_weights_count(recipe: Path, tmp_path: Path) -> None:
    whole, adapters = (needed(recipe, f"out={tmp_path}", *more) for more in ((), (LORA,)))
    assert adapters < whole / 2
    reference = needed(recipe, f"out={tmp_path}", "algorithm.kl_coef=0.01")
    assert whole < reference < whole * 4 / 3


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("overrides", "share", "lowered"),
    [
        ((), 0.0, ""),
        ((), 0.5, ""),
        ((), 0.9, KEEP_ONE),
        (("trainer.keep_checkpoints=1",), 0.9, ""),
        (("trainer.keep_best=heldout/pass@1", "evaluation.every=2"), 0.9, KEEP_ONE),
        (("trainer={passes: 3, prompts_per_step: 4}",), 0.9, KEEP_ONE),
        ((LORA,), 0.9, KEEP_ONE),
    ],
)
@pytest.mark.parametrize("words", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_a_disk_without_room_is_refused_with_the_remedies(
    overrides: tuple[str, ...],
    share: float,
    lowered: str,
    words: tuple[str, ...],
    recipe: Path,
    tmp_path: Path,
    free: SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "runs" / "run"
    free.free = int(share * needed(recipe, f"out={out}", *overrides))
    if not words:
        # The warm-up would take minutes.
        overrides += ("warmup.steps=1000000",)
    assert main(["train", str(recipe), f"out={out}", *overrides, *words]) == 2
    said = capsys.readouterr().err
    # The folder itself is there only while a run holds its lock.
    folder = tmp_path if words else out
    assert f"`out`: {folder} has {free.free / 1e9:.3g} GB free, and the checkpoints of the run" in said
    assert f"GB: free some space, {lowered}or give a folder on another disk with out=FOLDER" in said
    assert not (out / "recipe.yaml").exists()


@pytest.mark.extended
def test_two_models_need_room_for_both(tmp_path: Path) -> None:
    two = Path(__file__).parents[2] / "recipes" / "tiny-verifier.yaml"
    both = needed(two, f"out={tmp_path}")
    coder = needed(two, f"out={tmp_path}", "verifier=null", "environment={}")
    assert 1.5 * coder < both < 2.5 * coder


def test_a_resumed_run_is_refused_before_it_loads_its_model(
    recipe: Path, done: Path, tmp_path: Path, free: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    shutil.copytree(done, out)
    words = ["train", str(recipe), f"out={out}", "evaluation.n=1", "evaluation.k=[1]"]
    # Nothing is left to write.
    assert main(words) == 0
    assert main([*words, "trainer.steps=6"]) == 2
    assert "0 GB free" in capsys.readouterr().err


def test_another_machine_is_not_judged_by_this_disk(
    recipe: Path, tmp_path: Path, free: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = ("machine={devices: 2, memory_gb: 24}", "model.device=cpu")
    assert main(["train", str(recipe), "--dry-run", f"out={tmp_path / 'run'}", *elsewhere]) == 0
    assert "GB for checkpoints, and 0 GB are free in" in capsys.readouterr().err
