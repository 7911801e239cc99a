"""The environment of one reply: the program in it is judged and rewarded."""

from __future__ import annotations

import ast
import asyncio
import re
import textwrap
from collections.abc import Mapping

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.problem import COMPLETES_STARTER, AssertTests, NoTests, Problem, Program
from whetstone.core.sample import Sample
from whetstone.core.syntax import NotPython, is_well_placed, parse, parsed, symbols
from whetstone.core.verdict import Judgement, Verdict
from whetstone.environments.conversation import Conversation, Reply
from whetstone.environments.environment import Environment
from whetstone.environments.episode import Episode, Rollout
from whetstone.environments.prompt import Prompt
from whetstone.environments.prompt_text import prompt_of, reply_prefix
from whetstone.environments.reward_function import plugin_reward
from whetstone.environments.settings import EnvironmentSection, Reward
from whetstone.judge.extract import extract_program, names_called, strip_thinking

_FUTURE = re.compile(r"^from[ \t]++__future__[ \t]++import[^\n]*+\n?", re.MULTILINE)


# The length in characters up to which the completion of a starter is parsed, in up to six readings. The
# functions of benchmarks have a few thousand.
_LONGEST_COMPLETION = 20_000


def assemble(problem: Problem, code: str) -> str:
    """Return the program to judge for the ``code`` extracted from a reply.

    Code that defines what the tests call gets the starter's text before that definition (imports, helpers);
    its own definitions override those. Other code is treated as the function's body, and is cut at the first
    line that leaves the function. Empty code stays empty.
    """
    starter = problem.starter
    if not (problem.meta.get(COMPLETES_STARTER) and starter and code.strip()):
        return code
    names = names_called(problem)
    if not isinstance(problem.tests, AssertTests) or not names:
        return code
    definition = _definition_of(names)
    if _defines(code, names, definition):
        return _with_prelude(starter, definition, code)
    return _with_body(starter, code)


def _definition_of(names: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"^(?:async\s+def|def|class)\s+(?:{'|'.join(names)})\b", re.MULTILINE)


def _defines(code: str, names: frozenset[str], definition: re.Pattern[str]) -> bool:
    """Return whether the code binds one of ``names`` at top level; judged by its text if it does not
    parse."""
    tree = parsed(code) if len(code) <= _LONGEST_COMPLETION else None
    if tree is None:
        return definition.search(code) is not None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in names:
            return True
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id in names for target in node.targets
        ):
            return True
    return False


def _with_prelude(starter: str, definition: re.Pattern[str], code: str) -> str:
    # A starter may only contain what the site predefines: imports, and classes such as tree nodes.
    found = definition.search(starter)
    prelude = (starter[: found.start()] if found else starter).strip("\n")
    if not prelude.strip():
        return code
    # Only a program's first statement may be a __future__ import.
    futures = "".join(line.rstrip("\n") + "\n" for line in (m[0] for m in _FUTURE.finditer(code)))
    return f"{futures}{prelude}\n\n{_FUTURE.sub('', code) if futures else code}"


def _with_body(starter: str, code: str) -> str:
    """Return the starter with the first reading of ``code`` as a body that compiles, else both
    concatenated."""
    head = starter if starter.endswith("\n") else starter + "\n"
    if len(code) > _LONGEST_COMPLETION:
        return head + code
    first, _, rest = code.lstrip("\n").partition("\n")
    readings = [code.lstrip("\n")]
    if not first.startswith((" ", "\t")):
        readings = [f"    {first}\n{rest}", textwrap.indent(textwrap.dedent(code), "    ")]
    # Try complete readings first, so that no code is cut off if another reading keeps all of it.
    for body in (*readings, *map(_indented_part, readings)):
        if body.strip() and _compiles(head + body):
            return head + body
    return head + code


def _indented_part(body: str) -> str:
    kept: list[str] = []
    for line in body.splitlines(keepends=True):
        if line.strip() and not line.startswith((" ", "\t")):
            break
        kept.append(line)
    return "".join(kept)


def _compiles(code: str) -> bool:
    # The placement also tells of `return` outside a function, the result of a body with lost indentation.
    try:
        tree = parse(code)
        symbols(code)
    except NotPython:
        return False
    return is_well_placed(tree)


_ANSWER_FOLLOWS = re.compile(r"\s*+<answer>")


def program_of(problem: Problem, settings: EnvironmentSection, reply: str) -> str | None:
    """Return the program to judge for a reply (without prefix), or None if it has no program or the wrong
    form.

    If replies continue the problem's starter, ``assemble`` completes the program.
    """
    text: str | None = reply_prefix(problem, settings) + reply
    text = _think_answer(text) if settings.answer_format == "think_answer" else strip_thinking(text)
    if text is None:
        return None
    names = names_called(problem)
    code = extract_program(text, settings.extraction, problem.language, names)
    is_indented = text.lstrip("\n").startswith((" ", "\t"))
    if (is_indented or code is None) and text.strip() and _continues_starter(problem, settings):
        # A model that goes on may write the function once more, and not finish it.
        return _with_body(problem.starter or "", _definition_of(names).split(text, 1)[0])
    return None if code is None else assemble(problem, code)


