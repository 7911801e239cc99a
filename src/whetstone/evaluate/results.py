"""The results of an evaluation: replies with verdicts and rewards, problems, and estimates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.folder_contents import other_folder
from whetstone.core.outputs import write_file
from whetstone.core.settings import read_settings
from whetstone.core.verdict import Judgement, Verdict
from whetstone.data.pass_rate import PassRate
from whetstone.environments.conversation import ReplyEnd
from whetstone.environments.formats.family import END_THINK, THINK
from whetstone.evaluate.passk import Estimate, PairedDifference, paired_difference, pass_at_k
from whetstone.evaluate.plan import SamplingPlan

EVALUATION_FILE = "evaluation.json"
PASS_1, REWARD = "pass@1", "reward"


class SampleResult(Struct, frozen=True):
    """One reply with its judgement and reward, or the replies of an episode of several ``turns``.

    ``judgement`` is None for a reply that failed, and in an environment that judges no programs. ``accepted``
    is whether the environment counts the task as solved, ``reward`` its reward; None if there is none.
    ``error`` is the reason of a failed reply. ``tokens``, ``thinking_tokens`` and ``prompt_tokens`` are
    counts of the writer of the reply. ``metrics`` and ``dialogue`` are those of ``Sample``.
    """

    problem_id: str
    index: int
    text: str
    program: str | None
    judgement: Judgement | None
    finish_reason: ReplyEnd
    tokens: int
    thinking_tokens: int | None = None
    error: str = ""
    prompt_tokens: int | None = None
    accepted: bool | None = None
    reward: float | None = None
    turns: int = 1
    metrics: dict[str, float] = {}
    dialogue: list[tuple[str, str]] = []

    @property
    def failed(self) -> bool:
        """Whether the reply does not exist, because its request or the engine failed."""
        return self.finish_reason == "failed"

    @property
    def decided(self) -> bool:
        """Whether it is known if the task was solved: by the environment, or by a verdict."""
        if self.failed:
            return False
        judged = self.judgement is not None and self.judgement.verdict is not Verdict.JUDGE_ERROR
        return judged or self.accepted is not None

    @property
    def solved(self) -> bool:
        """Whether the task was solved: only then does the reply count as right."""
        if not self.decided:
            return False
        if self.accepted is not None:
            return self.accepted
        return self.judgement is not None and self.judgement.accepted

    @property
    def has_result(self) -> bool:
        """Whether the reply says something about the model: a verdict, or at least a reward."""
        return self.decided or (self.reward is not None and not self.failed)

    @property
    def forgeable(self) -> bool:
        """Whether the tests ran in the program's own process, where a program can forge the verdict."""
        return self.judgement is not None and self.judgement.shared_interpreter

    @property
    def thinking(self) -> str:
        """The thinking in the reply, without its tags."""
        before, ended, after = self.text.rpartition(END_THINK)
        return (before if ended else after if THINK in after else "").replace(THINK, "", 1)

    @property
    def thinking_unfinished(self) -> bool:
        """Whether the reply ends inside its thinking."""
        return THINK in self.text.rpartition(END_THINK)[2]


class ProblemResult(Struct, frozen=True):
    """The result of one problem: the number of requested replies ``n``, and of right ones among them.

    ``judge_errors`` counts replies without a verdict or a reward, ``failed`` failed requests, and
    ``undecided`` replies with a reward of which nothing says whether they solved the task. All of them count
    as not right. ``shared_interpreter`` counts replies whose verdict could have been forged. ``error`` is
    that of the first failed one. ``reward`` is the mean over the replies that have one. ``labels`` group the
    tables: difficulty, concept, kind, platform, month.
    """

    id: str
    n: int
    correct: int
    judge_errors: int = 0
    failed: int = 0
    error: str = ""
    labels: dict[str, str] = {}
    shared_interpreter: int = 0
    undecided: int = 0
    reward: float | None = None


class Shares(Struct, frozen=True):
    """Counts over all requested replies, and their shares.

    ``verdicts`` counts judged replies. ``truncated`` replies were cut at the token limit, ``no_code`` ones
    contain no program, ``judge_error`` ones have neither a verdict nor a reward, and the requests of
    ``failed`` ones failed. The last three count as not right. The verdict on ``shared_interpreter`` ones
    counts, but a program could have forged it. ``mean_tokens`` is over existing replies, ``tokens`` their
    sum; ``prompt_tokens`` were read for them (None if not counted). ``thinking`` is the share of these that
    think, and ``unfinished_thinking`` the share that end inside their thinking. ``mean_thinking_tokens``
    (None if the endpoint does not count them) and ``mean_thinking_characters`` are over replies that think.
    ``mean_turns`` is over existing replies.
    """

    samples: int
    verdicts: dict[str, int]
    truncated: float
    no_code: float
    judge_error: float
    failed: float
    mean_tokens: float
    thinking: float = 0.0
    unfinished_thinking: float = 0.0
    mean_thinking_tokens: float | None = None
    mean_thinking_characters: float = 0.0
    shared_interpreter: float = 0.0
    tokens: int = 0
    prompt_tokens: int | None = None
    mean_turns: float = 1.0


