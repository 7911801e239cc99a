"""A prompt as text and as tokens, and the text between two replies of a conversation."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem

Message = dict[str, Any]
"""A message of a chat: ``role`` (system, user, assistant or tool) and ``content``, as in the OpenAI API."""


class Prompt(Struct, frozen=True):
    """The prompt of a conversation, as text.

    ``user`` is the whole text that the model continues or, with ``chat``, the user's turn after ``system``.
    The reply starts with ``prefix``. ``tools`` are the tools that the model may call, in the JSON form of the
    OpenAI API. ``dialogue`` are the messages of the chat, in place of ``system`` and ``user``.
    """

    user: str
    prefix: str
    chat: bool
    system: str | None = None
    tools: list[dict[str, Any]] = []
    dialogue: list[Message] = []

    def messages(self) -> list[Message]:
        """Return the turns of a chat, without the reply's prefix."""
        if self.dialogue:
            return list(self.dialogue)
        turns = [{"role": "system", "content": self.system}] if self.system else []
        return [*turns, {"role": "user", "content": self.user}]


class TemplateError(UserError):
    """The model's chat template does not support the messages or tools, or there is no template."""


class Tokenizer(Protocol):
    """The methods of a Hugging Face tokenizer that prompts need."""

    chat_template: Any

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Convert text to token ids."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Convert token ids to text."""
        ...

    def apply_chat_template(
        self, conversation: list[dict[str, Any]], *, tokenize: bool, add_generation_prompt: bool, **more: Any
    ) -> Any:
        """Return a conversation as text in the model's chat format."""
        ...


def render_prompt(prompt: Prompt, tokenizer: Tokenizer) -> str:
    """Return the whole text that the model continues, including the reply's prefix.

    Raises UserError for a chat prompt if the tokenizer has no chat template, or its template refuses the
    messages.
    """
    if not prompt.chat:
        return prompt.user + prompt.prefix
    if not tokenizer.chat_template:
        raise TemplateError("this model has no chat template; set `environment.chat: false` (--no-chat)")
    return _chat_text(prompt, prompt.messages(), tokenizer) + prompt.prefix


# Stands for the reply when the chat template is applied. The generated tokens are kept as they are, and only
# the text after the reply is needed. It is random, so that no message can contain it and hide text before it.
_REPLY_MARKER = secrets.token_hex(16)


def next_turn(prompt: Prompt, messages: Sequence[Message], tokenizer: Tokenizer) -> str:
    """Return the text between a reply to ``prompt`` and the next reply.

    It is the end of the turn as the chat template writes it, the new turns with ``messages``, and the prefix
    of replies. A template without a role for tools gets their output as a user's turn, in <tool_response>
    tags.
    """
    if not prompt.chat:
        return "".join(f"\n{as_user(message)['content']}" for message in messages) + f"\n{prompt.prefix}"
    reply = {"role": "assistant", "content": _REPLY_MARKER}
    before = [*prompt.messages(), reply]
    text = ""
    if any(message["role"] == "tool" for message in messages):
        try:
            text = _chat_text(prompt, [*before, *messages], tokenizer).rpartition(_REPLY_MARKER)[2]
        except UserError:
            text = ""
    # Some templates refuse tool messages, and others leave them out.
    if not text or not all(str(message["content"]) in text for message in messages):
        turns = [*before, *map(as_user, messages)]
        text = _chat_text(prompt, turns, tokenizer).rpartition(_REPLY_MARKER)[2]
    return text + prompt.prefix


def as_user(message: Message) -> Message:
    """Return a message of a tool as a message of the user; other messages are unchanged."""
    if message["role"] != "tool":
        return message
    return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}


def encode_prompt(prompt: Prompt, tokenizer: Tokenizer) -> list[int]:
    """Return the prompt as token ids."""
    # A chat template contains the special tokens. For plain text the tokenizer adds them.
    return tokenizer.encode(render_prompt(prompt, tokenizer), add_special_tokens=not prompt.chat)


def check_length(problem: Problem, ids: Sequence[int], most: int) -> None:
    """Raise UserError if a problem's prompt has more than ``most`` tokens."""
    if len(ids) > most:
        raise UserError(
            f"problem {problem.id!r}: the prompt has {len(ids)} tokens, more than "
            f"`environment.max_prompt_tokens` = {most}"
        )


def _chat_text(prompt: Prompt, turns: list[Message], tokenizer: Tokenizer) -> str:
    """Return a chat as text, with the prompt's tools. Raises UserError for messages that the template
    refuses."""
    plain = _apply_template(turns, tokenizer)
    if not prompt.tools:
        return plain
    with_tools = _apply_template(turns, tokenizer, tools=prompt.tools)
    if with_tools != plain:
        return with_tools
    # The template ignores tools, so the system message describes them.
    return _apply_template(_with_description(turns, prompt.tools), tokenizer)


def _apply_template(turns: list[Message], tokenizer: Tokenizer, **more: Any) -> str:
    try:
        return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **more))
    except Exception as error:
        # Templates refuse messages with an error of jinja2, and fail on tools of another form with any error.
        raise TemplateError(f"the model's chat template refuses these messages: {error}") from None


_DESCRIPTION = """You may call these tools:
<tools>
{tools}
</tools>
To call one, write a JSON object with its name and arguments in tags:
<tool_call>
{{"name": "the name", "arguments": {{"argument": "value"}}}}
</tool_call>"""


def describe_tools(tools: Sequence[dict[str, Any]]) -> str:
    """Return a text that tells a model which tools it may call, and how."""
    return _DESCRIPTION.format(tools="\n".join(json.dumps(tool) for tool in tools))


def _with_description(turns: list[Message], tools: Sequence[dict[str, Any]]) -> list[Message]:
    text = describe_tools(tools)
    if turns and turns[0]["role"] == "system":
        return [{**turns[0], "content": f"{turns[0]['content']}\n\n{text}"}, *turns[1:]]
    return [{"role": "system", "content": text}, *turns]
