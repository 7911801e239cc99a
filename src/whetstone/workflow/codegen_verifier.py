"""Two models: one writes programs, the other writes test cases that tell whether a program is right.

Both learn from one episode. The coder is paid by the real tests. The verifier is paid where the reference
passes its cases, and where these say of the coder's program what the real tests say.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from whetstone.errors import UserError
from whetstone.problem import Problem, Program, StdinTests
from whetstone.sample import Group, Sample
from whetstone.settings import stream_seed
from whetstone.workflow.episode import Asked, ProgramJudge, group_of
from whetstone.workflow.examples import without_examples
from whetstone.workflow.feedback import verdict_words
from whetstone.workflow.generated import (
    FAULTS,
    Generated,
    NoCases,
    as_text,
    can_generate,
    form_of,
    read_cases,
)
from whetstone.workflow.prompt import Prompt
from whetstone.workflow.replies import Reply, failed
from whetstone.workflow.settings import WorkflowSection
from whetstone.workflow.shipped import CODER, VERIFIER, VerifierOptions
from whetstone.workflow.single_turn import SingleTurn, sample_of
from whetstone.workflow.verifying import CaseTrials, Trial, can_be_tried, diagnosed

_SHOWN_CASE = 1000
_PLACES = re.compile(r"\{(count|form|statement|program)\}")


@dataclass
class _Exchange:
    """What came of one reply of the coder's: the verifier's sample, what its cases showed, the retry."""

    first: Sample
    verifier: Sample | None = None
    tests: Generated | None = None
    fault: str = ""
    trial: Trial | None = None
    retry: Sample | None = None


class CodegenVerifier(SingleTurn):
    """A ``Conversation`` of coder and verifier. The coder's first reply is that of ``SingleTurn``."""

    def __init__(self, settings: WorkflowSection, judge: ProgramJudge, options: VerifierOptions) -> None:
        super().__init__(settings, judge)
        self._options = options
        self._trials = CaseTrials(judge)

    def check(self, problem: Problem) -> None:
        """See Conversation: a problem that cases cannot be written for, or not checked."""
        if can_generate(problem) and problem.references:
            return
        needs = "a reference" if can_generate(problem) else "tests of kind `stdin`, or `call` of one function"
        raise UserError(
            f"problem {problem.id!r}: `workflow.kind: codegen_verifier` needs {needs}; leave such problems "
            "out of `data.train`"
        )

    async def groups(self, problem: Problem, asked: Asked) -> dict[str, Group]:
        """See Conversation. A group of the coder holds first replies and retries, in the order of the first
        ones; one of the verifier a reply for each program that ran, each to a prompt of its own."""
        prompt = self.prompt(problem)
        prompt_ids, drawn = asked.replies[CODER].draw(problem, prompt, n=asked.n, seed=asked.seed)
        asked.pace.enter(asked.n)
        async with asyncio.TaskGroup() as tasks:
            found = {
                reply.index: tasks.create_task(self._exchange(problem, prompt, prompt_ids, reply, asked))
                async for reply in drawn
            }
        exchanges = [found[index].result() for index in sorted(found)]
        coder = [sample for one in exchanges for sample in (one.first, one.retry) if sample is not None]
        wrong = self._known_wrong(problem, coder)
        paid = (self._paid(problem, one, wrong) for one in exchanges if one.verifier is not None)
        verifier = await asyncio.gather(*paid)
        if not verifier:
            verifier = [_nothing("no program of the coder's could be run")]
        return {
            CODER: group_of(problem, prompt_ids, coder),
            VERIFIER: group_of(problem, verifier[0].prompt_ids or prompt_ids, verifier),
        }

    async def _exchange(
        self, problem: Problem, prompt: Prompt, prompt_ids: list[int], reply: Reply, asked: Asked
    ) -> _Exchange:
        with asked.pace.seat():
            first = await self.sample(problem, reply, **asked.options)
            done = _Exchange(replace(first, notes={"first_accepted": float(_right(first))}))
            if not can_be_tried(first.judgement):
                return done
            await asked.pace.turn(asked.draw, reply.index)
            await self._ask_verifier(problem, done, reply.index, asked)
            if done.verifier is None or not self._wants_retry(done):
                return done
            await asked.pace.turn(asked.draw, reply.index)
            before = [*prompt_ids, *first.response_ids]
            seed = stream_seed("retry", asked.seed, reply.index)
            found = await asked.replies[CODER].follow(prompt, before, self._told(done), seed=seed)
            if found is not None:
                between, again = found
                second = await self.sample(problem, again, **asked.options)
                done.retry = replace(
                    second,
                    prompt_ids=[*before, *between],
                    notes={"retry_accepted": float(_right(second))},
                )
            return done

    async def _ask_verifier(self, problem: Problem, done: _Exchange, index: int, asked: Asked) -> None:
        """Have cases written for a program, and try them."""
        replies, prompt = asked.replies[VERIFIER], self.verifier_prompt(problem, done.first.program or "")
        try:
            replies.check(problem, prompt)
        except UserError:  # the program is too long to be shown
            return
        seed = stream_seed("verifier", asked.seed, index)
        prompt_ids, drawn = replies.draw(problem, prompt, n=1, seed=seed)
        [reply] = [reply async for reply in drawn]
        done.verifier = replace(sample_of(reply, None, None, None), prompt_ids=prompt_ids)
        if reply.finish_reason == "failed":
            return
        try:
            done.tests = read_cases(
                prompt.prefix + reply.text,
                problem,
                count=self._options.cases,
                most_bytes=self._options.max_bytes,
            )
            self._check_lines(problem, done.tests)
        except NoCases as fault:
            done.fault, done.tests = str(fault), None
            return
        done.trial = await self._trials.tried(
            problem,
            done.tests,
            done.first.program,
            done.first.judgement,
            always=self._options.variant == "astraflow_v2",
        )

    def verifier_prompt(self, problem: Problem, program: str) -> Prompt:
        """What the verifier is asked about a program."""
        options = self._options
        words = {
            "count": str(options.cases),
            "form": form_of(problem),
            "statement": without_examples(problem.statement) if options.strip_examples else problem.statement,
            "program": program.strip("\n"),
        }
        # Not str.format, and all at once: statements and programs are full of braces.
        text = _PLACES.sub(lambda place: words[place[1]], options.prompt)
        return Prompt(text, options.prefix, chat=self._settings.chat)

    def _check_lines(self, problem: Problem, tests: Generated) -> None:
        """AstraFlow's rule: no input has fewer lines than the longest of the problem's own."""
        if self._options.variant != "astraflow_v2" or not isinstance(tests, StdinTests):
            return
        assert isinstance(problem.tests, StdinTests)
        longest = max(case.input.strip().count("\n") for case in problem.tests.cases)
        if any(case.input.strip().count("\n") < longest for case in tests.cases):
            raise NoCases("lines")

    def _wants_retry(self, done: _Exchange) -> bool:
        if self._options.variant == "astraflow_v2":
            return done.tests is not None and not (done.trial is not None and done.trial.approves)
        return done.trial is not None and done.trial.valid is True and done.trial.refuses

    def _told(self, done: _Exchange) -> str:
        """The generated cases, and how each went, for the coder to mend its program by."""
        assert done.tests is not None
        judgement = None if done.trial is None else done.trial.judgement
        went = {case.index: verdict_words(case.verdict) for case in judgement.cases} if judgement else {}
        lines = [
            f"Input: {given[:_SHOWN_CASE]}\nExpected: {expected[:_SHOWN_CASE]}\n"
            f"Result: {went.get(index, 'not known')}"
            for index, (given, expected) in enumerate(as_text(done.tests))
        ]
        return self._options.again.replace("{cases}", "\n\n".join(lines))

    def _known_wrong(self, problem: Problem, coder: Sequence[Sample]) -> list[Program]:
        """Programs that the real tests refuse: those of the problem, then the coder's, each once."""
        sources = [program for program in problem.wrong if program.language == problem.language]
        sources += [
            Program(problem.language, sample.program)
            for sample in coder
            if sample.program and can_be_tried(sample.judgement) and not _right(sample)
        ]
        return list(dict.fromkeys(sources))[: self._options.known_wrong]

    async def _paid(self, problem: Problem, done: _Exchange, wrong: Sequence[Program]) -> Sample:
        """The verifier's sample with its reward, and notes of what was right with it."""
        sample, trial, truth = done.verifier, done.trial, done.first.judgement
        assert sample is not None
        assert truth is not None
        unknown = sample.finish_reason == "abort" or (trial is not None and trial.valid is None)
        if unknown:
            return sample
        valid = trial is not None and trial.valid is True
        notes = {"cases_valid": float(valid)} | {
            f"cases_{fault}": float(done.fault == fault) for fault in FAULTS
        }
        if self._options.variant == "astraflow_v2":
            final = done.retry or done.first
            return sample.with_notes(notes, float(_right(final)) + float(valid))
        told = False
        if trial is not None and done.tests is not None and valid:
            teeth = not (truth.accepted and trial.approves and wrong) or await self._trials.has_teeth(
                problem, done.tests, wrong
            )
            told = diagnosed(trial, truth, teeth=teeth)
            notes["cases_refuse"] = float(trial.refuses)
        notes["cases_diagnose"] = float(told)
        return sample.with_notes(notes, 1.0 if told else self._options.valid_pays * float(valid))


def _right(sample: Sample) -> bool:
    return sample.judgement is not None and sample.judgement.accepted


def _nothing(why: str) -> Sample:
    return sample_of(failed(0, why), None, None, None)
