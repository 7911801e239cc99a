"""``whetstone rejudge``: compute the rewards of stored replies again, and report what changed."""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from msgspec import Meta, Struct
from rich.console import Console

from whetstone.cli.flags import add_command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.outputs import check_outputs, replacing
from whetstone.core.progress import Progress

if TYPE_CHECKING:
    from whetstone.integrations.settings import RewardSettings
    from whetstone.report.run_data import RunData
    from whetstone_exam.rejudge.comparison import RejudgedReply, RejudgeReport
    from whetstone_exam.rejudge.function_judge import FunctionJudge
    from whetstone_exam.rejudge.stored_replies import ProblemIndex, StoredReply

_STEPS = re.compile(r"(\d{0,18})(:?)(\d{0,18})", re.ASCII)
_EXAMPLES = 10


class _Rejudging(Struct, frozen=True, kw_only=True):
    """The stored replies, and what to do with them."""

    folder: Annotated[
        str,
        Flag(
            "a Whetstone run, the output folder of TRL, or verl's rollout folder", "FOLDER", positional=True
        ),
    ]
    overrides: Annotated[
        tuple[str, ...],
        Flag(
            "such as judge.url=http://judge:8080, or environment.extraction=whole",
            "KEY=VALUE",
            positional=True,
        ),
    ] = ()
    problems: Annotated[
        str | None, Flag("a problem file or set (default: the training problems of the run's recipe)", "SET")
    ] = None
    steps: Annotated[str, Flag("one step, or a range A:B with both ends (default: all)", "A:B")] = ":"
    sample: Annotated[int, Meta(ge=0), Flag("judge N groups, chosen by the seed; 0 (default): all", "N")] = 0
    seed: Annotated[int, Flag("seed of the choice", "SEED")] = 0
    grader: Annotated[
        str, Flag("another judge: module:function(problem, program), as for `whetstone exam`", "FUNCTION")
    ] = ""
    python: Annotated[str, Flag("the interpreter of --grader (default: this one)", "PYTHON")] = ""
    reward_column: Annotated[str, Flag("the column of a TRL dump with the rewards", "NAME")] = ""
    json: Annotated[bool, Flag("print the figures as one JSON object")] = False
    out: Annotated[str | None, Flag("JSON lines of the replies whose reward changed", "FILE")] = None
    replace: Annotated[bool, Flag("replace an existing output")] = False


def add_rejudge(subparsers: Any) -> None:
    """Declare ``whetstone rejudge``."""
    add_command(
        subparsers,
        "rejudge",
        rejudge,
        help="compute the rewards of stored replies again, and report what changed",
        description="Extract, judge and reward the replies of a run again with this version, and compare "
        "with the stored rewards. FOLDER is a run of Whetstone, or a dump of TRL (log_completions=True) or "
        "verl (trainer.rollout_data_dir). KEY=VALUE are keys of a recipe (environment.…, judge.…), on top of "
        "the run's own. All cases are judged, on this machine unless judge.url is given, or by the function "
        "of --grader. The exit status is 0 if no reward changed, 1 if some did.",
        epilog="examples: whetstone rejudge runs/quickstart; whetstone rejudge out/trl --problems set.jsonl "
        "--steps 10:20",
    )


def rejudge(options: _Rejudging) -> int:
    """Run the command. Returns 1 if a reward changed."""
    from whetstone.integrations.rewards import Rewards
    from whetstone_exam.rejudge.comparison import compare, judge_again, obstacle

    source = Path(options.folder)
    check_outputs(options.out, inputs=[source], replace=options.replace)
    settings, problems = _settings_and_problems(source, options)
    replies = _chosen(_read(source, options, problems), options)
    possible = [reply for reply in replies if not obstacle(reply)]
    total = len({(reply.problem_id, reply.reply) for reply in possible})
    with (
        _grader(options) as grader,
        Rewards(settings, grader) as rewards,
        Progress() as progress,
        progress.work("judging", total) as work,
    ):
        again, distinct = judge_again(possible, rewards, work.advance)
    report = compare(replies, again, distinct)
    if options.out is not None:
        _write(options.out, report.changed)
    if options.json:
        json.dump(_figures(report), sys.stdout, indent=1)
        print()
    else:
        _print(report)
    return 1 if report.changed else 0


@contextmanager
def _grader(options: _Rejudging) -> Generator[FunctionJudge | None]:
    """Yield the judge of ``--grader``, which is then closed; None without one."""
    if not options.grader:
        if options.python:
            raise UserError("--python is the interpreter of --grader; give both, or neither")
        yield None
        return
    from whetstone_exam.exam.callable_target import CallableTarget
    from whetstone_exam.rejudge.function_judge import FunctionJudge

    workers = len(os.sched_getaffinity(0))
    judge = FunctionJudge(CallableTarget(options.grader, python=options.python, workers=workers))
    try:
        yield judge
    finally:
        judge.close()


