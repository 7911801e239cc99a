"""From a problem to a prompt, in text, and from there to tokens: template, chat form, the reply's start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct, structs

from whetstone.errors import UserError
from whetstone.judge.instruction import instruction
from whetstone.problem import Problem, shown
from whetstone.workflow.official_prompts import OFFICIAL_PROMPTS
from whetstone.workflow.settings import WorkflowSection, placeholders

THINK_ANSWER = (
    "Think first, inside <think> and </think>. Then give the program in a fenced Python block "
    "inside <answer> and </answer>."
)


class Prompt(Struct, frozen=True):
    """A problem as it is put to a model, in text.

    ``user`` is the whole text that the model continues or, with ``chat``, the user's turn after
    ``system``. The reply is given ``prefix`` to start with.
    """

    user: str
    prefix: str
    chat: bool
    system: str | None = None

    def messages(self) -> list[dict[str, str]]:
        """The turns of a chat; the reply's prefix is not among them."""
        turns = [{"role": "system", "content": self.system}] if self.system else []
        return [*turns, {"role": "user", "content": self.user}]


class Tokenizer(Protocol):
    """What a prompt needs of a Hugging Face tokenizer."""

    chat_template: Any

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Text to token ids."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Token ids to text."""
        ...

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> Any:
        """A conversation as the text the model was trained on."""
        ...


def reply_prefix(problem: Problem, settings: WorkflowSection) -> str:
    """What the reply is given to start with.

    A starter loses its last newline: tokenizers join a newline with the indentation after it, so a
    model that is given the bare newline continues it badly.
    """
    return settings.prefix.replace("{starter}", (problem.starter or "").rstrip())


def prompt_of(problem: Problem, settings: WorkflowSection) -> Prompt:
    """The problem in the form that the settings ask for.

    Raises UserError where the prompt would not show the statement, and where it needs an example that is not
    there.
    """
    user = _shots(problem, settings) + _question(problem, settings)
    prefix = reply_prefix(problem, settings)
    if not settings.chat:
        return Prompt(user, prefix, chat=False)
    system = settings.system
    if settings.answer_format == "think_answer":
        system = f"{system}\n\n{THINK_ANSWER}" if system else THINK_ANSWER
    return Prompt(user, prefix, chat=True, system=system)


def _question(problem: Problem, settings: WorkflowSection) -> str:
    official = OFFICIAL_PROMPTS.get(settings.prompt)
    if official is not None:
        return official.text(problem.statement, problem.starter or "")
    _check_shown(problem, settings.prompt)
    return settings.prompt.format(
        problem=shown(problem),
        statement=problem.statement,
        starter=problem.starter or "",
        instruction=instruction(problem),
    )


def _shots(problem: Problem, settings: WorkflowSection) -> str:
    """The examples that are like the problem, each in the words of the question and with its answer."""
    official = OFFICIAL_PROMPTS.get(settings.prompt)
    shots = [shot for shot in settings.shots if bool(shot.starter) == bool(problem.starter)]
    if official is not None and official.answered is not None:
        if not shots:
            kind = "with" if problem.starter else "without"
            raise UserError(
                f"`{settings.prompt}` shows an example before problem {problem.id!r}, and none is given "
                f"that is {kind} code to start from, as this is: give --shots or `workflow.shots`"
            )
        return "".join(official.answered(shot.statement, shot.starter, shot.answer) for shot in shots)
    texts: list[str] = []
    for shot in shots:
        example = structs.replace(problem, statement=shot.statement, starter=shot.starter or None)
        words = {"problem": shown(example), "statement": shot.statement, "starter": shot.starter}
        question = settings.prompt.format(**words, instruction="").rstrip()
        texts.append(f"{question}\n\n{shot.answer}\n\n")
    return "".join(texts)


def _check_shown(problem: Problem, template: str) -> None:
    """A prompt with the starter alone is for starters that tell the task: those of HumanEval hold the
    statement, those of BigCodeBench a docstring in other words."""
    if placeholders(template) & {"problem", "statement"}:
        return
    starter = problem.starter or ""
    if _words(problem.statement) not in _words(starter) and not any(q in starter for q in ('"""', "'''")):
        raise UserError(
            f"`workflow.prompt` shows {{starter}} alone, and the starter of problem {problem.id!r} does not "
            "hold its statement; write {problem}, or {statement}"
        )


def _words(text: str) -> str:
    return " ".join(text.split())


def rendered(prompt: Prompt, tokenizer: Tokenizer) -> str:
    """The whole text the model continues, the reply's given prefix included.

    Raises UserError for a chat on a model whose tokenizer has no chat template.
    """
    if not prompt.chat:
        return prompt.user + prompt.prefix
    if not tokenizer.chat_template:
        raise UserError("this model has no chat template; set `workflow.chat: false` (--no-chat)")
    text = tokenizer.apply_chat_template(prompt.messages(), tokenize=False, add_generation_prompt=True)
    return str(text) + prompt.prefix


_REPLY = "the reply stands here"


def turned(prompt: Prompt, said: str, tokenizer: Tokenizer) -> str:
    """The text between a reply to ``prompt`` and the next one, when ``said`` is said to it: the end of the
    turn as the chat template writes it, the new turn, and the prefix that replies are given."""
    if not prompt.chat:
        return f"\n{said}\n{prompt.prefix}"
    turns = [*prompt.messages(), {"role": "assistant", "content": _REPLY}, {"role": "user", "content": said}]
    text = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    return text.rpartition(_REPLY)[2] + prompt.prefix


def encoded(prompt: Prompt, tokenizer: Tokenizer) -> list[int]:
    """The prompt as token ids."""
    # A chat template already holds the special tokens; a plain text gets the tokenizer's own.
    return tokenizer.encode(rendered(prompt, tokenizer), add_special_tokens=not prompt.chat)


def check_length(problem: Problem, ids: Sequence[int], most: int) -> None:
    """Raise UserError when a problem's prompt has more tokens than ``most``."""
    if len(ids) > most:
        raise UserError(
            f"problem {problem.id!r}: the prompt has {len(ids)} tokens, more than "
            f"`workflow.max_prompt_tokens` = {most}"
        )
