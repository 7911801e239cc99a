"""Count replies as they are judged. The result does not depend on their order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from math import fsum, isfinite
from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.core.verdict import Verdict
from whetstone.evaluate.passk import Estimate, mean_with_interval, pass_at_k
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.results import (
    PASS_1,
    REWARD,
    Evaluation,
    ProblemResult,
    SampleResult,
    Shares,
    TableRow,
    pass_values,
)


class _Counts:
    """The counts of one problem."""

    def __init__(self) -> None:
        self.seen = self.correct = self.judge_errors = self.failed = self.forgeable = self.undecided = 0
        self.rewards: list[float] = []
        # The error with the lowest index is reported, so that the order of replies does not matter.
        self.error: tuple[int, str] | None = None

    @property
    def reward(self) -> float | None:
        return _mean(self.rewards) if self.rewards else None


class Tally:
    """The counts of a running evaluation. ``total`` replies are expected; 0 if unknown."""

    def __init__(self, plan: SamplingPlan, total: int = 0) -> None:
        self.plan = plan
        self.total = total
        self.samples = self.accepted = self.failed = self.judge_errors = self.forgeable = 0
        self._labels: dict[str, dict[str, str]] = {}
        self._counts: defaultdict[str, _Counts] = defaultdict(_Counts)
        self._verdicts: Counter[Verdict] = Counter()
        self._truncated = self._tokens = self._read = self._read_uncounted = 0
        self._thinking = self._unfinished = self._thinking_characters = 0
        self._thinking_tokens = self._uncounted = 0
        self._decided = self._turns = 0
        self._rewards_are_passes = True
        self._rewarded, self._reward_sum = 0, 0.0
        self._episode: defaultdict[str, list[float]] = defaultdict(list)

    def expect(self, problem: Problem) -> None:
        """Add a problem; the results list problems in the order of these calls.

        Raises UserError for a second problem with the same id.
        """
        if problem.id in self._labels:
            raise UserError(f"problem {problem.id!r} occurs twice; ids identify the problems of a benchmark")
        self._labels[problem.id] = labels_of(problem)

    def add(self, sample: SampleResult) -> None:
        """Count a reply. Its problem may be expected later."""
        counts = self._counts[sample.problem_id]
        counts.seen += 1
        self.samples += 1
        # A failed reply counts as not right, but has no verdict and no tokens.
        if sample.failed:
            self.failed += 1
            counts.failed += 1
            first = (sample.index, sample.error)
            counts.error = first if counts.error is None else min(counts.error, first)
            return
        self._add_result(sample, counts)
        self._turns += sample.turns
        for name, value in sample.metrics.items():
            self._episode[name].append(value)
        self._truncated += sample.finish_reason == "length"
        self._tokens += sample.tokens
        self._read += sample.prompt_tokens or 0
        self._read_uncounted += sample.prompt_tokens is None
        self._add_thinking(sample)

    def _add_result(self, sample: SampleResult, counts: _Counts) -> None:
        counts.correct += sample.solved
        self.accepted += sample.solved
        self._decided += sample.decided
        if sample.judgement is not None:
            self._verdicts[sample.judgement.verdict] += 1
        if not sample.has_result:
            self.judge_errors += 1
            counts.judge_errors += 1
        counts.undecided += sample.has_result and not sample.decided
        self.forgeable += sample.forgeable
        counts.forgeable += sample.forgeable
        if sample.reward is None:
            return
        if not isfinite(sample.reward):
            raise UserError(
                f"problem {sample.problem_id!r}: the environment gave the reward {sample.reward}; give a "
                "finite number, or None for no reward"
            )
        counts.rewards.append(sample.reward)
        self._rewarded += 1
        self._reward_sum += sample.reward
        self._rewards_are_passes &= sample.reward == sample.solved

    def _add_thinking(self, sample: SampleResult) -> None:
        unfinished, characters = sample.thinking_unfinished, len(sample.thinking)
        self._unfinished += unfinished
        if not (characters or unfinished):
            return
        self._thinking += 1
        self._thinking_characters += characters
        self._thinking_tokens += sample.thinking_tokens or 0
        self._uncounted += sample.thinking_tokens is None

    def so_far(self) -> tuple[str, Estimate] | None:
        """Return the name and the estimate of the main result over the problems with a reply, at low cost;
        see ``Evaluation.headline``. None without a reply."""
        seen = [counts for counts in self._counts.values() if counts.seen]
        rewards = [counts.reward for counts in seen if counts.reward is not None]
        if rewards and not self._decided:
            return REWARD, mean_with_interval(rewards)
        rates = [counts.correct / counts.seen for counts in seen]
        return (PASS_1, mean_with_interval(rates)) if rates else None

    @property
    def note(self) -> str:
        """The mean over all replies so far, as text, at very low cost."""
        if self._rewarded and not self._decided:
            return f"reward {self._reward_sum / self._rewarded:.3f}"
        return f"accepted {self.accepted / max(self.samples, 1):.3f}"

    def evaluation(self, manifest: dict[str, Any]) -> Evaluation:
        """Return the result, once every reply is counted. Raises UserError if no reply has a verdict or a
        reward."""
        if unexpected := self._counts.keys() - self._labels.keys():
            raise RuntimeError(f"replies to problems that were not asked, such as {min(unexpected)!r}")
        problems = [self._result(name, labels) for name, labels in self._labels.items()]
        # Without any verdict, 0 % would look like a result of the model.
        if self.samples == self.failed + self.judge_errors:
            raise UserError(self._no_verdict(problems))
        values = {k: list(pass_values(problems, k).values()) for k in sorted({1, *self.plan.k})}
        # Where nothing says which replies solved their task, 0 % would be no result either.
        pass_at = {k: mean_with_interval(rates) for k, rates in values.items()} if self._decided else {}
        return Evaluation(
            plan=self.plan,
            problems=problems,
            pass_at=pass_at,
            shares=self._shares(),
            tables=_tables(problems, PASS_1 if pass_at else REWARD),
            manifest=manifest,
            reward=None if pass_at and self._rewards_are_passes else _reward_of(problems),
            episode={name: _mean(values) for name, values in sorted(self._episode.items())},
        )

    def _result(self, name: str, labels: dict[str, str]) -> ProblemResult:
        counts = self._counts[name]
        if counts.seen != self.plan.n:
            # A missing reply would change the estimate without a trace, so this is an error.
            raise RuntimeError(f"problem {name!r} has {counts.seen} replies of {self.plan.n}")
        error = counts.error[1] if counts.error else ""
        return ProblemResult(
            *(name, self.plan.n, counts.correct, counts.judge_errors, counts.failed, error, labels),
            shared_interpreter=counts.forgeable,
            undecided=counts.undecided,
            reward=counts.reward,
        )

    def _no_verdict(self, problems: list[ProblemResult]) -> str:
        if not problems:
            return "no problems to evaluate on"
        error = next((problem.error for problem in problems if problem.error), None)
        if error is not None:
            return f"no reply was received: {error}"
        if not self._verdicts:
            return (
                "no reply has a reward or a verdict; an environment must set the reward, or `accepted`, of "
                "the sample that it returns"
            )
        return "no reply could be judged; `whetstone doctor` finds what keeps the judge from working"

    def _shares(self) -> Shares:
        whole, there = max(self.samples, 1), max(self.samples - self.failed, 1)
        thinking = max(self._thinking, 1)
        # A mean over only some of the replies would be misleading.
        known = self._thinking > 0 and not self._uncounted
        return Shares(
            samples=self.samples,
            verdicts={v.value: self._verdicts[v] for v in Verdict if self._verdicts[v]},
            truncated=self._truncated / whole,
            no_code=self._verdicts[Verdict.NO_CODE] / whole,
            judge_error=self.judge_errors / whole,
            failed=self.failed / whole,
            mean_tokens=self._tokens / there,
            thinking=self._thinking / there,
            unfinished_thinking=self._unfinished / there,
            mean_thinking_tokens=self._thinking_tokens / thinking if known else None,
            mean_thinking_characters=self._thinking_characters / thinking,
            shared_interpreter=self.forgeable / whole,
            tokens=self._tokens,
            # A sum without some of the replies would make the cost look lower than it is.
            prompt_tokens=None if self._read_uncounted else self._read,
            mean_turns=self._turns / there if self._turns else 1.0,
        )


def labels_of(problem: Problem) -> dict[str, str]:
    """Return the labels of a problem for the tables; missing labels are left out."""
    meta = problem.meta
    date = meta.get("contest_date")
    found = {
        "difficulty": meta.get("difficulty"),
        "concept": meta.get("concept"),
        "kind": problem.tests.__struct_config__.tag,
        "platform": meta.get("platform"),
        "month": date[:7] if isinstance(date, str) else None,
    }
    plain = {name: value for name, value in found.items() if isinstance(value, str | int | float)}
    return {name: str(value) for name, value in plain.items() if value != ""}


def _tables(problems: list[ProblemResult], headline: str) -> dict[str, list[TableRow]]:
    """Return the main result by each label. Problems without a label are in no row, and a label with one
    value has no table."""
    groups: dict[str, dict[str, list[ProblemResult]]] = {}
    for problem in problems:
        for label, name in problem.labels.items():
            groups.setdefault(label, {}).setdefault(name, []).append(problem)
    tables = {
        label: [row for name, group in rows.items() if (row := _table_row(name, group, headline))]
        for label, rows in groups.items()
    }
    return {label: rows for label, rows in tables.items() if len(rows) > 1}


def _table_row(name: str, problems: list[ProblemResult], headline: str) -> TableRow | None:
    """Return the row of a label; None if no problem with it has a reward to show."""
    if headline == PASS_1:
        return TableRow(name, mean_with_interval([pass_at_k(p.n, p.correct, 1) for p in problems]))
    reward = _reward_of(problems)
    return reward and TableRow(name, reward=reward)


def _reward_of(problems: Iterable[ProblemResult]) -> Estimate | None:
    """Return the mean over the problems with a reward; None if there is none."""
    rewards = [problem.reward for problem in problems if problem.reward is not None]
    return mean_with_interval(rewards) if rewards else None


def _mean(values: list[float]) -> float:
    # The exact sum does not depend on the order of the replies.
    return fsum(values) / len(values)
