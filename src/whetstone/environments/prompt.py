"""A prompt as text and as tokens, and the text between two replies of a conversation."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.environments.formats.family import chat_settings

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
    # The messages of an agent may have roles in any order. Those of the environment must fit the template.
    shapes = _SHAPES if prompt.dialogue else _SHAPES[:1]
    return _first_whole_text(prompt, [], prompt.messages(), tokenizer, shapes) + prompt.prefix


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
    before = [*prompt.messages(), {"role": "assistant", "content": _REPLY_MARKER}]
    text = _first_whole_text(prompt, before, messages, tokenizer, _SHAPES)
    return text.rpartition(_REPLY_MARKER)[2] + prompt.prefix


def as_user(message: Message) -> Message:
    """Return a message of a tool as a message of the user; other messages are unchanged."""
    if message["role"] != "tool":
        return message
    return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}


def _first_whole_text(
    prompt: Prompt,
    before: list[Message],
    messages: Sequence[Message],
    tokenizer: Tokenizer,
    shapes: Sequence[_Shape],
) -> str:
    """Return a chat as text, in the first shape in which the template writes all ``messages`` and tools.

    Some templates refuse messages of a tool, of the system after its first message, or two of a user in
    turn. Others leave them out, or write them into the first message. If none is whole, it is the last
    shape. Raises TemplateError if the template refuses all.
    """
    shown = [str(message["content"]).strip() for message in messages if message["role"] != "assistant"]
    tools = [str(tool["function"]["name"]) for tool in prompt.tools]
    refusal: TemplateError | None = None
    text = ""
    for shape in shapes:
        try:
            text = _chat_text(prompt, [*before, *messages], tokenizer, shape)
        except TemplateError as error:
            refusal = refusal or error
            continue
        if _contains_all(text.rpartition(_REPLY_MARKER)[2], shown) and _contains_all(text, tools):
            return text
    if refusal is not None and not text:
        raise refusal
    return text


def _contains_all(text: str, contents: Sequence[str]) -> bool:
    at = 0
    for content in contents:
        # They are nearly always in order, so that each part of a long text is searched once.
        found = text.find(content, at)
        if found < 0 and content not in text:
            return False
        at = max(at, found)
    return True


_Shape = Callable[[list[Message]], list[Message]]


def _unchanged(turns: list[Message]) -> list[Message]:
    return turns


def _with_common_roles(turns: list[Message]) -> list[Message]:
    """Return messages with one of the system at most, at the beginning, and none of tools."""
    is_alone = all(message["role"] == "system" for message in turns)
    found: list[Message] = []
    for message in turns:
        as_is = message["role"] != "system" or (not found and not is_alone)
        found.append(as_user(message) if as_is else {**message, "role": "user"})
    return found


def _alternating(turns: list[Message]) -> list[Message]:
    """Return messages in which the user begins, and has no two messages in turn."""
    found: list[Message] = []
    for message in _with_common_roles(turns):
        if found and found[-1]["role"] in ("system", "user") and message["role"] == "user":
            message = {**message, "content": f"{found.pop()['content']}\n\n{message['content']}"}
        found.append(message)
    if found[0]["role"] == "system":
        found[0] = {**found[0], "role": "user"}
    return found


_SHAPES: tuple[_Shape, ...] = (_unchanged, _with_common_roles, _alternating)


def encode_prompt(prompt: Prompt, tokenizer: Tokenizer) -> list[int]:
    """Return the prompt as token ids."""
    return encode_text(render_prompt(prompt, tokenizer), tokenizer, special=not prompt.chat)


def encode_text(text: str, tokenizer: Tokenizer, *, special: bool) -> list[int]:
    """Return a text to continue as token ids. ``special``: with the tokens before a text, such as BOS.

    A chat template contains the special tokens. For plain text the tokenizer adds them.
    """
    ids = tokenizer.encode(text, add_special_tokens=special)
    # Some tokenizers also add the end of a text, which a model does not continue.
    adds_end = special and ids[-1:] == [getattr(tokenizer, "eos_token_id", None)]
    return ids[:-1] if adds_end and not text.endswith(getattr(tokenizer, "eos_token", "")) else ids


def check_length(problem: Problem, ids: Sequence[int], most: int) -> None:
    """Raise UserError if a problem's prompt has more than ``most`` tokens. ``ids``: all or the first ones."""
    if len(ids) > most:
        raise UserError(
            f"problem {problem.id!r}: the prompt has at least {len(ids)} tokens, more than "
            f"`environment.max_prompt_tokens` = {most}"
        )


def _chat_text(prompt: Prompt, turns: list[Message], tokenizer: Tokenizer, shape: _Shape) -> str:
    """Return a chat as text, with the prompt's tools. Raises TemplateError for messages that the template
    refuses."""
    plain = _apply_template(shape(turns), tokenizer)
    if not prompt.tools:
        return plain
    with_tools = _apply_template(shape(turns), tokenizer, tools=prompt.tools)
    if with_tools != plain:
        return with_tools
    # The template ignores tools, so the system message describes them.
    return _apply_template(shape(_with_description(turns, prompt.tools)), tokenizer)


def _apply_template(turns: list[Message], tokenizer: Tokenizer, **more: Any) -> str:
    try:
        more = {**chat_settings(tokenizer).arguments, **more}
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
