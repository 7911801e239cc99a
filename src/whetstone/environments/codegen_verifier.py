"""An environment of two models: one writes programs, the other writes test cases that tell whether a program
is right.

Both are trained on the same episodes. The real tests reward the coder. The verifier is rewarded if the
reference passes its cases, and if the cases agree with the real tests about the coder's program.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Struct
from msgspec.structs import replace
from pydantic import Field, field_validator, model_validator

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, Program, Scoring, StdinTests
from whetstone.core.sample import Sample
from whetstone.core.settings import NonEmpty, Section
from whetstone.core.verdict import Judgement, Verdict, is_fault_of_tests
from whetstone.environments.conversation import Conversation
from whetstone.environments.episode import Episode, ProgramJudge, Rollout
from whetstone.environments.feedback import describe_verdict
from whetstone.environments.generated_cases import (
    CASE_ERRORS,
    GeneratedTests,
    InvalidCases,
    as_text,
    can_generate,
    case_format,
    read_cases,
    without_examples,
)
from whetstone.environments.prompt import Prompt
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import Outcome, SingleTurn, sample_of

CODER, VERIFIER = "coder", "verifier"
_LIMIT_VERDICTS = (Verdict.TIME_LIMIT, Verdict.MEMORY_LIMIT, Verdict.OUTPUT_LIMIT)
_NOT_RUN = (Verdict.NO_CODE, Verdict.COMPILE_ERROR)

_MOST_CASE_CHARACTERS = 1000
# Wrong programs that cases are tried on if they accept a right one. Each costs a run of all cases.
_MOST_KNOWN_WRONG = 8
_PLACEHOLDERS = re.compile(r"\{(count|form|statement|program)\}")

VERIFIER_PROMPT = """{statement}

This program is meant to solve the problem:

```python
{program}
```

Find out whether it is right: write exactly {count} test cases, with inputs that the problem allows and the
outputs that a right program gives for them. A good case is one that a wrong program fails. Take no example
of the problem, and no input twice. Reply with one JSON object in a json code block, of this form:

