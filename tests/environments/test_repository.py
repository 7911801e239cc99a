"""The environment `repository`: what the model reads and may do in a workspace, and what it earns."""

from __future__ import annotations

import asyncio
import functools
import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.environments.repositories import (
    CONVERT,
    REPAIR,
    SUBMIT,
    NoJudge,
    in_turn_of,
    play,
    results_of,
    section,
    write_set,
)
from tests.environments.scripted import TOKENIZER, Says, played
from tests.environments.tools_of_tests import call_text
from tests.judge.repository_tasks import BASE
from tests.tiers import ALL_TIERS, skip_unless_offered
from whetstone.core.errors import UserError
from whetstone.core.problem import NoTests, Problem
from whetstone.core.sample import Sample
from whetstone.core.verdict import Judgement, Verdict
from whetstone.data.dataset import load_problems, open_problems
from whetstone.environments import repository_work
from whetstone.environments.replies import EngineReplies
from whetstone.environments.repository import Repository, smallest_edit
from whetstone.environments.runner import open_environment
from whetstone.evaluate.evaluate import evaluate
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.engine import EngineWriter
from whetstone.evaluate.results import SampleResult
from whetstone.judge.repository.base import read_base
from whetstone.judge.repository.grader import RepositoryGrader
from whetstone.judge.repository.task import read_tasks
from whetstone.sandbox import SandboxFault, Tier, Workspace, Workspaces

pytestmark = pytest.mark.process


@pytest.fixture
def packages(folders: tuple[Path, Path]) -> Path:
    return folders[1]


def bash(command: str) -> str:
    return call_text("bash", {"command": command})


def edit(path: str, new: str, search: str = "") -> str:
    return call_text("edit", {"path": path, "search": search, "replace": new})


