"""Judges the stored replies of an evaluation by other rules, and reports differing verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from whetstone.core.errors import UserError
from whetstone.core.outputs import check_outputs, write_file
from whetstone.core.problem import Problem
from whetstone.core.verdict import Verdict
from whetstone.environments.conversation import Conversation, Reply, ReplyLimits
from whetstone.environments.prompt import Message, Prompt
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.turn_barrier import TurnBarrier
from whetstone.evaluate.benchmarks import Benchmark, load_benchmark
from whetstone.evaluate.evaluate import evaluate
from whetstone.evaluate.folder import EvaluationFolder, read_samples
from whetstone.evaluate.measure import Grading, ProgressView, check_grading, environment_by
from whetstone.evaluate.replies.writer import ReplyRequest
from whetstone.evaluate.results import Evaluation, SampleResult, evaluations_in, load_evaluation
from whetstone.evaluate.tables import percent, print_evaluation
from whetstone.judge import AsyncJudge
from whetstone_graders import COMPARISONS
from whetstone_graders.rules import EVALPLUS_SOURCES

DIFFERENCES_FILE = "differences.jsonl"
_SHOWN = 40


class VerdictDifference(Struct, frozen=True):
    """A reply that only one set of rules accepts, with both verdicts and reasons."""

    problem_id: str
    index: int
    before: str
    after: str
    before_reason: str
    after_reason: str
    another_program: bool


class StoredReplies:
    """A ReplyWriter that has all replies already: those of an evaluation's folder."""

    def __init__(self, folder: Path) -> None:
        self.barrier = TurnBarrier()
        self._replies = {
            (sample.problem_id, sample.index): Reply(
                sample.index,
                sample.text,
                sample.finish_reason,
                sample.tokens,
                sample.thinking_tokens,
                sample.error,
                sample.prompt_tokens,
            )
            for sample in read_samples(folder)
        }

    def waiting(self) -> str:
        """See ReplyWriter."""
        return ""

    def failures(self) -> str:
        """See ReplyWriter."""
        return ""

    async def begin(
        self, problem: Problem, prompt: Prompt, *, seed: int, limits: ReplyLimits | None = None
    ) -> tuple[list[int], Reply]:
        """See ModelClient. Raises UserError: only first replies are stored one by one."""
        raise UserError(f"{problem.id}: conversations of several turns cannot be judged again")

    async def reply_to(
        self,
        conversation: Conversation,
        messages: Sequence[Message],
        *,
        seed: int,
        limits: ReplyLimits | None = None,
    ) -> tuple[list[int], Reply] | None:
        """See ModelClient. Raises UserError, as ``begin`` does."""
        raise UserError("conversations of several turns cannot be judged again")

    async def close(self) -> None:
        """See ReplyWriter."""

    async def write(
        self, questions: Iterable[ReplyRequest], *, several_turns: bool = False
    ) -> AsyncGenerator[tuple[ReplyRequest, Reply], None]:
        """See ReplyWriter. Raises UserError for a missing reply."""
        for question in questions:
            for index in sorted(question.wanted):
                reply = self._replies.get((question.problem.id, index))
                if reply is None:
                    raise UserError(
                        f"reply {index} to {question.problem.id!r} is missing: the evaluation has not ended"
                    )
                yield question, reply


def rejudge(
    folder: str | Path,
    grading: Grading,
    *,
    data: dict[str, str] | None = None,
    out: str | Path | None = None,
    workers: int = 0,
    restart: bool = False,
    console: Console | None = None,
) -> dict[str, Evaluation]:
    """Judge every evaluation in ``folder`` by ``grading``, print results and differences, and store both.

    The results are written to ``out/NAME`` for each benchmark, by default in ``FOLDER-GRADING/NAME``; an
    unfinished one is resumed unless ``restart``. ``data`` maps a benchmark to its file if that was moved.
    Nothing is generated. Raises UserError for a folder without a finished evaluation, or whose problems have
    changed.
    """
    places = evaluations_in(folder)
    root = Path(folder)
    target = Path(out) if out else root.with_name(f"{root.name}-{grading}")
    results: dict[str, Evaluation] = {}
    for name, place in places.items():
        check_outputs(target / name, inputs=[place], replace=True)
        given = (data or {}).get(name)
        results[name] = asyncio.run(
            _one(name, place, grading, given, target / name, workers, restart, console or Console())
        )
    return results