def _continues_starter(problem: Problem, settings: EnvironmentSection) -> bool:
    """Return whether the prompt is plain text that ends with the starter, so that replies are its body."""
    starter = (problem.starter or "").strip()
    if settings.chat or settings.prefix or settings.extraction != "program" or not starter:
        return False
    shown = problem.meta.get(COMPLETES_STARTER) and prompt_of(problem, settings).user
    return bool(shown) and shown.rstrip().endswith(starter)


def _think_answer(text: str) -> str | None:
    """Return the answer of ``<think>…</think> <answer>…</answer>`` without other text around it; None for
    another form."""
    text = text.strip()
    if not (text.startswith("<think>") and text.endswith("</answer>")):
        return None
    at = len("<think>")
    while (end := text.find("</think>", at)) >= 0:
        # Take the first closing tag that is followed by an answer: the thinking may quote the tag.
        at = end + len("</think>")
        if answer := _ANSWER_FOLLOWS.match(text, at):
            last = len(text) - len("</answer>")
            return text[answer.end() : last] if answer.end() <= last else None
    return None


class Outcome(Struct, frozen=True):
    """The result of a reply: its program, the verdict, the reward, and whether it is right; each is None if
    there is none.

    ``accepted`` is None if a verdict does not count.
    """

    program: str | None = None
    judgement: Judgement | None = None
    reward: float | None = None
    accepted: bool | None = None

    @property
    def rejected(self) -> bool:
        """Whether the reply is wrong."""
        return self.accepted is False


class SingleTurn(Environment):
    """One reply, which is rewarded by the verdict on its program.

    Subclasses override ``program_of`` or ``judge`` for other rules, or ``score`` for a reward without tests.
    """

    def __init__(self, settings: EnvironmentSection) -> None:
        self.settings = settings
        # A reward by fraction, or by a function, depends on every case.
        self.needs_all_cases = isinstance(settings.reward, str) and settings.reward != "all"

    def prompt(self, problem: Problem) -> Prompt | None:
        """See Environment."""
        return prompt_of(problem, self.settings)

    def check(self, problem: Problem) -> None:
        """See Environment. Raises UserError for a problem without tests, if programs are judged."""
        if isinstance(problem.tests, NoTests) and type(self).score is SingleTurn.score:
            raise UserError(
                f"problem {problem.id!r} has no tests, so no program can be judged; set `environment.kind` "
                "of a recipe to an environment that scores answers (`repository` for a task with a code "
                "base), or leave the problem out"
            )

    def program_of(self, problem: Problem, reply: str) -> str | None:
        """Return the program to judge for a reply (without prefix, with thinking); None if it has none."""
        return program_of(problem, self.settings, reply)

    async def judge(self, episode: Episode, program: Program) -> Judgement:
        """Return the verdict on a program; NO_CODE for a blank one."""
        return await episode.judge(program)

    async def score(self, episode: Episode, reply: Reply) -> Outcome:
        """Judge and reward a reply. A reply without a program is judged as a blank program, and a failed one
        gets no verdict."""
        if reply.finish_reason == "failed":
            return Outcome()
        problem = episode.problem
        # Extraction from a long reply takes about 0.1 s. A thread keeps the event loop responsive.
        program = await asyncio.to_thread(self.program_of, problem, reply.text)
        judgement = await self.judge(episode, Program(problem.language, program or ""))
        reward = reward_of(problem, reply.text, judgement, self.settings.reward)
        accepted = None if judgement.score is None else judgement.accepted
        return Outcome(program, judgement, reward, accepted)

    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        """See Environment."""
        conversation = await episode.begin()
        outcome = await self.score(episode, conversation.reply)
        return Rollout({self.models[0]: [sample_of(conversation, outcome)]})


def sample_of(
    conversation: Conversation,
    outcome: Outcome,
    metrics: Mapping[str, float] | None = None,
    *,
    first_turn: int = 0,
) -> Sample:
    """Return the sample of a conversation with this outcome; see ``Conversation.sample``."""
    return conversation.sample(
        reward=outcome.reward,
        accepted=outcome.accepted,
        program=outcome.program,
        judgement=outcome.judgement,
        metrics=metrics,
        first_turn=first_turn,
    )


def reward_of(problem: Problem, reply: str, judgement: Judgement | None, rule: Reward) -> float | None:
    """Return the reward of a reply; None without a verdict that counts (failed reply, failed judge, forgeable
    verdict)."""
    if judgement is None or judgement.score is None:
        return None
    if rule == "fraction":
        return judgement.score
    if rule == "all":
        return float(judgement.accepted)
    if isinstance(rule, str):
        return plugin_reward(rule, problem, reply, judgement)
    if judgement.verdict is Verdict.NO_CODE:
        return rule.bad_format
    return rule.accepted if judgement.accepted else rule.failed