{form}
"""


class VerifierOptions(Section):
    """One model writes programs, and another writes the test cases for them; see docs/environments.md.

    variant: ``v3``, or ``astraflow_v2`` with the rules of AstraFlow's recipe.
    valid_pays: v3 only: the reward of valid cases that do not diagnose the program. Cases that diagnose it
        get 1.
    cases: the number of cases of a reply.
    max_bytes: the most bytes of all its cases.
    prompt: of the verifier; filled in are ``{statement}``, ``{program}``, ``{count}`` and ``{form}``.
    prefix: text with which its reply starts.
    again: the message to the coder about cases that its program fails; ``{cases}`` is filled in.
    """

    variant: Literal["v3", "astraflow_v2"] = "v3"
    valid_pays: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    cases: Annotated[int, Field(ge=1, le=16)] = 2
    max_bytes: Annotated[int, Field(ge=64, le=1_000_000)] = 20_000
    prompt: NonEmpty = VERIFIER_PROMPT
    prefix: str = ""
    again: NonEmpty = "{cases}\n\nThe program fails these tests. Mend it, and reply with all of it again."

    @field_validator("prompt")
    @classmethod
    def _check_statement(cls, prompt: str) -> str:
        if "{statement}" not in prompt:
            raise ValueError("it must contain `{statement}`: the verifier needs it to write cases")
        return prompt

    @model_validator(mode="after")
    def _check_valid_reward(self) -> VerifierOptions:
        if self.variant != "v3" and self.valid_pays != 0.5:
            raise ValueError("`valid_pays` needs `variant: v3`; the other variant gives 1 for valid cases")
        return self


@dataclass
class _Exchange:
    """The course of an episode: the coder's first program and its verdict, the verifier's reply and the trial
    of its cases, and the retry."""

    outcome: Outcome
    verifier: Sample | None = None
    tests: GeneratedTests | None = None
    case_error: str = ""
    trial: VerifierTrial | None = None
    retry: Sample | None = None


class CodegenVerifier(SingleTurn):
    """Coder and verifier. The coder's first reply is that of ``SingleTurn``, and the only one in an
    evaluation, which has no verifier.

    The coder's samples are first replies and retries. The verifier's samples are a reply for each program
    that ran, each with its own prompt.
    """

    Options = VerifierOptions
    models = (CODER, VERIFIER)

    def __init__(self, settings: EnvironmentSection, options: VerifierOptions) -> None:
        super().__init__(settings)
        self._options = options
        self._trials: CaseTrials | None = None
        if options.variant == "v3":
            self.smoke_obstacle = (
                "the verifier is rewarded for test cases only, and a smoke run plants none; set "
                "environment.options.variant=astraflow_v2"
            )

    def check(self, problem: Problem) -> None:
        """See Environment. Raises UserError for a problem whose cases cannot be written or checked."""
        if can_generate(problem) and problem.references:
            return
        needs = "a reference" if can_generate(problem) else "tests of kind `stdin`, or `call` of one function"
        raise UserError(
            f"problem {problem.id!r}: `environment.kind: codegen_verifier` needs {needs}; leave such "
            "problems out of `data.train`"
        )

    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        """See Environment."""
        conversation = await episode.begin()
        exchange = _Exchange(await self.score(episode, conversation.reply))
        accepted = {"first_accepted": float(exchange.outcome.accepted is True)}
        coder = [sample_of(conversation, exchange.outcome, accepted)]
        if VERIFIER not in episode.models:
            return Rollout({CODER: coder})
        if has_verdict(exchange.outcome.judgement):
            await self._ask_verifier(problem, exchange, episode)
        if exchange.verifier is not None and self._wants_retry(exchange):
            await self._try_again(exchange, episode, conversation)
        coder += [exchange.retry] if exchange.retry is not None else []
        verifier = [exchange.verifier] if exchange.verifier is not None else []
        return Rollout({CODER: coder, VERIFIER: verifier}, exchange)

    async def finish_group(
        self, problem: Problem, rollouts: Sequence[Rollout], judge: ProgramJudge
    ) -> Sequence[Rollout]:
        """See Environment. Rewards the verifier, whose cases are also tried on programs of other episodes."""
        coder = [sample for rollout in rollouts for sample in rollout.samples[CODER]]
        wrong = self._known_wrong_programs(problem, coder)
        return await asyncio.gather(*(self._with_reward(problem, each, wrong, judge) for each in rollouts))

    async def _with_reward(
        self, problem: Problem, rollout: Rollout, wrong: Sequence[Program], judge: ProgramJudge
    ) -> Rollout:
        exchange = rollout.state
        assert isinstance(exchange, _Exchange)
        if exchange.verifier is None:
            return rollout
        rewarded = await self._verifier_sample(problem, exchange, wrong, judge)
        return Rollout({**rollout.samples, VERIFIER: [rewarded]}, exchange)

    def _trials_with(self, judge: ProgramJudge) -> CaseTrials:
        # One for all episodes: it caches each problem's reference.
        self._trials = self._trials or CaseTrials(judge)
        return self._trials

    async def _try_again(self, exchange: _Exchange, episode: Episode, conversation: Conversation) -> None:
        """Send the results of the cases to the coder. Its new reply is a sample of its own."""
        again = await conversation.send(self._case_results(exchange))
        if again is None:
            return
        outcome = await self.score(episode, again)
        accepted = {"retry_accepted": float(outcome.accepted is True)}
        exchange.retry = sample_of(conversation, outcome, accepted, first_turn=1)

    async def _ask_verifier(self, problem: Problem, exchange: _Exchange, episode: Episode) -> None:
        """Request cases for a program, and try them."""
        prompt = self.verifier_prompt(problem, exchange.outcome.program or "")
        try:
            conversation = await episode.begin(prompt, model=VERIFIER)
        except UserError:  # the program is too long to be shown
            return
        exchange.verifier = conversation.sample(reward=None)
        if conversation.reply.finish_reason == "failed":
            return
        try:
            # Reading a long reply takes a moment. A thread keeps the event loop responsive.
            text = prompt.prefix + conversation.reply.text
            exchange.tests = await asyncio.to_thread(self._read_cases, text, problem)
        except InvalidCases as error:
            exchange.case_error = str(error)
            return
        exchange.trial = await self._trials_with(episode.program_judge).try_cases(
            problem,
            exchange.tests,
            exchange.outcome.program,
            exchange.outcome.judgement,
            even_if_invalid=self._options.variant == "astraflow_v2",
        )

    def verifier_prompt(self, problem: Problem, program: str) -> Prompt:
        """Return the verifier's prompt about a program."""
        options = self._options
        words = {
            "count": str(options.cases),
            "form": case_format(problem),
            # A verifier that sees the examples copies them.
            "statement": without_examples(problem.statement),
            "program": program.strip("\n"),
        }
        # str.format would fail on the braces of statements and programs. One pass, so that inserted text is
        # not searched for placeholders.
        text = _PLACEHOLDERS.sub(lambda place: words[place[1]], options.prompt)
        return Prompt(text, options.prefix, chat=self.settings.chat)

    def _read_cases(self, text: str, problem: Problem) -> GeneratedTests:
        """Return the cases of a reply. Raises InvalidCases."""
        options = self._options
        tests = read_cases(text, problem, count=options.cases, most_bytes=options.max_bytes)
        if options.variant == "astraflow_v2" and isinstance(tests, StdinTests):
            # AstraFlow's rule: no input has fewer lines than the problem's longest input.
            assert isinstance(problem.tests, StdinTests)
            longest = max(case.input.strip().count("\n") for case in problem.tests.cases)
            if any(case.input.strip().count("\n") < longest for case in tests.cases):
                raise InvalidCases("lines")
        return tests

    def _wants_retry(self, exchange: _Exchange) -> bool:
        if self._options.variant == "astraflow_v2":
            return exchange.tests is not None and not (
                exchange.trial is not None and exchange.trial.accepts_program
            )
        return exchange.trial is not None and exchange.trial.valid is True and exchange.trial.rejects_program

    def _case_results(self, exchange: _Exchange) -> str:
        """Return the generated cases and their results, as a message to the coder."""
        assert exchange.tests is not None
        judgement = None if exchange.trial is None else exchange.trial.judgement
        cases = judgement.cases if judgement else []
        results = {case.index: describe_verdict(case.verdict) for case in cases}
        lines = [
            f"Input: {text[:_MOST_CASE_CHARACTERS]}\nExpected: {expected[:_MOST_CASE_CHARACTERS]}\n"
            f"Result: {results.get(index, 'not known')}"
            for index, (text, expected) in enumerate(as_text(exchange.tests))
        ]
        return self._options.again.replace("{cases}", "\n\n".join(lines))

    def _known_wrong_programs(self, problem: Problem, coder: Sequence[Sample]) -> list[Program]:
        """Return distinct programs that the real tests reject: first those of the problem, then the
        coder's."""
        sources = [program for program in problem.wrong if program.language == problem.language]
        sources += [
            Program(problem.language, sample.program)
            for sample in coder
            if sample.program and has_verdict(sample.judgement) and not sample.accepted
        ]
        return list(dict.fromkeys(sources))[:_MOST_KNOWN_WRONG]

    async def _verifier_sample(
        self, problem: Problem, exchange: _Exchange, wrong: Sequence[Program], judge: ProgramJudge
    ) -> Sample:
        """Return the verifier's sample with its reward and metrics of its cases."""
        sample, trial, truth = exchange.verifier, exchange.trial, exchange.outcome.judgement
        assert sample is not None
        assert truth is not None
        # If the engine or the sandbox failed, or no reference is right, the verifier is not at fault: it gets
        # no reward. Defective cases are its fault, also those on which the problem's checker fails.
        if sample.finish_reason == "abort" or (trial is not None and trial.valid is None):
            return sample
        valid = trial is not None and trial.valid is True
        metrics = {"cases_valid": float(valid)} | {
            f"cases_{error}": float(exchange.case_error == error) for error in CASE_ERRORS
        }
        if self._options.variant == "astraflow_v2":
            solved = exchange.outcome.accepted if exchange.retry is None else exchange.retry.accepted
            return sample.with_metrics(metrics, float(solved is True) + float(valid))
        correct = False
        if trial is not None and exchange.tests is not None and valid:
            discriminates = not (
                truth.accepted and trial.accepts_program and wrong
            ) or await self._trials_with(judge).reject_any(problem, exchange.tests, wrong)
            if discriminates is None:
                return sample
            correct = diagnosis_correct(trial, truth, discriminates=discriminates)
            metrics["cases_refuse"] = float(trial.rejects_program)
        metrics["cases_diagnose"] = float(correct)
        return sample.with_metrics(metrics, 1.0 if correct else self._options.valid_pays * float(valid))