class TableRow(Struct, frozen=True):
    """The main result of the problems with one label: pass@1, or else the mean ``reward``."""

    name: str
    pass_1: Estimate | None = None
    reward: Estimate | None = None

    @property
    def estimate(self) -> Estimate:
        """The one of the two that there is."""
        found = self.pass_1 or self.reward
        assert found is not None
        return found


class Evaluation(Struct, frozen=True):
    """The result. ``pass_at`` maps k to its estimate over all problems; pass@1 is also called avg@n.

    ``pass_at`` is empty if nothing says which replies solved their task. ``reward`` is the mean over problems
    of their mean rewards; None if there are no rewards, or if every reward is 1 or 0 as pass@1 counts the
    reply. Replies without a reward are not in it. ``tables`` maps the name of a label, such as difficulty, to
    its rows in order of first appearance. ``episode`` has the means of the environment's metrics over the
    replies that have them.
    """

    plan: SamplingPlan
    problems: list[ProblemResult]
    pass_at: dict[int, Estimate]
    shares: Shares
    tables: dict[str, list[TableRow]]
    manifest: dict[str, Any] = {}
    reward: Estimate | None = None
    episode: dict[str, float] = {}

    @property
    def estimates(self) -> dict[str, Estimate]:
        """The estimates by name: ``pass@k`` for each k, then ``reward``."""
        found = {f"pass@{k}": estimate for k, estimate in self.pass_at.items()}
        return found if self.reward is None else {**found, REWARD: self.reward}

    @property
    def headline(self) -> tuple[str, Estimate]:
        """The name and the estimate of the main result: pass@1, or else the mean reward."""
        found = self.estimates
        name = PASS_1 if PASS_1 in found else REWARD
        return name, found[name]

    def values(self, name: str) -> dict[str, float]:
        """Return ``pass@k`` of each problem that has k replies, or its ``reward`` if it has one, by its
        id."""
        if name == REWARD:
            return {problem.id: problem.reward for problem in self.problems if problem.reward is not None}
        return pass_values(self.problems, int(name.removeprefix("pass@")))

    def metrics(self, set_name: str) -> dict[str, float]:
        """Return flat numbers for an ``eval`` record of metrics.jsonl, named ``eval/<set>/...``."""
        at = f"eval/{set_name}"
        numbers: dict[str, float] = {}
        for name, estimate in self.estimates.items():
            numbers[f"{at}/{name}"] = estimate.value
            numbers[f"{at}/{name}_low"] = estimate.low
            numbers[f"{at}/{name}_high"] = estimate.high
        numbers[f"{at}/problems"] = len(self.problems)
        numbers[f"{at}/truncated"] = self.shares.truncated
        numbers[f"{at}/no_code"] = self.shares.no_code
        numbers[f"{at}/judge_error"] = self.shares.judge_error
        numbers[f"{at}/failed"] = self.shares.failed
        numbers[f"{at}/shared_interpreter"] = self.shares.shared_interpreter
        numbers[f"{at}/length"] = self.shares.mean_tokens
        if self.shares.mean_turns > 1:
            numbers[f"{at}/turns"] = self.shares.mean_turns
        return numbers | {f"{at}/episode/{name}": value for name, value in self.episode.items()}

    def save(self, folder: str | Path) -> None:
        """Write evaluation.json in one rename. Raises UserError when the folder cannot be written."""
        encoded = msgspec.json.encode(self, enc_hook=lambda plan: plan.model_dump(mode="json"))
        text = msgspec.json.format(encoded, indent=1)
        write_file(Path(folder) / EVALUATION_FILE, [text + b"\n"])


def pass_values(problems: Iterable[ProblemResult], k: int) -> dict[str, float]:
    """Return pass@k of each problem that has k replies, by problem id."""
    return {p.id: pass_at_k(p.n, p.correct, k) for p in problems if p.n >= k}


def paired_differences(old: Evaluation, new: Evaluation) -> dict[str, PairedDifference]:
    """Return the paired difference new - old of each estimate that both have on a common problem, by name,
    the main one first."""
    values = {name: (old.values(name), new.values(name)) for name in old.estimates if name in new.estimates}
    return {name: paired_difference(a, b) for name, (a, b) in values.items() if a.keys() & b.keys()}