def _settings_and_problems(source: Path, options: _Rejudging) -> tuple[RewardSettings, ProblemIndex]:
    from whetstone.core.settings import mapping_of
    from whetstone.data.dataset import load_problems
    from whetstone.integrations.settings import reward_settings
    from whetstone_exam.rejudge.stored_replies import ProblemIndex

    run = _run_data(source)
    judge = {key: value for key, value in run.section("judge").items() if key not in ("url", "max_cases")}
    sections = {"environment": run.section("environment"), "judge": judge}
    for key, value in mapping_of(options.overrides).items():
        sections[key] = {**sections.get(key, {}), **value} if isinstance(value, dict) else value
    name = options.problems or str(run.section("data").get("train") or "")
    return reward_settings(sections), ProblemIndex(load_problems(name) if name else [])


def _run_data(source: Path) -> RunData:
    """Return the recipe of a run; that of another trainer's dump is empty. Raises UserError."""
    from whetstone.report.rollouts import rollout_steps
    from whetstone.report.run_data import RunData, read_recipe

    recipe: dict[str, Any] = {}
    if rollout_steps(source):
        recipe = read_recipe(source / "recipe.yaml")
        if not recipe:
            raise UserError(f"{source}: no recipe.yaml, which a run keeps next to its rollouts")
    return RunData(source, recipe, [], [])


def _read(source: Path, options: _Rejudging, problems: ProblemIndex) -> list[StoredReply]:
    from whetstone_exam.rejudge.stored_replies import read_replies, stored_steps

    steps = stored_steps(source)
    first, last = _range(options.steps)
    chosen = {step: path for step, path in steps.items() if first <= step <= last}
    if not chosen:
        raise UserError(f"--steps {options.steps}: the stored steps are {min(steps)} to {max(steps)}")
    return [
        reply
        for step, path in chosen.items()
        for reply in read_replies(source, step, path, problems, options.reward_column)
    ]


def _range(text: str) -> tuple[int, float]:
    match = _STEPS.fullmatch(text)
    if match is None or not text:
        raise UserError(f"--steps {text}: give one step, or a range such as 10:20, 10: or :20")
    first, colon, last = match.groups()
    if not colon:
        return int(first), int(first)
    return int(first or 0), int(last) if last else float("inf")


def _chosen(replies: list[StoredReply], options: _Rejudging) -> list[StoredReply]:
    """Return the replies of the chosen groups, in order."""
    groups = sorted({(reply.step, reply.group) for reply in replies})
    if not options.sample or options.sample >= len(groups):
        return replies
    kept = set(random.Random(options.seed).sample(groups, options.sample))
    return [reply for reply in replies if (reply.step, reply.group) in kept]


def _row(reply: RejudgedReply) -> dict[str, Any]:
    stored = reply.stored
    return {
        "step": stored.step,
        "group": stored.group,
        "problem_id": stored.problem_id,
        "reward": stored.reward,
        "new_reward": reply.reward,
        "verdict": stored.verdict,
        "new_verdict": reply.verdict,
        "reason": reply.reason,
        "above": reply.above,
        "new_above": reply.new_above,
        "reply": stored.reply,
    }


def _write(path: str, changed: list[RejudgedReply]) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for reply in changed:
            # JSON escapes what UTF-8 cannot encode.
            file.write(json.dumps(_row(reply)) + "\n")


def _figures(report: RejudgeReport) -> dict[str, Any]:
    import msgspec

    figures = cast("dict[str, Any]", msgspec.to_builtins(report))
    figures["changed"] = len(report.changed)
    figures["examples"] = [_row(reply) for reply in report.changed[:_EXAMPLES]]
    return figures


def _print(report: RejudgeReport) -> None:
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(
        f"{report.replies} replies, {report.judged} with a new reward ({report.distinct} different ones "
        "judged)"
    )
    for reason, count in report.skipped.items():
        console.print(f"  not judged again: {count} ({reason})")
    if report.no_verdict:
        console.print(f"  without a verdict now: {report.no_verdict}; they count as no reward, not as 0")
    if report.mean is not None:
        mean = report.mean
        console.print(
            f"mean reward by problem: {mean.a:.4f} before, {mean.b:.4f} now, "
            f"{mean.value:+.4f} [{mean.low:+.4f}, {mean.high:+.4f}]"
        )
    console.print(f"rewards that changed: {len(report.changed)}")
    for transition, count in report.transitions.items():
        console.print(f"  {count:6}  {transition}")
    console.print(
        f"advantages (reward minus the group's mean) with the opposite sign: {report.flipped}\n"
        f"groups: {report.groups}; {report.signal_lost} lost their signal (all rewards equal now), "
        f"{report.signal_gained} gained one"
    )
    for reply in report.changed[:_EXAMPLES]:
        reason = reply.reason.strip().partition("\n")[0][:100]
        console.print(
            f"  step {reply.stored.step}, {reply.stored.problem_id}: {reply.transition}"
            + (f" ({reason})" if reason else "")
        )
