"""The examples of the page on custom parts work: reward and environment, by either name."""

import asyncio
import importlib
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, StdinCase, StdinTests
from whetstone.core.sample import Sample
from whetstone.environments.conversation import Reply
from whetstone.environments.episode import Episode, KnownReply
from whetstone.environments.settings import EnvironmentSection
from whetstone.judge import AsyncJudge
from whetstone.run.recipe import dump_recipe, load_recipe

ROOT = Path(__file__).parents[2]
TINY = ROOT / "recipes" / "tiny.yaml"
PAGE = (ROOT / "docs" / "own_parts.md").read_text(encoding="utf-8")
PROBLEM = Problem("p", "Print 3.", StdinTests([StdinCase("", "3\n"), StdinCase("1", "4\n")]))
RIGHT = "I read all the input, then print.\n```python\nimport sys\nprint(4 if sys.stdin.read() else 3)\n```"
HALF = "I shall print three, which is asked.\n```python\nprint(3)\n```"


@pytest.fixture(autouse=True)
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (source,) = re.findall(r"```python\n(.*?)\n```\n\n```\nPYTHONPATH", PAGE, re.DOTALL)
    source += "\n\ndef broken(problem, reply, judgement):\n    return float('nan')\n"
    source += "\n\ndef share(problem, reply, judgement):\n    return judgement.score\n\n\nnumber = 3\n"
    (tmp_path / "my_parts.py").write_text(source, encoding="utf-8")
    (points,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    package = tmp_path / "my_parts-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: my-parts\nVersion: 1.0\n")
    declared = re.sub(r'\[project.entry-points."(.*?)"\]', r"[\1]", points).replace('"', "")
    (package / "entry_points.txt").write_text(declared)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    sys.modules.pop("my_parts", None)  # another test may have imported its own
    yield
    sys.modules.pop("my_parts", None)


async def played(section: EnvironmentSection, judge: Any, reply: Reply) -> Sample:
    """The sample of an episode with this reply."""
    environment = section.build()
    prompt = environment.prompt(PROBLEM)
    assert prompt is not None
    episode = Episode(PROBLEM, {"policy": judge}, judge, first=KnownReply(prompt, reply))
    [sample] = (await environment.rollout(PROBLEM, episode)).samples["policy"]
    return sample


def samples(*overrides: str, replies: list[str]) -> list[Sample]:
    """What a run of the tiny recipe with these overrides makes of the replies."""
    plain = ["environment.prefix=''", "environment.extraction=program", "environment.chat=true"]
    section = load_recipe(TINY, [*plain, *overrides]).environment

    async def judged() -> list[Sample]:
        async with AsyncJudge(1, stop_at_first_failure=not section.needs_all_cases) as judge:
            return [await played(section, judge, Reply(i, text, "stop")) for i, text in enumerate(replies)]

    return asyncio.run(judged())


@pytest.mark.process
@pytest.mark.parametrize("names", [("my_parts.Planned", "my_parts.concise"), ("planned", "concise")])
def test_a_run_asks_judges_and_pays_by_parts_of_ones_own(names: tuple[str, str]) -> None:
    found = samples(
        f"environment.kind={names[0]}",
        "environment.options={words: 6}",
        f"environment.reward={names[1]}",
        replies=[RIGHT, RIGHT.replace("I read all the input, then print.", "Easy."), HALF],
    )
    assert [s.program is None for s in found] == [False, True, False]
    assert [s.reward for s in found] == [pytest.approx(1.1 - 0.1 * len(RIGHT) / 4000), 0.0, 0.0]


@pytest.mark.process
def test_a_reward_of_ones_own_sees_every_case_and_none_without_a_verdict() -> None:
    assert [s.reward for s in samples("environment.reward=my_parts.share", replies=[RIGHT, HALF])] == [
        1.0,
        0.5,
    ]
    section = load_recipe(TINY, ["environment.reward=my_parts.share"]).environment
    no_judge: Any = None
    failed = asyncio.run(played(section, no_judge, Reply(0, "", "failed")))
    assert failed.reward is None


@pytest.mark.process
def test_a_reward_that_is_no_number_is_named() -> None:
    with pytest.raises(ValueError, match=r"my_parts\.broken.*nan"):
        samples("environment.reward=my_parts.broken", replies=[RIGHT])


def test_a_recipe_with_parts_of_ones_own_reads_back(tmp_path: Path) -> None:
    recipe = load_recipe(TINY, ["environment.reward=concise", "environment.kind=planned"])
    (tmp_path / "recipe.yaml").write_text(dump_recipe(recipe), encoding="utf-8")
    assert load_recipe(tmp_path / "recipe.yaml") == recipe
    assert math.isclose(recipe.sampling.temperature, 1.0)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("environment.reward=my_parts.consise", "PYTHONPATH"),
        ("environment.reward=consise", "did you mean `concise`"),
        ("environment.reward=my_parts.number", "is not callable"),
        ("environment.kind=my_parts.Plannned", "PYTHONPATH"),
        ("environment.kind=single_trun", "did you mean `single_turn`"),
        ("environment.kind=my_parts.concise", "not a subclass"),
        ("environment={kind: my_parts.Planned, options: {wrods: 3}}", "wrods"),
    ],
)
def test_a_part_that_is_not_there_is_refused(override: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as refused:
        load_recipe(TINY, [override])
    assert "environment" in str(refused.value)
