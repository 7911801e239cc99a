"""A model writes generators of inputs for the problems of a set; ``data strengthen`` uses their inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from whetstone.core.problem import Problem
from whetstone.data.dataset import open_problems
from whetstone.data.resumable import digest_of
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.writer import ReplyWriter
from whetstone_curation.journal import CheckerJournal
from whetstone_curation.reply_rounds import ReplyRounds, Watch
from whetstone_curation.strengthen.answers import Answers
from whetstone_curation.strengthen.generators import generated_inputs, generator_in_reply, generator_prompt
from whetstone_curation.strengthen.strengthener import is_open_to_tests


def journal_path(out: str | Path) -> Path:
    """Return the journal file of an unfinished run to ``out``."""
    return Path(out).with_name(f"{Path(out).name}.generators.jsonl")


class Generators:
    """Generators for the problems of a set that can get tests, ``plan.n`` for each."""

    def __init__(
        self,
        source: str | Path,
        writer: ReplyWriter,
        plan: SamplingPlan,
        journal: CheckerJournal,
        *,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._source, self._plan, self._journal = source, plan, journal
        self._asking = ReplyRounds(source, writer, plan, generator_prompt, say=say)

    def ask(self, watch: Watch) -> int:
        """Request all missing replies, and return their number. Raises UserError if every request failed."""
        open_ = {p.id: digest_of(p) for p in open_problems(self._source) if is_open_to_tests(p)}
        for attempt in range(self._plan.n):
            self._asking.ask(self._journal, open_, open_, attempt, watch)
        self._asking.check(self._journal)
        return len(open_)

    def inputs(self, problem: Problem, answers: Answers) -> list[str | list[Any]]:
        """Return the inputs of a problem's generators."""
        digest = digest_of(problem)
        found: list[str | list[Any]] = []
        for attempt in range(self._plan.n):
            source = generator_in_reply(self._journal.replies.get((problem.id, digest, attempt), ""))
            if source:
                found += generated_inputs(source, answers)
        return found