@pytest.mark.parametrize("tier", ALL_TIERS)
def test_a_model_repairs_a_code_base(
    tier: Tier, problem: Problem, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_offered(tier)
    for made in (Workspaces, RepositoryGrader):
        monkeypatch.setattr(repository_work, made.__name__, functools.partial(made, tier=tier))
    sample = play(
        section(packages),
        problem,
        bash("ls; (echo kept > /tmp/x) 2>/dev/null; cd src; echo new > ../note; exit 3"),
        call_text("view", {"path": CONVERT, "start": 6, "end": 7}),
        f"I see it. {REPAIR}",
        bash("cat note; ls /tmp/x 2>/dev/null; grep -c '>= value' src/roman/convert.py"),
        f"{bash('python3 -m unittest discover tests; echo done')} {SUBMIT} {bash('rm -r src')}",
    )
    names = "README.md\npyproject.toml\nsrc\ntests"
    seen = "6\t    for value, symbol in SYMBOLS:\n7\t        while number > value:"
    edited = f"Edited {CONVERT}, line 7."
    assert results_of(sample) == [f"{names}\n[exit code 3]", seen, edited, "new\n1"]
    assert (sample.reward, sample.accepted, sample.finish_reason) == (1.0, True, "stop")
    assert sample.judgement is not None
    assert sample.judgement.isolation == tier.label
    assert sample.metrics == {
        **{"turns": 5.0, "tool_errors": 0.0, "submitted": 1.0, "files_read": 1.0},
        **{"commands": 3.0, "test_runs": 1.0, "edits": 1.0, "patch_lines": 2.0},
    }


def test_the_model_is_trained_on_its_replies_and_not_on_the_results(problem: Problem, packages: Path) -> None:
    replies = [call_text("view", {"path": "README.md"}), REPAIR, SUBMIT]
    sample = play(section(packages), problem, *replies)
    wrote = [token for token, own in zip(sample.response_ids, sample.written(), strict=True) if own]
    assert TOKENIZER.decode(wrote) == TOKENIZER.eos_token.join([*replies, ""])


FUNCTION = """<tool_call>
<function=edit>
<parameter=path>
{path}
</parameter>
<parameter=search>
{search}
</parameter>
<parameter=replace>
{new}
</parameter>
</function>
</tool_call>"""
FORMS = {
    "json": REPAIR,
    "tags": FUNCTION.format(path=CONVERT, search="number > value", new="number >= value"),
    "bare": REPAIR.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"),
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_calls_of_every_form_are_run_with_and_without_a_chat_template(
    form: str, chat: bool, problem: Problem, packages: Path
) -> None:
    engine = in_turn_of([FORMS[form], "That was all."])
    sample = play(section(packages, chat=chat), problem, engine=engine)
    assert sample.reward == 1.0
    assert all(f'"{name}"' in engine.asked[0] for name in ("bash", "view", "edit", "submit"))
    assert "Only changes of `src/roman` count." in engine.asked[0]


def test_a_model_that_knows_the_tools_reads_no_description(problem: Problem, packages: Path) -> None:
    engine = in_turn_of([SUBMIT])
    play(section(packages, chat=False, describe_tools=False), problem, engine=engine)
    assert "submit" not in engine.asked[0]


CALLS = {
    bash(""): "(no output)",
    bash("kill -9 $$"): "[ended by signal 9]",
    bash("echo out; echo error >&2; exit 4"): "out\nerror\n[exit code 4]",
    bash("seq 100000"): "characters omitted",
    bash("yes"): "[stopped: it printed or wrote too much]",
    bash("sleep 1000 & echo started"): "started",
    bash("cat ../secret /etc/shadow 2>/dev/null; ls /work /root"): "[exit code 2]",
    bash("x" * 200_000): "error: a command has at most 100000 bytes",
    call_text("bash", {}): "error: the argument `command` is missing",
    call_text("bash", {"command": "a\0b"}): "error: a command has at most",
    call_text("view", {"path": "."}): "pyproject.toml\nsrc/\ntests/",
    call_text("view", {"path": "./src/roman"}): "__init__.py\nconvert.py\ntables.py",
    call_text("view", {"path": "none"}): "error: 'none': there is no such file",
    call_text("view", {"path": "../x"}): "error: ",
    call_text("view", {"path": "/etc/passwd"}): "error: ",
    call_text("view", {"path": "a\0"}): "error: ",
    call_text("view", {"path": "x" * 300}): "error: ",
    call_text("view", {"path": CONVERT, "start": 0}): "error: lines begin at 1",
    call_text("view", {"path": CONVERT, "start": 15}): "error: the file has 14 lines",
    call_text("view", {"path": CONVERT, "start": 14, "end": 99}): "14\t    return sum(",
    call_text("view", {"path": CONVERT, "start": "x"}): "error: the argument `start` must have the JSON type",
    edit(CONVERT, "", "return"): "error: `search` occurs more than",
    edit(CONVERT, "", "absent"): "error: `search` occurs not in",
    edit(CONVERT, "x"): f"error: `{CONVERT}` exists",
    edit("src", "x"): "error: `src` exists",
    edit("../x", "x"): "error: ",
    edit("none", "x", "a"): "error: 'none': there is no such file",
    edit("new/file", "x"): "Created new/file.",
    call_text("submit", {"x": 1}): "error: there is no argument `x`",
    call_text("python", {}): "the tools are: `bash`, `view`, `edit`, `submit`",
}


def test_what_each_call_says(problem: Problem, packages: Path) -> None:
    made = [bash("ln -s /etc link; printf '\\377' > bytes; printf 'aaa' > aaa; truncate -s 2M large")]
    more = {
        call_text("view", {"path": "link/passwd"}): "error: ",
        call_text("view", {"path": "bytes"}): "error: `bytes` is no text in UTF-8",
        call_text("view", {"path": "large"}): "error: `large` has more than 1 MiB",
        edit("aaa", "b", "aa"): "error: `search` occurs more than once",
        edit("link", "b"): "error: `link` exists",
    }
    wanted = {**CALLS, **more}
    sample = play(section(packages, calls=60), problem, *made, *wanted, "The end.", max_prompt_tokens=10**6)
    said = dict(zip(wanted, results_of(sample)[1:], strict=True))
    assert not [(call[:200], said[call]) for call in wanted if wanted[call] not in said[call]]
    assert all(len(text) < 10_100 for text in said.values())


def test_a_long_file_is_shown_in_whole_lines(problem: Problem, packages: Path) -> None:
    made = bash("seq 1000 > numbers; printf 'x%.0s' $(seq 20000) > line")
    asked = [call_text("view", {"path": "numbers", "start": 500}), call_text("view", {"path": "line"})]
    shown = results_of(play(section(packages, output_chars=500), problem, made, *asked, SUBMIT))[1:]
    assert shown[0].startswith("500\t500\n501\t501\n")
    assert shown[0].endswith("of 1000; give `start` to see more]")
    assert "characters omitted" in shown[1]
    assert all(len(text) < 600 for text in shown)


BUSY = bash("while :; do :; done")
TOO_MUCH = "[stopped: it printed or wrote too much]"
BOUNDS: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "calls": ({"calls": 2}, [bash("echo a"), bash("echo b"), bash("echo c")], "This was call 2 of 2."),
    "seconds of a command": (
        {"cpu_s": 0.5},
        [BUSY, ""],
        "it used all of its CPU seconds",
    ),
    "seconds of an episode": (
        {"cpu_s": 0.5, "episode_cpu_s": 0.5},
        [BUSY, bash("echo a"), ""],
        "error: all commands together have used their seconds; no more are run",
    ),
    "seconds by the clock": (
        {"episode_wall_s": 0.3},
        [bash("sleep 60"), bash("echo a"), ""],
        "error: all commands together have used their seconds; no more are run",
    ),
    "memory": (
        {"memory_mb": 64},
        [bash("python3 -c 'b = b\"x\" * (1 << 30)'"), ""],
        "[stopped: it used too much memory]",
    ),
    "disk": (
        {"disk_mb": 4},
        [bash("head -c 50M /dev/zero > big"), ""],
        "[stopped: it printed or wrote too much]",
    ),
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("bound", BOUNDS)
def test_an_episode_is_bounded(bound: str, problem: Problem, packages: Path) -> None:
    options, replies, told = BOUNDS[bound]
    sample = play(section(packages, **options), problem, *replies)
    assert told in results_of(sample)[-1]
    assert sample.reward == 0.0


CHANGES: dict[str, tuple[list[str], Verdict]] = {
    "nothing": ([], Verdict.NO_CODE),
    "what the task does not allow": (
        [
            edit("tests/conftest.py", "x", ""),
            bash("rm README.md"),
        ],
        Verdict.NO_CODE,
    ),
    "a repair that is wrong": ([bash("sed -i s/XL/LX/ src/roman/tables.py")], Verdict.WRONG_ANSWER),
    "a repair beside an attack on the tests": (
        [REPAIR, bash("mkdir -p tests; echo raise > tests/test_roman.py; echo boom > sitecustomize.py")],
        Verdict.ACCEPTED,
    ),
    "a link in place of the file": ([bash(f"cp README.md x; ln -sf ../../x {CONVERT}")], Verdict.NO_CODE),
    "a repaired file in place of itself": (
        [bash(f"sed 's/number > value/number >= value/' {CONVERT} > x; mv x {CONVERT}")],
        Verdict.ACCEPTED,
    ),
    "a change that is too large": (
        [bash("head -c 30M /dev/zero > src/roman/zeros")],
        Verdict.OUTPUT_LIMIT,
    ),
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("change", CHANGES)
def test_the_changes_in_the_workspace_are_judged(change: str, problem: Problem, packages: Path) -> None:
    replies, verdict = CHANGES[change]
    for ending in (SUBMIT, "I am done."):
        sample = play(section(packages), problem, *replies, ending)
        assert sample.judgement is not None
        assert sample.judgement.verdict is verdict, sample.judgement
        assert sample.reward == float(verdict is Verdict.ACCEPTED)


@pytest.mark.parametrize("place", ["a command", "the diff", "the grader"])
def test_a_failure_of_the_sandbox_gives_no_reward(
    place: str, problem: Problem, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object, **more: object) -> Judgement:
        if place == "the grader":
            return Judgement(Verdict.JUDGE_ERROR, [], None, "root", "broken")
        raise SandboxFault("broken")

    names = {
        "a command": (Workspace, "run"),
        "the diff": (Workspace, "diff"),
        "the grader": (RepositoryGrader, "grade"),
    }
    settings = section(packages)
    environment = settings.build()
    assert isinstance(environment, Repository)
    # It is opened before the failure: opening proves that a workspace works.
    environment._shared.place(environment._shared.task(problem), Tier.RESTRICTED)
    monkeypatch.setattr(*names[place], fails)
    replies = [REPAIR, bash("true") if place == "a command" else SUBMIT]

    async def run() -> Sample:
        group = await played(environment, in_turn_of(replies), problem, judge=NoJudge())
        await environment.close()
        return group.samples[0]

    sample = asyncio.run(run())
    assert (sample.reward, sample.accepted) == (None, None)
    assert sample.judgement is not None
    assert sample.judgement.verdict is Verdict.JUDGE_ERROR


def test_a_reply_that_failed_gives_no_reward(problem: Problem, packages: Path) -> None:
    sample = play(section(packages), problem, engine=Says(lambda text, index: REPAIR, context=400))
    assert sample.judgement is not None  # the context was full after some replies, which is the model's doing
    assert sample.reward == 1.0


@pytest.mark.drawn(1)
@pytest.mark.parametrize("chat", [True, False])
def test_a_demonstration_is_an_episode_as_it_would_be_played(
    chat: bool, problem: Problem, packages: Path
) -> None:
    rewards: set[float | None] = set()
    for seed in range(4):
        settings = section(packages, chat=chat, wrong_demonstrations=0.5)
        shown = settings.build().demonstration(problem, random.Random(seed))
        assert shown is not None
        sample = play(settings, problem, *(text for role, text in shown if role == "assistant"))
        assert [tuple(each) for each in sample.dialogue] == shown
        rewards.add(sample.reward)
    assert rewards == {0.0, 1.0}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\nb\nc\n", "a\nx\nc\n"),
        ("a\na\na\n", "a\nb\na\n"),
        ("a", "b"),
        ("a\nb\n", "a\n"),
        ("a\n", "a\nb\n"),
    ],
)
def test_the_smallest_edit_is_one_place_of_the_text(old: str, new: str) -> None:
    search, replacement, line = smallest_edit(old, new)
    assert old.count(search) == 1
    assert old.replace(search, replacement) == new
    assert old.splitlines()[line - 1] == search.splitlines()[0]


def test_a_set_of_tasks_has_splits_and_names_its_folder(folders: tuple[Path, Path], tmp_path: Path) -> None:
    [task] = read_tasks(folders[0])
    write_set(tmp_path, [task, replace(task, id="other", meta={"split": "validation"})])
    assert [each.id for each in load_problems(tmp_path)] == ["roman", "other"]
    assert [each.id for each in open_problems(f"{tmp_path}:train")] == ["roman"]
    [other] = open_problems(f"{tmp_path}:validation")
    assert (other.statement, other.tests) == (task.statement, NoTests())
    assert other.meta == {"repository": str(tmp_path)}
    with pytest.raises(UserError, match="no split `test`"):
        load_problems(f"{tmp_path}:test")
    with pytest.raises(UserError, match=r"it has no tasks\.jsonl"):
        load_problems(tmp_path / "bases")


def test_problems_and_packages_that_do_not_fit_are_refused(problem: Problem, packages: Path) -> None:
    environment = section(packages).build()
    environment.check(problem)
    with pytest.raises(UserError, match="is no repository task"):
        environment.check(Problem("p", "s", NoTests()))
    with pytest.raises(UserError, match="needs the environment `repository`, not `default`"):
        play(section(Path("default")), problem, bash("true"))


def test_an_evaluation_plays_the_same_episodes(problem: Problem, packages: Path) -> None:
    found: list[SampleResult] = []

    async def run() -> None:
        plan = SamplingPlan(n=1, max_tokens=64)
        engine: Any = in_turn_of([REPAIR, SUBMIT])
        async with open_environment(section(packages)) as environment:
            writer = EngineWriter(EngineReplies(engine, TOKENIZER, plan, max_prompt_tokens=9999))
            await evaluate([problem], writer, environment, NoJudge(), plan, record=found.append)

    asyncio.run(run())
    assert [(one.accepted, one.reward, one.metrics["edits"]) for one in found] == [(True, 1.0, 1.0)]


def test_the_base_is_unchanged_by_all_of_this(folders: tuple[Path, Path]) -> None:
    [archive] = (folders[0] / "bases").iterdir()
    assert read_base(archive) == BASE