async def _one(
    name: str,
    place: Path,
    grading: Grading,
    data: str | None,
    out: Path,
    workers: int,
    restart: bool,
    console: Console,
) -> Evaluation:
    before = load_evaluation(place)
    benchmark = _same_problems(place, before, data)
    check_grading(grading, benchmark.problems)
    settings = EnvironmentSection.model_validate(before.manifest["environment"])
    total = len(benchmark.problems) * before.plan.n
    judge = AsyncJudge(workers, comparisons=COMPARISONS)
    judged_in = {**before.manifest["judge"], "environment": judge.environment}
    manifest: dict[str, Any] = {**before.manifest, "harness": grading, "judge": judged_in}
    async with judge:
        rules = environment_by(grading, judge, settings)
        stored = EvaluationFolder(out, manifest, restart=restart)
        async with rules as environment:
            with stored, ProgressView(name, total, console) as view:
                evaluation = await evaluate(
                    benchmark.problems,
                    StoredReplies(place),
                    environment,
                    judge,
                    before.plan,
                    known=stored.finished(),
                    record=stored.add,
                    total=total,
                    on_progress=view.show,
                    on_minute=view.minute,
                    manifest=manifest,
                )
                stored.finish(evaluation)
    print_evaluation(f"{name}, {grading}", evaluation, console)
    if grading == "official" and benchmark.problems[0].source in EVALPLUS_SOURCES:
        share = percent(_base_share(read_samples(out)))
        console.print(f"base inputs alone: {share} of the replies are right", highlight=False)
    found = list(differences(read_samples(place), read_samples(out)))
    write_file(out / DIFFERENCES_FILE, [msgspec.json.encode(each) + b"\n" for each in found])
    _print_differences(found, str(before.manifest["harness"]), grading, console)
    console.print(f"saved: {out}", highlight=False, soft_wrap=True)
    return evaluation


def differences(before: Iterable[SampleResult], after: Iterable[SampleResult]) -> Iterator[VerdictDifference]:
    """The replies that are right by one and not by the other, in the order of ``before``."""
    judged = {(sample.problem_id, sample.index): sample for sample in after}
    for old in before:
        new = judged.get((old.problem_id, old.index))
        if new is None or new.solved == old.solved:
            continue
        yield VerdictDifference(
            problem_id=old.problem_id,
            index=old.index,
            before=_verdict(old),
            after=_verdict(new),
            before_reason=_reason(old),
            after_reason=_reason(new),
            another_program=(old.program or "").strip() != (new.program or "").strip(),
        )


def _base_share(samples: Iterable[SampleResult]) -> float:
    """The share of replies that are right on EvalPlus' base inputs: their first case, the others aside."""
    judged = [sample.judgement.cases if sample.judgement else [] for sample in samples]
    right = sum(bool(cases) and cases[0].verdict is Verdict.ACCEPTED for cases in judged)
    return right / max(len(judged), 1)


def _verdict(sample: SampleResult) -> str:
    return (sample.judgement.verdict if sample.judgement else Verdict.JUDGE_ERROR).value


def _reason(sample: SampleResult) -> str:
    return sample.judgement.reason if sample.judgement else sample.error


def _same_problems(place: Path, before: Evaluation, data: str | None) -> Benchmark:
    """The benchmark that the evaluation was on. Raises UserError when it is another one now."""
    said = before.manifest["benchmark"]
    source: str | None = data or said["source"]
    if data is None and "@" in said["source"] and not Path(said["source"]).exists():
        source = None  # the hub, in its revision
    benchmark = load_benchmark(said["name"], source, limit=said["problems"])
    if benchmark.problems_sha256 != said["problems_sha256"]:
        raise UserError(
            f"{place}: was made on other problems than those of {benchmark.source} (their hashes differ); "
            f"give the file that it was made on with --data {place.name}=FILE"
        )
    return benchmark


def _print_differences(found: list[VerdictDifference], before: str, after: str, console: Console) -> None:
    gained = sum(each.after == Verdict.ACCEPTED for each in found)
    console.print(
        f"replies that differ: {len(found)} (right only by {after}: {gained}, only by {before}: "
        f"{len(found) - gained})",
        highlight=False,
    )
    if not found:
        return
    table = Table("reply", before, after, "why", "program")
    for each in found[:_SHOWN]:
        why = each.before_reason or each.after_reason
        taken = "another one" if each.another_program else "the same"
        table.add_row(escape(f"{each.problem_id} #{each.index}"), each.before, each.after, escape(why), taken)
    console.print(table)
    if len(found) > _SHOWN:
        console.print(f"and {len(found) - _SHOWN} more, in {DIFFERENCES_FILE}", highlight=False)