def headline_key(record: Mapping[str, Any], set_name: str) -> str | None:
    """Return the key of the main result on a problem set in an ``eval`` record; None if there is none."""
    keys = (f"eval/{set_name}/{name}" for name in (PASS_1, REWARD))
    return next((key for key in keys if key in record), None)


def load_evaluation(folder: str | Path) -> Evaluation:
    """Read what :meth:`Evaluation.save` wrote. Raises UserError naming the invalid file."""
    place = Path(folder) / EVALUATION_FILE
    try:
        return msgspec.json.decode(place.read_bytes(), type=Evaluation, dec_hook=_plan_of)
    except OSError as error:
        raise UserError(f"{place}: {error.strerror}; give the --out folder of `whetstone eval`") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, UserError) as error:
        raise UserError(f"{place}: not written by `whetstone eval`: {error}") from None


def _plan_of(kind: type[SamplingPlan], values: object) -> SamplingPlan:
    return read_settings(kind, values, where="plan")


def evaluations_in(folder: str | Path) -> dict[str, Path]:
    """Return the evaluations of an --out folder by benchmark. The folder of a single one is also accepted.

    Raises UserError if there are none.
    """
    root = Path(folder)
    if (root / EVALUATION_FILE).is_file():
        return {root.name: root}
    found = {place.parent.name: place.parent for place in sorted(root.glob(f"*/{EVALUATION_FILE}"))}
    if not found:
        raise UserError(
            f"{other_folder(root, EVALUATION_FILE)}; give the --out folder of a finished `whetstone eval`"
        )
    return found


def evaluation_pairs(folder: str | Path, other: str | Path) -> list[tuple[str, Path, Path]]:
    """Return the benchmarks that two --out folders share: name, and the folder of each evaluation.

    Raises UserError if there are none.
    """
    first, second = evaluations_in(folder), evaluations_in(other)
    # Two single evaluations are compared under any names.
    if len(first) == len(second) == 1:
        [old], [new] = first.values(), second.values()
        return [(old.name if old.name == new.name else f"{old.name} and {new.name}", old, new)]
    pairs = [(name, first[name], second[name]) for name in first if name in second]
    if not pairs:
        raise UserError(
            f"{folder} has {', '.join(sorted(first))}, and {other} has {', '.join(sorted(second))}: no "
            "benchmark is in both; compare evaluations of the same benchmark"
        )
    return pairs


def compared(name: str, old: Evaluation, new: Evaluation) -> dict[str, PairedDifference]:
    """Return ``paired_differences``. Raises UserError if there are none; ``name`` is that of the
    benchmark."""
    found = paired_differences(old, new)
    if not found:
        what = "problem" if old.headline[0] in new.estimates else "result"
        raise UserError(
            f"{name}: the two evaluations have no {what} in common; compare evaluations of the same benchmark"
        )
    return found


class _PassRates(Struct, frozen=True):
    """Pass rates by problem id, and the number of requested replies for each."""

    by_id: dict[str, PassRate]
    n: int


def read_pass_rates(folder: str | Path) -> _PassRates:
    """Return the pass rates in an --out folder of ``whetstone eval``, of all its benchmarks.

    Failed replies and those without a verdict are not among the ``n`` of a rate: they are no evidence about
    the problem. ``n`` is 0 if verdicts could have been forged. Raises UserError for a folder without a
    finished evaluation, for an evaluation that has rewards only, and for evaluations that asked for different
    numbers of replies.
    """
    rates: dict[str, PassRate] = {}
    asked: set[int] = set()
    for place in evaluations_in(folder).values():
        evaluation = load_evaluation(place)
        if evaluation.reward is not None and not evaluation.pass_at:
            raise UserError(
                f"{place}: has rewards only, and nothing says which replies solved their problem; the "
                "environment must set `accepted` in its samples"
            )
        asked.add(evaluation.plan.n)
        model = str(evaluation.manifest.get("model", {}).get("source") or "unknown")
        for problem in evaluation.problems:
            n, correct = (_decided(problem), problem.correct) if not problem.shared_interpreter else (0, 0)
            rates[problem.id] = PassRate(model, n, correct)
    if len(asked) > 1:
        counts = ", ".join(map(str, sorted(asked)))
        raise UserError(f"{folder}: its evaluations have {counts} replies a problem; give one of its folders")
    return _PassRates(rates, asked.pop())


def _decided(problem: ProblemResult) -> int:
    return problem.n - problem.judge_errors - problem.failed - problem.undecided
