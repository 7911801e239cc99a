"""From a problem to a prompt, in text, and from there to tokens: template, chat form, the reply's start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from whetstone.errors import UserError
from whetstone.judge.instruction import instruction
from whetstone.problem import Problem
from whetstone.workflow.settings import WorkflowSection

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


def shown(problem: Problem) -> str:
    """The statement, and the code that the program has to start from below it, unless it stands in it."""
    starter = (problem.starter or "").rstrip()
    if not starter or starter in problem.statement:
        return problem.statement
    return f"{problem.statement.rstrip()}\n\nStart from this code:\n\n```{problem.language}\n{starter}\n```"


def reply_prefix(problem: Problem, settings: WorkflowSection) -> str:
    """What the reply is given to start with.

    A starter loses its last newline: tokenizers join a newline with the indentation after it, so a
    model that is given the bare newline continues it badly.
    """
    return settings.prefix.replace("{starter}", (problem.starter or "").rstrip())


def prompt_of(problem: Problem, settings: WorkflowSection) -> Prompt:
    """The problem in the form that the settings ask for. Raises UserError for an unknown placeholder."""
    try:
        user = settings.prompt.format(
            problem=shown(problem),
            statement=problem.statement,
            starter=problem.starter or "",
            instruction=instruction(problem),
        )
    except (KeyError, IndexError, ValueError) as error:
        raise UserError(
            f"`workflow.prompt`: cannot fill in {error}; the placeholders are "
            "{problem}, {statement}, {starter} and {instruction}, and a literal brace is doubled"
        ) from None
    prefix = reply_prefix(problem, settings)
    if not settings.chat:
        return Prompt(user, prefix, chat=False)
    system = settings.system
    if settings.answer_format == "think_answer":
        system = f"{system}\n\n{THINK_ANSWER}" if system else THINK_ANSWER
    return Prompt(user, prefix, chat=True, system=system)


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
