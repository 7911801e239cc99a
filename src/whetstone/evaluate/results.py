"""What an evaluation found: replies with verdicts, problems, and the estimates over them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.errors import UserError
from whetstone.evaluate.passk import Estimate, mean_with_interval, pass_at_k
from whetstone.evaluate.plan import Plan
from whetstone.verdict import Judgement, Verdict

EVALUATION_FILE = "evaluation.json"
SAMPLES_FILE = "samples.jsonl"


class SampleResult(Struct, frozen=True):
    """One reply: the program as it was judged, and the judgement (None for an aborted reply)."""

    problem_id: str
    index: int
    text: str
    program: str | None
    judgement: Judgement | None
    finish_reason: str
    tokens: int

    @property
    def unjudged(self) -> bool:
        """True when nothing can be said of this reply: it leaves the counts instead of failing."""
        return self.judgement is None or self.judgement.verdict is Verdict.JUDGE_ERROR


class ProblemResult(Struct, frozen=True):
    """Of one problem: judged replies ``n``, right ones ``correct``, and ``unjudged`` ones.

    ``error`` says why the problem could not be put to the model; its replies count as failed.
    """

    id: str
    n: int
    correct: int
    unjudged: int
    difficulty: str = ""
    concept: str = ""
    error: str = ""


class Shares(Struct, frozen=True):
    """Counts over all replies, and what share of them each is."""

    samples: int
    verdicts: dict[str, int]
    truncated: float
    no_code: float
    judge_error: float
    mean_tokens: float


class TableRow(Struct, frozen=True):
    """pass@1 of the problems that share a difficulty or a concept."""

    name: str
    pass_1: Estimate


class Evaluation(Struct, frozen=True):
    """The result. ``pass_at`` maps k to its estimate; a problem with fewer than k judged replies is
    not in it, and a problem with none is counted in ``unjudged_problems``. pass@1 is what others
    call avg@n."""

    plan: Plan
    problems: list[ProblemResult]
    pass_at: dict[int, Estimate]
    shares: Shares
    by_difficulty: list[TableRow]
    by_concept: list[TableRow]
    unjudged_problems: list[str]
    samples: list[SampleResult]
    manifest: dict[str, Any] = {}

    def values(self, k: int) -> dict[str, float]:
        """pass@k of each problem that has at least k judged replies."""
        return pass_values(self.problems, k)

    def metrics(self, set_name: str) -> dict[str, float]:
        """Flat numbers for an ``eval`` record of metrics.jsonl, named ``eval/<set>/...``."""
        at = f"eval/{set_name}"
        numbers: dict[str, float] = {}
        for k, estimate in self.pass_at.items():
            numbers[f"{at}/pass@{k}"] = estimate.value
            numbers[f"{at}/pass@{k}_low"] = estimate.low
            numbers[f"{at}/pass@{k}_high"] = estimate.high
        numbers[f"{at}/problems"] = len(self.problems) - len(self.unjudged_problems)
        numbers[f"{at}/unjudged"] = len(self.unjudged_problems)
        numbers[f"{at}/truncated"] = self.shares.truncated
        numbers[f"{at}/no_code"] = self.shares.no_code
        numbers[f"{at}/judge_error"] = self.shares.judge_error
        numbers[f"{at}/length"] = self.shares.mean_tokens
        return numbers

    def save(self, folder: str | Path) -> None:
        """Write evaluation.json (without the replies) and samples.jsonl, each in one rename.

        Raises UserError when the folder cannot be written.
        """
        target = Path(folder)
        summary = msgspec.structs.replace(self, samples=[])
        try:
            target.mkdir(parents=True, exist_ok=True)
            lines = (msgspec.json.encode(sample) + b"\n" for sample in self.samples)
            _replace(target / SAMPLES_FILE, lines)
            text = msgspec.json.format(msgspec.json.encode(summary), indent=1)
            _replace(target / EVALUATION_FILE, [text + b"\n"])
        except OSError as error:
            raise UserError(f"{target}: {error.strerror}; name another folder with --out") from None


def load_evaluation(folder: str | Path, *, with_samples: bool = True) -> Evaluation:
    """Read what :meth:`Evaluation.save` wrote, its replies too unless told otherwise.

    Raises UserError naming the file that is not so.
    """
    target = Path(folder)
    place = target / EVALUATION_FILE
    try:
        evaluation = msgspec.json.decode(place.read_bytes(), type=Evaluation)
        if not with_samples:
            return evaluation
        place = target / SAMPLES_FILE
        samples = [msgspec.json.decode(line, type=SampleResult) for line in place.read_bytes().splitlines()]
    except OSError as error:
        raise UserError(f"{place}: {error.strerror}; give the --out folder of `whetstone eval`") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UserError(f"{place}: not written by `whetstone eval`: {error}") from None
    return msgspec.structs.replace(evaluation, samples=samples)


def summarize(
    plan: Plan, problems: list[ProblemResult], samples: list[SampleResult], manifest: dict[str, Any]
) -> Evaluation:
    """Estimates, shares and tables of the given results. Raises UserError when nothing was judged."""
    judged = [problem for problem in problems if problem.n]
    if not judged:
        raise UserError("no reply could be judged; `whetstone doctor` says what keeps the judge from working")
    pass_at: dict[int, Estimate] = {}
    for k in sorted({1, *plan.k}):
        values = list(pass_values(problems, k).values())
        if values:
            pass_at[k] = mean_with_interval(values, seed=plan.seed)
    return Evaluation(
        plan=plan,
        problems=problems,
        pass_at=pass_at,
        shares=_shares(samples),
        by_difficulty=_table(judged, [p.difficulty for p in judged], plan.seed),
        by_concept=_table(judged, [p.concept for p in judged], plan.seed),
        unjudged_problems=[problem.id for problem in problems if not problem.n],
        samples=samples,
        manifest=manifest,
    )


def pass_values(problems: Iterable[ProblemResult], k: int) -> dict[str, float]:
    """pass@k of each problem that has at least k judged replies, by problem id."""
    return {p.id: pass_at_k(p.n, p.correct, k) for p in problems if p.n >= k}


def _shares(samples: Sequence[SampleResult]) -> Shares:
    verdicts = Counter((s.judgement.verdict if s.judgement else Verdict.JUDGE_ERROR).value for s in samples)
    count = len(samples)
    whole = max(count, 1)
    return Shares(
        samples=count,
        verdicts={v.value: verdicts[v.value] for v in Verdict if verdicts[v.value]},
        truncated=sum(s.finish_reason == "length" for s in samples) / whole,
        no_code=verdicts[Verdict.NO_CODE.value] / whole,
        judge_error=verdicts[Verdict.JUDGE_ERROR.value] / whole,
        mean_tokens=sum(s.tokens for s in samples) / whole,
    )


def _table(problems: Sequence[ProblemResult], names: Sequence[str], seed: int) -> list[TableRow]:
    """One row for each name in order of first appearance; problems without a name have none."""
    groups: dict[str, list[float]] = {}
    for problem, name in zip(problems, names, strict=True):
        if name:
            groups.setdefault(name, []).append(pass_at_k(problem.n, problem.correct, 1))
    return [TableRow(name, mean_with_interval(values, seed=seed)) for name, values in groups.items()]


def _replace(target: Path, chunks: Iterable[bytes]) -> None:
    temporary = target.with_name(target.name + ".tmp")
    with temporary.open("wb") as file:
        file.writelines(chunks)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(target)
