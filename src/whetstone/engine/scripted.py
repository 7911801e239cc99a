"""The embedded engine with scripted replies, for smoke runs, because a random model earns no reward.

Of every four replies to a known prompt, the first is replaced by a correct one and the third by a wrong one.
Their log-probs are those of the served model, so the trainer sees the same data as for sampled replies.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.torch_engine import TorchEngine

EVERY = 4
# The index of the correct and of the wrong reply among every `EVERY` replies.
RIGHT, WRONG = 0, 2


class ScriptedEngine:
    """A ``TorchEngine`` with fixed replies to some prompts; see the module docstring.

    planted: a JSON file of ``{"right": …, "wrong": …}`` by prompt, all as text.
    kill_at: the process kills itself (SIGKILL) when at least ``kill_n`` replies are requested from weights of
        this version, after ``kill_after`` such requests. It creates the file ``planted`` with the suffix
        ``.killed``, and does not do so again while the file exists.
    """

    capabilities = TorchEngine.capabilities

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        planted: str,
        kill_at: int = -1,
        kill_n: int = 1,
        kill_after: int = 0,
        **options: Any,
    ) -> None:
        self._tokenizer = tokenizer
        self._engine = TorchEngine(model, tokenizer, **options)
        self._planted: dict[str, dict[str, str]] = json.loads(Path(planted).read_text(encoding="utf-8"))
        self._kill_at, self._kill_n, self._left = kill_at, kill_n, kill_after
        self._killed = Path(planted).with_suffix(".killed")

    @property
    def version(self) -> int:
        """See Engine."""
        return self._engine.version

    def check(self, request: GenerationRequest) -> None:
        """See Engine."""
        self._engine.check(request)

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """See Engine."""
        if self.version == self._kill_at and request.n >= self._kill_n and not self._killed.exists():
            if not self._left:
                self._killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
        replies = self._engine.generate(request)
        given = self._planted.get(self._tokenizer.decode(request.prompt_ids, skip_special_tokens=True), {})
        return self._replace_replies(request, replies, given) if given else replies

    async def update_weights(self, weights: Iterable[tuple[str, object]] | Path, version: int) -> None:
        """See Engine."""
        await self._engine.update_weights(weights, version)

    async def close(self) -> None:
        """See Engine."""
        await self._engine.close()

    async def _replace_replies(
        self, request: GenerationRequest, replies: AsyncIterator[Completion], given: dict[str, str]
    ) -> AsyncIterator[Completion]:
        async for reply in replies:
            text = given.get({RIGHT: "right", WRONG: "wrong"}.get(reply.index % EVERY, ""))
            yield reply if text is None else await self._score_reply(request, reply.index, text)

    async def _score_reply(self, request: GenerationRequest, index: int, text: str) -> Completion:
        """Return a scripted reply with its log-probs under the current weights."""
        ids = [*self._tokenizer.encode(text, add_special_tokens=False), self._tokenizer.eos_token_id]
        ids = ids[: request.params.max_tokens]
        logprobs, routing = await self._engine.score(request, ids)
        end = "stop" if ids[-1] == self._tokenizer.eos_token_id else "length"
        return Completion(index, ids, logprobs, [self.version] * len(ids), end, routing)


def scripted_engine(model: Callable[[], Any], tokenizer: Any, **options: Any) -> ScriptedEngine:
    """A recipe's ``engine.kind: whetstone.engine.scripted:scripted_engine``."""
    return ScriptedEngine(model(), tokenizer, **options)
