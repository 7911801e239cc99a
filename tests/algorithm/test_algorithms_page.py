"""The page on algorithms says what is so: its example runs, and it names every preset and field."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from whetstone.algorithm.algorithm import LossInputs
from whetstone.algorithm.named import algorithm_named, preset_names
from whetstone.core.errors import UserError
from whetstone.run.recipe import load_recipe

ROOT = Path(__file__).parents[2]
TINY = ROOT / "recipes" / "tiny.yaml"
PAGE = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The module of the page's example, and the folder of a package that brings it by an entry point."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "my_losses.py").write_text(source, encoding="utf-8")
    (name,) = re.findall(
        r"```toml\n\[project.entry-points.\"whetstone.algorithms\"\]\n(.*?)```", PAGE, re.DOTALL
    )
    package = tmp_path / "my_losses-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: my-losses\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[whetstone.algorithms]\n" + name.replace('"', ""))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("my_losses", None)


def test_the_example_is_a_preset_by_its_dotted_path(example: Path) -> None:
    (override,) = re.findall(r"'(algorithm=.*)'", PAGE)
    algorithm = load_recipe(TINY, [override]).algorithm
    assert algorithm.model_dump()["drift"] == 0.1
    with pytest.raises(UserError, match=r"algorithm\.drift`: .*greater than 0"):
        load_recipe(TINY, [override.replace("0.1", "-4")])
    with pytest.raises(UserError, match="count twice"):
        load_recipe(TINY, [override.replace("drift", "correction: tis, drift")])

    log_probs = torch.tensor([-1.0, -0.1, -0.1], requires_grad=True)
    engine = torch.tensor([-1.5, -2.0, -2.0])  # drifts of 0.14, 0.77, 0.77
    advantages = torch.tensor([1.0, 1.0, -2.0])
    columns = engine, engine, None, engine, advantages, advantages, torch.tensor([0, 0, 1])
    inputs = LossInputs(log_probs, *columns, lengths=torch.tensor([2, 1]), whole=True)
    found = algorithm_named("my_losses.Masked").loss(inputs)
    found.tokens.sum().backward()
    expected = [
        -torch.tensor(0.5).exp().item() + 2e-3 * 0.5,
        0,
        2 * torch.tensor(1.9).exp().item() + 2e-3 * 1.9,
    ]
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == pytest.approx(expected, rel=1e-5)
    assert found.metrics["clip_fraction"].tolist() == [False, True, False]


def test_a_package_brings_an_algorithm_under_a_name_of_its_own(example: Path) -> None:
    algorithm = load_recipe(TINY, ["algorithm={preset: masked, drift: 0.3}"]).algorithm
    assert (algorithm.preset, algorithm.model_dump()["drift"]) == ("masked", 0.3)
    with pytest.raises(UserError, match="did you mean `masked`"):
        load_recipe(TINY, ["algorithm={preset: msked}"])


@pytest.mark.parametrize("preset", preset_names())
def test_the_page_names_every_preset_and_field(preset: str) -> None:
    assert f"| `{preset}` |" in PAGE
    for field in type(algorithm_named(preset)).model_fields:
        assert f"`{field}`" in PAGE or field == "preset"
