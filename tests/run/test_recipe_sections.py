"""What a recipe may say of stages, evaluations, rewards and lengths; and what is wrong is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, StdinCase, StdinTests
from whetstone.core.settings import read_settings
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.environments.settings import OutcomeRewards
from whetstone.environments.single_turn import reward_of
from whetstone.run.preflight import check_machine
from whetstone.run.prepared_run import with_steps
from whetstone.run.problem_sets import problem_sets
from whetstone.run.recipe import Recipe, dump_recipe, load_recipe, stage_recipes

TINY = Path(__file__).parents[2] / "recipes" / "tiny.yaml"
PAGE = TINY.parents[1] / "docs" / "training.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)\n```\n", PAGE.read_text(encoding="utf-8"), re.DOTALL)

SHARED = "engine.kind=vllm  engine.placement=shared"
TWO_MODELS = "environment.kind=codegen_verifier  verifier={}  flow={}"
ARM = "algorithm={preset: ssd}"


def tiny(*overrides: str) -> Recipe:
    recipe = load_recipe(TINY, overrides)
    check_machine(recipe, "smoke")
    return recipe


@pytest.mark.parametrize(
    ("evaluation", "sizes"),
    [
        ("{}", {"heldout": 80}),
        ("{train_problems: 0}", {"heldout": 80}),
        ("{train_problems: 7}", {"train": 7, "heldout": 80}),
        ("{train_problems: all}", {"train": 598, "heldout": 80}),
    ],
)
def test_training_problems_are_evaluated_only_on_request(evaluation: str, sizes: dict[str, int]) -> None:
    recipe = tiny(f"evaluation={evaluation}")
    sets = problem_sets(recipe, None, print)
    assert {name: len(problems) for name, problems in sets.evaluation_problems(recipe).items()} == sizes
    # The resolved recipe, which a resumed run is compared with, says the same.
    assert read_settings(Recipe, yaml.safe_load(dump_recipe(recipe))) == recipe


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("evaluation.sets=[{benchmark: humanevl}]", "`evaluation.sets.0`: .*did you mean `humaneval`"),
        ("evaluation.sets=[{benchmark: problems}]", "`evaluation.sets.0`: .* needs --data"),
        (
            "evaluation.sets=[{benchmark: mbpp, temprature: 1}]",
            "`evaluation.sets.0.temprature`; did you mean",
        ),
        ("evaluation.sets=[{benchmark: mbpp, n: 2, k: [4]}]", "pass@4 needs n >= 4"),
        ("evaluation.sets=[{benchmark: mbpp}, {benchmark: mbpp}]", "two of `sets` are called `mbpp`"),
        ("evaluation.sets=[{benchmark: mbpp, name: heldout}]", "another `name`"),
        ("evaluation.train_problems=null", "`evaluation.train_problems`: None is .*; give 0 for none"),
        ("evaluation.train_problems=-1", "`evaluation.train_problems`: -1 is .*; give 0 for none"),
        ("evaluation.train_problems=al", "`evaluation.train_problems`: 'al' is .*; give 0 for none"),
        ("environment.reward=al", "`environment.reward`: unknown reward `al`; did you mean `all`"),
        ("environment.reward={acepted: 1, bad_format: -1}", "acepted`; did you mean"),
        (
            "environment.prompt=Solve this.",
            "`environment.prompt`: the prompt does not contain the problem; add {problem}",
        ),
        (
            "environment.prompt='{instruction}'",
            "`environment.prompt`: the prompt does not contain the problem; add {problem}",
        ),
        ("environment.prompt='{statment}'", "`environment.prompt`: .*'statment'; did you mean `statement`"),
        ("environment.prompt='{statement.x}'", "`environment.prompt`: cannot fill in 'statement.x'"),
        ("environment.prompt='{statement!r:>9}'", "`environment.prompt`: cannot fill in 'statement'"),
        ("environment.prompt='{statement'", "`environment.prompt`: expected '}'"),
        ("environment.prefix='{statement}'", "`environment.prefix`: {statement} is only filled in within"),
        ("environment.system='{problem}'", "`environment.system`: {problem} is only filled in within"),
        (
            "evaluation.sets=[{benchmark: mbpp, prompt: Solve.}]",
            "`evaluation.sets.0.prompt`: the prompt does not",
        ),
        (
            "stages=[{name: a, environment: {prompt: Go.}}]",
            "`stages.0.environment.prompt`: the prompt does not",
        ),
        ("trainer.lr=50", "`trainer.lr`: 50 would destroy the model.*; use at most 1"),
        ("warmup.lr=50", "`warmup.lr`: 50 would destroy the model.*; use at most 1"),
        ("stages=[{name: a, trainer: {lr: 50}}]", "`stages.0.trainer.lr`: 50 would destroy"),
        ("trainer.learning_rate=1e-6", "`trainer.learning_rate`; did you mean `trainer.lr`"),
        ("sampling.max_new_tokens=9", "`sampling.max_new_tokens`; did you mean `sampling.max_tokens`"),
        ("output_dir=runs/x", "`output_dir`; did you mean `out`"),
        ("sampling.temperature=0", "`sampling.temperature` is 0: all replies to a prompt would be equal"),
        ("model.scratch.vocab_size=9", "`model.scratch`: `vocab_size` is 9; .* needs at least 258"),
        ("engine.options.cache=9", "`engine.options.cache`; did you mean `engine.options.cache_mb`"),
        ("engine.options.max_batch=0", "`engine.options.max_batch`: .*greater than or equal to 1"),
        (
            "evaluation.process=separate  evaluation.every=3  trainer.checkpoint_every=2",
            "separate.*multiple of `trainer.checkpoint_every`",
        ),
        ("trainer.passes=2", "`steps` and `passes`"),
        ("data.build=nothing.yaml", "makes the folder of `train`"),
        ("data={build: nothing.yaml, train: sets/none}", "`data.build`: nothing.yaml"),
        ("stages=[{name: a}, {name: b, trainer: {lrr: 1}}]", "`stages.1.trainer.lrr`; did you mean"),
        ("stages=[{name: a, sampling: {max_tokens: 0}}]", "`stages.0.sampling.max_tokens`"),
        ("stages=[{name: a}, {name: a}]", "two of `stages` are called `a`"),
        ("stages=[{nam: a}]", "stages.0.nam`; did you mean"),
        ("engine.placement=shared", "`engine.placement: shared` is for sglang and vllm; `torch` runs"),
        (f"{SHARED}  flow={{}}", "with `flow` both run concurrently: set it to `apart`"),
        (f"{TWO_MODELS}  verifier.engine={{placement: shared}}", "two models cannot have `engine.placement"),
        ("engine.placement=beside", "engine.placement"),
        (f"{ARM}  flow={{}}", "`algorithm.preset: ssd` samples and trains one model in turn: remove `flow`"),
        (f"{ARM}  {SHARED}", "set it to `apart`"),
    ],
)
def test_a_wrong_field_is_named_with_its_path(override: str, message: str) -> None:
    """Two spaces part two overrides."""
    with pytest.raises(UserError, match=message):
        tiny(*override.split("  "))


def test_a_set_is_sampled_as_it_says_and_else_as_the_run_is_evaluated() -> None:
    recipe = tiny(
        "evaluation.n=4",
        "evaluation.k=[1, 2]",
        "evaluation.max_tokens=20",
        "evaluation.sets=[{benchmark: humaneval, n: 2, max_tokens: 99, prompt: lcb}, {benchmark: mbpp}]",
    )
    own = recipe.evaluation.plan(recipe.sampling, 5)
    lcb, mbpp = recipe.evaluation.planned(recipe.sampling, recipe.environment, 5)
    assert (own.n, own.k, own.max_tokens, own.seed) == (4, (1, 2), 20, 5)
    assert (lcb.plan.n, lcb.plan.k, lcb.plan.max_tokens, lcb.plan.seed) == (2, (1, 2), 99, 5)
    assert (mbpp.plan.n, mbpp.plan.k, mbpp.plan.max_tokens) == (4, (1, 2), 20)
    assert mbpp.settings == recipe.environment
    # An official prompt is asked in its own words, not in those of training.
    assert (lcb.settings.prefix, lcb.settings.extraction) == ("", "program")


def test_a_stage_changes_only_its_keys_and_a_preset_sets_its_own() -> None:
    recipe = tiny(
        "out=somewhere",
        "seed=4",
        "stages=[{name: short, sampling: {max_tokens: 8}}, "
        "{name: long, algorithm: {preset: grpo, kl_coef: 0}, trainer: {lr: 2.0e-4}}]",
    )
    assert load_recipe_text(dump_recipe(recipe)) == recipe
    short, long = stage_recipes(recipe)
    assert (short.sampling.max_tokens, short.algorithm, short.warmup) == (8, recipe.algorithm, recipe.warmup)
    assert (long.sampling, long.trainer.steps, long.trainer.lr) == (
        recipe.sampling,
        recipe.trainer.steps,
        2e-4,
    )
    assert (long.algorithm.preset, long.algorithm.aggregation) == ("grpo", "sequence_mean")
    assert long.warmup is None
    assert [str(stage.run_dir()) for stage in (short, long)] == ["somewhere/1-short", "somewhere/2-long"]
    assert [stage.seed for stage in (short, long)] == [4, 5]


def load_recipe_text(text: str) -> Recipe:
    return Recipe.model_validate(yaml.safe_load(text))


def test_passes_become_whole_steps() -> None:
    content = {"name": "x", "model": {"path": "m"}, "trainer": {"passes": 3, "prompts_per_step": 4}}
    recipe = Recipe.model_validate(content)
    assert load_recipe_text(dump_recipe(recipe)) == recipe
    known = with_steps(recipe, 10)
    assert (known.trainer.steps, known.trainer.passes) == (7, 0)
    assert load_recipe_text(dump_recipe(known)) == known
    with pytest.raises(UserError, match="less than one step"):
        with_steps(recipe, 1)


def test_data_that_was_not_built_is_refused_with_the_command_that_builds_it(tmp_path: Path) -> None:
    micro = TINY.parent / "data" / "micro.yaml"
    recipe = tiny(f"data.build={micro}", f"data.train={tmp_path}/micro:train")
    with pytest.raises(UserError, match=f"whetstone data build {micro} --out {tmp_path}/micro creates it"):
        problem_sets(recipe, None, print)


def test_a_reward_by_outcome_tells_a_wrong_program_from_none_and_pays_no_failed_judge() -> None:
    rewards = OutcomeRewards(accepted=1.1, failed=0.1, bad_format=-1.1)
    problem = Problem("p", "s", StdinTests([StdinCase("", "")]))
    paid = {Verdict.ACCEPTED: 1.1, Verdict.TIME_LIMIT: 0.1, Verdict.COMPILE_ERROR: 0.1, Verdict.NO_CODE: -1.1}
    for verdict, reward in paid.items():
        accepted = verdict is Verdict.ACCEPTED
        judgement = Judgement(verdict, [CaseJudgement(verdict)], float(accepted), "root")
        assert reward_of(problem, "", judgement, rewards) == reward
    assert reward_of(problem, "", Judgement(Verdict.JUDGE_ERROR, [], None, "root"), rewards) is None
    assert reward_of(problem, "", None, rewards) is None


@pytest.mark.parametrize("example", EXAMPLES, ids=map(str, range(len(EXAMPLES))))
def test_an_example_of_the_page_is_a_recipe(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TINY.parents[1])
    recipe = read_settings(Recipe, {"name": "example", "model": {"path": "m"}, **yaml.safe_load(example)})
    # Of its sets only the first: the second is of a file that is not here.
    sets = recipe.evaluation.model_copy(update={"sets": recipe.evaluation.sets[:1]})
    check_machine(recipe.model_copy(update={"evaluation": sets}), "smoke")