class VerifierTrial(Struct, frozen=True):
    """The result of a program's cases.

    valid: whether the reference passes them; None if the sandbox failed, or no correct reference is known.
    accepts_program: the program passes them. rejects_program: the program fails them by an answer, not only
    by a limit. judgement: of the program, by these cases.
    """

    valid: bool | None
    accepts_program: bool = False
    rejects_program: bool = False
    judgement: Judgement | None = None


class CaseTrials:
    """Tries generated cases with a judge. It caches each problem's reference."""

    def __init__(self, judge: ProgramJudge) -> None:
        self._judge = judge
        self._references: dict[str, asyncio.Task[Program | None]] = {}

    async def reference(self, problem: Problem) -> Program | None:
        """Return the first reference that passes all tests of its problem; None if there is none, or no
        verdict.

        It is judged once for each problem, unless the judge failed.
        """
        known = self._references.get(problem.id)
        if known is None:
            known = self._references[problem.id] = asyncio.ensure_future(self._accepted_reference(problem))
        # Several episodes of a problem wait for this task. If one of them is cancelled, the task must
        # continue.
        return await asyncio.shield(known)

    async def try_cases(
        self,
        problem: Problem,
        tests: GeneratedTests,
        program: str | None,
        truth: Judgement | None,
        *,
        even_if_invalid: bool = False,
    ) -> VerifierTrial:
        """Try cases on the reference, then on the program. ``truth``: the verdict of the real tests.
        ``even_if_invalid``: try the program even if the reference fails the cases."""
        reference = await self.reference(problem)
        if reference is None:
            return VerifierTrial(None)
        valid = passes(await self._judge_by_cases(problem, tests, reference))
        if program is None or truth is None or not (valid or (valid is False and even_if_invalid)):
            return VerifierTrial(valid)
        judgement = await self._judge_by_cases(problem, tests, Program(problem.language, program))
        if passes(judgement) is None:
            return VerifierTrial(None)
        if judgement is None:
            return VerifierTrial(valid)
        return VerifierTrial(valid, judgement.accepted, rejects(judgement, truth), judgement)

    async def reject_any(
        self, problem: Problem, tests: GeneratedTests, wrong: Sequence[Program]
    ) -> bool | None:
        """Return whether the cases reject at least one of the programs, which are known to be wrong; None if
        the sandbox failed."""
        unknown = False
        for program in wrong:
            found = await self._judge_by_cases(problem, tests, program)
            if found is not None and rejects(found, None):
                return True
            unknown |= passes(found) is None
        return None if unknown else False

    async def _accepted_reference(self, problem: Problem) -> Program | None:
        for program in problem.references:
            judgement = await self._judge.judge(problem, program)
            if judgement.accepted:
                return program
            if judgement.verdict is Verdict.JUDGE_ERROR:
                del self._references[problem.id]
                return None
        return None

    async def _judge_by_cases(
        self, problem: Problem, tests: GeneratedTests, program: Program
    ) -> Judgement | None:
        """Return the verdict by generated cases alone; None for cases that no program can take as input."""
        generated = replace(problem, tests=tests, scoring=Scoring())
        try:
            return await self._judge.judge(generated, program, stop_at_first_failure=False)
        except UserError:
            return None


