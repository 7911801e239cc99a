"""A model writes checkers for the problems of a set that need one; those that pass the trial are used.

It works in rounds while there are attempts left: one request for every problem without a checker, then the
trials. Replies and trials are stored in a journal, so an interrupted run is resumed without repeating any.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from msgspec import Struct, field

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, PythonChecker
from whetstone.data.dataset import open_problems, transform
from whetstone.data.decisions import ProblemDecision
from whetstone.data.resumable import digest_of, in_order
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.runs import JudgesPrograms, Runs
from whetstone.environments.conversation import Reply
from whetstone.environments.prompt import Prompt
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.writer import ReplyRequest, ReplyWriter
from whetstone_curation.checkers.asking import checker_in, needs_checker, question
from whetstone_curation.checkers.evidence import with_checker
from whetstone_curation.checkers.journal import CheckerJournal, ReplyEntry, TrialEntry
from whetstone_curation.checkers.trial import CheckerRejected, run_trial

STEP = "checkers"

Watch = Callable[[str, int, int], None]
"""Called with the phase ("asking 2" or "trying 2"), the number of finished items, and their total."""


class CheckerWritingSummary(Struct):
    """The results as counts. ``kept`` of ``needed`` problems have a checker; ``why`` counts the others by
    reason."""

    problems: int = 0
    needed: int = 0
    kept: int = 0
    why: Counter[str] = field(default_factory=Counter[str])


def journal_path(out: str | Path) -> Path:
    """Return the journal file of an unfinished run to ``out``."""
    return Path(out).with_name(f"{Path(out).name}.checkers.jsonl")


class CheckerWriting:
    """A run over a set. ``plan.n`` is the number of attempts, ``model`` the name in the evidence."""

    def __init__(
        self,
        source: str | Path,
        judge: JudgesPrograms,
        writer: ReplyWriter,
        plan: SamplingPlan,
        model: str,
        journal: CheckerJournal,
        *,
        say: Callable[[str], None] = lambda line: None,
        minute_s: float = 60.0,
    ) -> None:
        """``say`` gets a line about pending requests every ``minute_s`` seconds."""
        self._source, self._plan, self._model, self._journal = source, plan, model, journal
        self._asking = _ReplyRounds(source, writer, plan, journal, say, minute_s)
        self._policy = Policy(judge_attempts=1)
        self._runs = Runs(judge, self._policy.judge_attempts)

    def run(self, out: str | Path, threads: int, watch: Watch) -> CheckerWritingSummary:
        """Request and try checkers and write ``out``. Raises UserError for a set without a suitable problem,
        and for an endpoint that answers no request."""
        open_ = self._needing()
        try:
            for attempt in range(self._plan.n):
                wanting = {id_: digest for id_, digest in open_.items() if self._kept(id_, digest) is None}
                self._asking.ask(wanting, attempt, watch)
                self._try_all(wanting, attempt, threads, watch)
        except BaseException:
            # Threads that wait for a judgement start no other one.
            self._runs.stop()
            raise
        self._asking.check()
        written = CheckerWritingSummary(needed=len(open_), why=Counter())

        def step(problems: Iterator[Problem]) -> Iterator[Problem | ProblemDecision]:
            for problem in problems:
                written.problems += 1
                yield from self._settled(problem, open_.get(problem.id), written)

        transform(self._source, out, step)
        return written

    def _needing(self) -> dict[str, str]:
        """Return ids and digests of the problems that need a checker and have references to try it on."""
        needing = [problem for problem in open_problems(self._source) if needs_checker(problem)]
        if not needing:
            raise UserError(
                f"{self._source}: no problem needs a checker: none with stdin tests leaves several answers "
                "open; mark them with `whetstone data validate --mark several_answers`"
            )
        if not any(problem.references for problem in needing):
            raise UserError(
                f"{self._source}: none of the {len(needing)} problems that need a checker has a reference, "
                "and without one a checker cannot be tried; add right programs as `references`"
            )
        return {problem.id: digest_of(problem) for problem in needing if problem.references}

    def _kept(self, id_: str, digest: str) -> TrialEntry | None:
        trials = (self._journal.trials.get((id_, digest, attempt)) for attempt in range(self._plan.n))
        return next((trial for trial in trials if trial is not None and trial.evidence is not None), None)

    def _try_all(self, wanting: dict[str, str], attempt: int, threads: int, watch: Watch) -> None:
        replies, trials = self._journal.replies, self._journal.trials
        keys = {id_: (id_, digest, attempt) for id_, digest in wanting.items()}
        todo = {id_: key for id_, key in keys.items() if key in replies and key not in trials}

        def work(problem: Problem) -> TrialEntry:
            key = todo[problem.id]
            return self._try(problem, key[1], attempt, replies[key])

        problems = (problem for problem in open_problems(self._source) if problem.id in todo)
        with closing(in_order(problems, work, lambda: None, threads, None)) as tried:
            for done, (_, trial) in enumerate(tried, 1):
                self._journal.add(trial)
                watch(f"trying {attempt + 1}", done, len(todo))

    def _try(self, problem: Problem, digest: str, attempt: int, reply: str) -> TrialEntry:
        source, why = checker_in(reply)
        if why:
            return TrialEntry(problem.id, digest, attempt, reason="no_checker", detail=why)
        try:
            evidence = run_trial(problem, PythonChecker(source), self._runs, self._policy)
        except CheckerRejected as refused:
            return TrialEntry(problem.id, digest, attempt, reason=refused.reason, detail=str(refused))
        return TrialEntry(problem.id, digest, attempt, source=source, evidence=evidence)

    def _settled(
        self, problem: Problem, digest: str | None, written: CheckerWritingSummary
    ) -> Iterator[Problem | ProblemDecision]:
        """Yield the problem with its checker, or unchanged with a mark that states the reason.

        digest: of a problem that needs a checker and has references. It is part of every key, so that replies
        to an earlier text of the problem do not count.
        """
        if digest is None:
            if needs_checker(problem):
                yield _mark(problem, "checker_untried", "it has no reference to try a checker on", written)
            yield problem
            return
        kept = self._kept(problem.id, digest)
        if kept is not None and kept.evidence is not None:
            written.kept += 1
            yield ProblemDecision(
                problem.id, STEP, "mark", "checker_written", kept.evidence.summary(), problem.source
            )
            yield with_checker(problem, kept.source, kept.evidence, self._model, kept.attempt)
            return
        trials = [self._journal.trials.get((problem.id, digest, attempt)) for attempt in range(self._plan.n)]
        # The last attempt's reason is named; the others are in the journal.
        last = next((trial for trial in reversed(trials) if trial is not None), None)
        if last is None:
            error = self._asking.failures.get(problem.id, "no reply")
            yield _mark(problem, "checker_not_had", error, written)
        else:
            yield _mark(problem, "checker_refused", f"{last.reason}: {last.detail}", written)
            written.why[last.reason] += 1
        yield problem


def _mark(problem: Problem, reason: str, detail: str, written: CheckerWritingSummary) -> ProblemDecision:
    if reason != "checker_refused":
        written.why[reason] += 1
    return ProblemDecision(problem.id, STEP, "mark", reason, detail, problem.source)


class _ReplyRounds:
    """Requests replies to problems of a set, without repeating any of the journal. ``plan.n`` is the most
    replies for one problem."""

    def __init__(
        self,
        source: str | Path,
        writer: ReplyWriter,
        plan: SamplingPlan,
        journal: CheckerJournal,
        say: Callable[[str], None],
        minute_s: float,
    ) -> None:
        self._source, self._writer, self._plan = source, writer, plan
        self._journal, self._say, self._minute_s = journal, say, minute_s
        self._done = 0
        self.failures: dict[str, str] = {}
        """Problems whose last request failed, with the error."""

    def ask(self, wanting: Mapping[str, str], attempt: int, watch: Watch) -> None:
        """Request one reply for each of the problems ``wanting`` without one of this attempt. They are given
        by their ids, with their digests."""
        replies = self._journal.replies
        missing = {id_: digest for id_, digest in wanting.items() if (id_, digest, attempt) not in replies}
        if missing:
            asyncio.run(self._ask(missing, attempt, watch))

    def check(self) -> None:
        """Raise UserError if there is no reply at all and some request failed."""
        if self.failures and not self._journal.replies:
            id_, error = next(iter(self.failures.items()))
            raise UserError(f"every request failed; the first, for {id_}: {error}; repeat the command")

    async def _ask(self, missing: dict[str, str], attempt: int, watch: Watch) -> None:
        self._done = 0
        minutes = asyncio.create_task(self._minutes(f"asking {attempt + 1}", len(missing)))
        try:
            async for request, reply in self._writer.write(self._questions(missing, attempt)):
                self._done += 1
                watch(f"asking {attempt + 1}", self._done, len(missing))
                id_ = request.problem.id
                # A failed request is not stored, so the next run repeats it.
                if reply.finish_reason == "failed":
                    self.failures[id_] = reply.error
                    continue
                # A later attempt may succeed where an earlier one failed.
                self.failures.pop(id_, None)
                self._journal.add(ReplyEntry(id_, missing[id_], attempt, _storable(reply)))
        finally:
            minutes.cancel()
            await self._writer.close()

    async def _minutes(self, what: str, of: int) -> None:
        while True:
            await asyncio.sleep(self._minute_s)
            parts = [f"{what}: {self._done} of {of} replies", self._writer.waiting()]
            self._say(", ".join(part for part in parts if part))

    def _questions(self, missing: Collection[str], attempt: int) -> Iterator[ReplyRequest]:
        for problem in open_problems(self._source):
            if problem.id in missing:
                yield ReplyRequest(
                    problem=problem,
                    prompt=Prompt(question(problem), "", chat=True),
                    n=self._plan.n,
                    seed=self._plan.seed_of(problem.id),
                    # One attempt at a time: problems that have a checker by then are not asked again.
                    wanted=frozenset([attempt]),
                )


def _storable(reply: Reply) -> str:
    """Return the reply as text that UTF-8 can represent."""
    # A model can emit lone surrogates, which JSON cannot store.
    return reply.text.encode("utf-8", "replace").decode()
