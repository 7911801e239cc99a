"""A tokenizer with one token for each character, and an engine that writes the replies of a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from whetstone.engine.engine import Completion, GenerationRequest


class CharacterTokenizer:
    """One token for each character. Its chat template, if it has one, may open the thinking."""

    def __init__(self, *, chat: bool = True, opens_thinking: bool = False) -> None:
        self.chat_template: Any = "there is one" if chat else None
        self._opening = "<think>\n" if opens_thinking else ""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, token_ids))

    def apply_chat_template(
        self, conversation: list[dict[str, Any]], *, tokenize: bool, add_generation_prompt: bool, **more: Any
    ) -> str:
        turns = "".join(f"<{turn['role']}>{turn['content']}" for turn in conversation)
        return f"{turns}<assistant>{self._opening}"


class CharacterEngine:
    """Answers a prompt with the replies written down for it, or for all, last one first, cut at the limit."""

    version = 0

    def __init__(self, replies: dict[str, list[str]] | list[str], aborted: str = "") -> None:
        """``aborted``: the prompt whose replies are aborted."""
        self.replies, self.aborted = replies, aborted
        self.requests: list[GenerationRequest] = []

    @property
    def prompts(self) -> list[str]:
        return [CharacterTokenizer().decode(request.prompt_ids) for request in self.requests]

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        self.requests.append(request)
        name = self.prompts[-1]
        texts = self.replies[name] if isinstance(self.replies, dict) else self.replies
        for index in reversed(range(request.n)):
            ids = CharacterTokenizer().encode(texts[index % len(texts)])
            drawn = ids[: request.params.max_tokens]
            reason = "abort" if name == self.aborted else "length" if len(drawn) < len(ids) else "stop"
            await asyncio.sleep(0)
            yield Completion(index, drawn, [-1.0] * len(drawn), [self.version] * len(drawn), reason)

    def check(self, request: GenerationRequest) -> None: ...

    async def close(self) -> None: ...