def has_verdict(truth: Judgement | None) -> bool:
    """Return whether a program has run, so that cases can be compared with its verdict."""
    return truth is not None and truth.score is not None and truth.verdict not in _NOT_RUN


def passes(found: Judgement | None) -> bool | None:
    """Return whether a program passes generated cases; None if the sandbox failed.

    Their author answers for the cases. So a program fails cases that it cannot take (``found`` is
    None), and cases on which the problem's checker fails: the verdict of such cases is not unknown.
    """
    if found is None or found.verdict is not Verdict.JUDGE_ERROR:
        return found is not None and found.accepted
    settled = any(
        is_fault_of_tests(case) or case.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR)
        for case in found.cases
    )
    return False if settled else None


def rejects(found: Judgement, truth: Judgement | None) -> bool:
    """Return whether a verdict by cases shows that the program is wrong.

    A wrong answer and a crash show it. A limit shows it only if the real tests hit the same limit; otherwise
    huge inputs would reject programs without testing them.
    """
    verdicts = {case.verdict for case in found.cases}
    if verdicts & {Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR}:
        return True
    return truth is not None and truth.verdict in _LIMIT_VERDICTS and truth.verdict in verdicts


def diagnosis_correct(trial: VerifierTrial, truth: Judgement, *, discriminates: bool) -> bool:
    """Return whether valid cases agree with the real tests about the program.

    An approval also needs ``discriminates``: the cases reject some program that is known to be wrong, if one
    is known.
    """
    return trial.valid is True and (
        trial.accepts_program and discriminates if truth.accepted else trial.rejects_program
    )
