"""The example without unit tests: strict rewards, a tool, demonstrations as rollouts have them, and a run."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import os
import random
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.environments import scripted
from tests.environments.scripted import TOKENIZER, Says
from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.core.problem import NoTests, Problem
from whetstone.core.sample import Group
from whetstone.data.files import read_problems, write_problems
from whetstone.environments.conversation import Reply
from whetstone.environments.demonstrations import encode_turns, turns_of
from whetstone.environments.environment import Environment
from whetstone.environments.prompt import Prompt
from whetstone.environments.settings import EnvironmentSection, environment_class
from whetstone.environments.tool import ToolError
from whetstone.evaluate.results import load_evaluation
from whetstone.run.recipe import load_recipe

EXAMPLE = Path(__file__).parents[2] / "examples" / "arithmetic"
MODULES = ("arithmetic", "arithmetic_tools")
RECIPES = [EXAMPLE / f"{name}.yaml" for name in MODULES]
PROBLEM = Problem("a", "37 * 48 + 12", NoTests(), meta={"answer": "1788"})
CALL = (
    '<tool_call>\n{"name": "calculator", "arguments": {"expression": "37 * 48 + 12"}}\n</tool_call>',
    "\n<tool_response>\n1788\n</tool_response>\n",
)
NO_JUDGE: Any = None


def install(folder: Path) -> None:
    """Write the metadata that an installer makes of the example's pyproject.toml."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    package = folder / "whetstone_arithmetic-0.1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (package / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture(autouse=True, scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("installed")
    install(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.syspath_prepend(EXAMPLE)
        importlib.invalidate_caches()
        yield importlib.import_module("arithmetic")
        for name in MODULES:
            sys.modules.pop(name, None)


def section(kind: str) -> EnvironmentSection:
    options = {"options": {"tools": ["calculator"], "calls": 2}} if kind == "arithmetic_tools" else {}
    return EnvironmentSection.model_validate(
        {"kind": kind, "chat": False, "prompt": "{statement} =\n", **options}
    )


def played(kind: str, *replies: str) -> tuple[Group, Says]:
    """The group of one episode, whose replies to the given texts are these in turn."""
    waiting = list(replies)
    engine = Says(lambda _text, _index: waiting.pop(0))
    group = asyncio.run(scripted.played(section(kind).build(), engine, PROBLEM, max_tokens=99))
    assert not waiting
    return group, engine


def test_the_installed_names_are_those_of_the_recipes(example: ModuleType) -> None:
    assert environment_class("arithmetic") is example.Arithmetic
    recipes = [load_recipe(path) for path in RECIPES]
    assert [recipe.environment.kind for recipe in recipes] == list(MODULES)
    # Both policies are trained in the same way.
    plain, tools = (
        recipe.model_dump(exclude={"name": True, "environment": {"kind", "options"}}) for recipe in recipes
    )
    assert plain == tools


@pytest.mark.process
def test_the_command_writes_disjoint_problems_with_right_answers(tmp_path: Path) -> None:
    out = tmp_path / "sets"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-m", "arithmetic", str(out)], check=True, env=env, timeout=300)
    sets = {name: list(read_problems(out / f"{name}.jsonl")) for name in ("train", "heldout")}
    assert {name: len(problems) for name, problems in sets.items()} == {"train": 10_000, "heldout": 200}
    seen: set[tuple[frozenset[str], str]] = set()
    for problem in [*sets["train"], *sets["heldout"]]:
        a, times, b, plus, c = problem.statement.split()
        assert (times, plus) == ("*", "+")
        assert problem.meta["answer"] == str(int(a) * int(b) + int(c))
        seen.add((frozenset((a, b)), c))
    assert len(seen) == 10_200


@pytest.mark.parametrize("text", ["1788", "1788\n", "First 37 * 48 = 1776.\nThen 12 more.\n1788"])
def test_a_right_last_line_is_rewarded(text: str) -> None:
    [sample] = played("arithmetic", text)[0].samples
    assert (sample.reward, sample.accepted, sample.judgement) == (1.0, True, None)


HOSTILE = {
    "wrong": "1789",
    "a list": " ".join(str(number) for number in range(1700, 1800)),
    "a list that ends with it": "1786 1787 1788",
    "a list of lines": "\n".join(str(number) for number in range(1700, 1800)),
    "a long reply": f"{'1788 ' * 2000}\n{'1788' * 2000}",
    "earlier": "1788\nThat is the answer.",
    "within a sentence": "The answer is 1788",
    "leading zero": "01788",
    "sign": "+1788",
    "separator": "1,788",
    "underscore": "1_788",
    "decimal": "1788.0",
    "other digits": "１７８８",
    "the expression": "37 * 48 + 12",
    "empty": "",
    "spaces": " \n ",
    "the answer's name": "meta['answer']",
}


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_reply_earns_nothing(kind: str, text: str) -> None:
    [sample] = played(kind, text)[0].samples
    assert (sample.reward, sample.accepted) == (0.0, False)


def test_a_cut_reply_is_wrong_and_a_failed_one_has_no_reward(example: ModuleType) -> None:
    assert example.is_right(PROBLEM, Reply(0, "1788", "length")) is False
    assert example.is_right(PROBLEM, Reply(0, "", "failed")) is None
    assert example.reward_of(None) is None


@pytest.mark.parametrize("answer", [None, 1788, "", "17.5", "-3", "１７"])
@pytest.mark.parametrize("kind", MODULES)
def test_a_problem_without_an_answer_is_refused_before_a_run(kind: str, answer: object) -> None:
    problem = Problem("b", "1 + 1", NoTests(), meta={"answer": answer})
    with pytest.raises(UserError, match=r"'b': `meta\.answer`"):
        section(kind).build().check(problem)


def test_a_call_is_answered_and_the_last_reply_rewarded() -> None:
    [right] = played("arithmetic_tools", CALL[0], "1788")[0].samples
    assert (right.reward, right.accepted, right.metrics["calls_calculator"]) == (1.0, True, 1.0)
    # The result of a call is no reply of the model.
    [silent] = played("arithmetic_tools", CALL[0], "")[0].samples
    assert (silent.reward, silent.accepted) == (0.0, False)


def calculated(expression: str) -> str:
    tool = importlib.import_module("arithmetic_tools").Calculator()
    return asyncio.run(tool.call({"expression": expression}, NO_JUDGE))


@pytest.mark.parametrize(
    "text", ["37 * 48 + 12", "(1 + 2) * 3 - 4", "7", "2 - 9", "9" * 100 + " * " + "9" * 90]
)
def test_the_calculator_computes(text: str) -> None:
    assert calculated(text) == str(eval(compile(ast.parse(text, mode="eval"), "expression", "eval")))


@pytest.mark.parametrize(
    "text",
    ["9 ** 9 ** 9", "__import__('os')", "1 / 2", "1 << 99", "True + 1", "1.5 + 1", "-(", "", "1" * 201],
)
def test_the_calculator_refuses_all_else(text: str) -> None:
    with pytest.raises(ToolError):
        calculated(text)


def test_demonstrations_have_the_tokens_of_rollouts() -> None:
    environment = section("arithmetic_tools").build()
    drawn = [environment.demonstration(PROBLEM, random.Random(seed)) for seed in range(40)]
    with_call = next(each for each in drawn if each is not None and len(each) == 3)
    assert [("assistant", "1788")] in drawn
    assert with_call == [("assistant", CALL[0]), ("tool", "1788"), ("assistant", "1788")]

    prompt = environment.prompt(PROBLEM)
    assert prompt is not None
    turns = turns_of(prompt, with_call, TOKENIZER)
    assert turns == [("37 * 48 + 12 =\n", CALL[0]), (CALL[1], "1788")]

    group, engine = played("arithmetic_tools", CALL[0], "1788")
    [sample] = group.samples
    [(start, end)] = sample.given
    first, second = encode_turns(turns, TOKENIZER)
    assert first == (group.prompt_ids, sample.response_ids[:start])
    assert second == (group.prompt_ids + sample.response_ids[:end], sample.response_ids[end:])
    # What the model read, as text.
    assert TOKENIZER.decode(second[0]) == f"37 * 48 + 12 =\n{CALL[0]}{TOKENIZER.eos_token}{CALL[1]}"
    assert engine.asked[1] == TOKENIZER.decode(second[0])
    assert second[1][-1] == TOKENIZER.eos_token_id


@pytest.mark.parametrize(
    "roles", [[], ["user", "assistant"], ["assistant", "tool"], ["assistant", "assistant"]], ids=str
)
def test_a_demonstration_without_alternating_replies_is_a_defect(roles: list[str]) -> None:
    with pytest.raises(ValueError, match="a demonstration begins and ends with a reply"):
        turns_of(Prompt("p", "", chat=False), [(role, "text") for role in roles], TOKENIZER)


def problems(low: int, high: int) -> list[Problem]:
    """Sums of one digit, which even a model of no size gets right by chance."""
    return [
        Problem(f"{a}+{b}", f"{a} + {b}", NoTests(), meta={"answer": str(a + b)})
        for a in range(low, high)
        for b in range(5)
    ]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    write_problems(folder / "train.jsonl", problems(0, 4))
    write_problems(folder / "heldout.jsonl", problems(4, 5))
    return folder


def overrides(sets: Path, out: Path) -> list[str]:
    return [
        f"out={out}",
        f"data.train={sets / 'train.jsonl'}",
        f"data.heldout={sets / 'heldout.jsonl'}",
        "model.scratch={hidden_size: 48, layers: 1, heads: 2, kv_heads: 2, intermediate_size: 96, "
        "vocab_size: 320}",
        "model.threads=1",
        "warmup={writes: demonstrations, steps: 160, batch_size: 16, lr: 4.0e-3}",
        "trainer={steps: 2, prompts_per_step: 8, samples_per_prompt: 8, checkpoint_every: 2}",
        "evaluation={every: 2, n: 4, k: [1], train_problems: 0}",
        "judge.workers=1",
    ]


@pytest.mark.extended
@pytest.mark.process
def test_a_run_trains_evaluates_and_reports(
    sets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(["train", str(RECIPES[1]), *overrides(sets, run)]) == 0
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "train"]
    assert len(steps) == 2
    # Some episodes of a group are right and others wrong, so both steps learn from a reward without tests.
    assert all(0 < record["reward/mean"] < 1 and record["loss/grad_norm"] > 0 for record in steps)
    assert all(1 < record["episode/turns"] < 3 for record in steps)

    checkpoint = run / "checkpoints" / "step-2"
    evaluated = tmp_path / "evaluated"
    words = ["eval", "--model", str(checkpoint), "--benchmark", "problems", "--out", str(evaluated)]
    words += ["--data", str(sets / "heldout.jsonl"), "--recipe", str(run / "recipe.yaml")]
    words += ["--n", "4", "--temperature", "1"]
    assert main(words) == 0
    result = load_evaluation(evaluated / "problems")
    assert len(result.problems) == 5
    assert result.shares.mean_turns > 1
    assert result.episode["calls_calculator"] > 0

    capsys.readouterr()
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "mean reward" in page
    assert "turns of an episode, mean" in page
    assert "calls_calculator" in page


@pytest.mark.process
def test_a_warm_up_needs_demonstrations(
    sets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        *overrides(sets, tmp_path / "run"),
        f"environment.kind={__name__}.Silent",
        "environment.options={}",
    ]
    assert main(["train", str(RECIPES[0]), *words]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "the environment `Silent` has no demonstration" in said
    assert not (tmp_path / "run" / "recipe.yaml").exists()


class Silent(Environment):
    """An environment without demonstrations."""

    def __init__(self, settings: EnvironmentSection) -> None:
        self.settings = settings

    def prompt(self, problem: Problem) -> Prompt:
        return Prompt(problem.statement, "", chat=False)

    async def rollout(self, problem: Problem, episode: Any) -> Any:
        raise NotImplementedError


def test_demonstrations_have_no_wrong_share() -> None:
    with pytest.raises(UserError, match=r"`wrong_share` is for micro-tasks.*warmup\.wrong_share=null"):
        load_recipe(RECIPES[0], ["warmup.wrong_share=0.5"])
