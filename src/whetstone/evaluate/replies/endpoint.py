"""Replies from an OpenAI-compatible endpoint: chat completions, or completions of plain text.

One request asks for one reply and carries a seed of its own, so that what is there is never asked for
again, and a request that failed is made again alone.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

import httpx2
from msgspec import Struct

from whetstone.errors import UserError
from whetstone.evaluate.plan import Plan
from whetstone.evaluate.replies.base import END_THINK, THINK, Question, Reply, failed
from whetstone.evaluate.replies.patience import Patience
from whetstone.evaluate.replies.server import KEY_VARIABLES, Server, headers, look_up
from whetstone.recipe import WorkflowSection

_PASSING = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Statuses that a later try may not meet: time-outs, conflicts, too many requests, failures of the server."""

_OF_ALL = frozenset({401, 403, 404})
"""Statuses that every request would meet: a wrong key, a wrong address, an unknown model."""


class Settings(Struct, frozen=True):
    """How an endpoint is asked.

    concurrency: requests at once. timeout_s: for one request from its start to the last byte. patience_s:
        see Patience. body: fields added to every request, over ours. thinks: replies begin inside their
        thinking, without a ``<think>`` of their own.
    """

    concurrency: int = 32
    timeout_s: float = 1800.0
    patience_s: float = 300.0
    first_wait_s: float = 1.0
    body: Mapping[str, Any] = {}
    thinks: bool = False

    def __post_init__(self) -> None:
        if self.concurrency < 1 or not self.timeout_s > 0 or self.patience_s < 0:
            raise UserError(
                "--concurrency is at least 1, --request-timeout more than 0 seconds, --patience at least 0"
            )


class Endpoint:
    """An OpenAI-compatible endpoint as a model; it is asked for what it serves on construction.

    Raises UserError when it does not answer, or serves no such model.
    """

    def __init__(self, url: str, model: str | None, settings: Settings) -> None:
        self._server = look_up(url, model)
        self._settings = settings
        self.manifest: dict[str, Any] = {
            "endpoint": self._server.url,
            "source": self._server.model,
            "owner": self._server.owner,
            "root": self._server.root,
            "context": self._server.context,
            "version": self._server.version,
            "body": dict(settings.body),
            "thinks": settings.thinks,
        }

    def writer(self, plan: Plan, settings: WorkflowSection) -> EndpointWriter:
        """Who writes the replies of one evaluation. Raises UserError for a prefix that cannot be given."""
        if settings.chat and settings.prefix and not self._server.continues_replies:
            raise UserError(
                f"{self._server.url} is not known to continue a reply begun in a chat, as vLLM and SGLang; "
                "give --no-chat with a --prompt that holds all of it, or leave --prefix out"
            )
        return EndpointWriter(self._server, plan, self._settings)

    async def close(self) -> None:
        """Nothing is held between evaluations."""


class EndpointWriter:
    """An endpoint as a ReplyWriter."""

    def __init__(self, server: Server, plan: Plan, settings: Settings) -> None:
        self._server = server
        self._plan = plan
        self._settings = settings
        self._patience = Patience(settings.patience_s, settings.first_wait_s)

    async def write(self, questions: Iterable[Question]) -> AsyncGenerator[tuple[Question, Reply], None]:
        """Yield each wanted reply as it comes, ``concurrency`` requests at a time; see ReplyWriter."""
        missing = ((question, index) for question in questions for index in sorted(question.wanted))
        running: set[asyncio.Task[tuple[Question, Reply]]] = set()
        limits = httpx2.Limits(max_connections=self._settings.concurrency)
        timeout = httpx2.Timeout(self._settings.timeout_s, connect=30.0)
        async with httpx2.AsyncClient(headers=headers(), limits=limits, timeout=timeout) as client:
            try:
                while True:
                    while len(running) < self._settings.concurrency and (job := next(missing, None)):
                        running.add(asyncio.create_task(self._ask(client, *job)))
                    if not running:
                        return
                    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        running.discard(task)
                        yield task.result()
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    async def _ask(
        self, client: httpx2.AsyncClient, question: Question, index: int
    ) -> tuple[Question, Reply]:
        """One reply, tried again while there is hope. Raises UserError for what every request would meet."""
        path, body = self._request(question, index)
        tries = 0
        while True:
            tries += 1
            said, asked_s = "", None
            try:
                async with asyncio.timeout(self._settings.timeout_s):
                    answer = await client.post(f"{self._server.url}/{path}", json=body)
                if answer.is_success:
                    reply = self._reply(index, answer.json())
                    self._patience.answered()
                    return question, reply
                said, asked_s = _refusal(answer), _retry_after(answer)
                if answer.status_code in _OF_ALL:
                    raise UserError(
                        f"{self._server.url}: {said}; check --endpoint, --model and {KEY_VARIABLES[0]}"
                    )
                if answer.status_code not in _PASSING:
                    return question, failed(index, said)
            except (httpx2.TransportError, TimeoutError) as error:
                said = f"{type(error).__name__}: {error}".rstrip(": ")
            except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
                said = f"an answer that is no completion ({type(error).__name__}: {error})"
            wait_s = self._patience.wait_s(tries, asked_s)
            if wait_s is None:
                return question, failed(index, f"{said}, after {tries} {'tries' if tries > 1 else 'try'}")
            await asyncio.sleep(wait_s)

    def _request(self, question: Question, index: int) -> tuple[str, dict[str, Any]]:
        """Path and body of the request for one reply."""
        plan, prompt, server = self._plan, question.prompt, self._server
        body: dict[str, Any] = {
            "model": server.model,
            "temperature": plan.temperature,
            "top_p": plan.top_p,
            "max_tokens": plan.max_tokens,
            "seed": seed_of(question.seed, index),
        }
        if plan.stop:
            body["stop"] = list(plan.stop)
        if plan.top_k:
            body["top_k"] = plan.top_k
        if server.continues_replies:
            # Otherwise these servers take them from the model's folder, and the manifest would not tell.
            body |= {"top_k": plan.top_k or -1, "min_p": 0.0, "repetition_penalty": 1.0}
        if not prompt.chat:
            return "completions", {**body, "prompt": prompt.user + prompt.prefix, **self._settings.body}
        messages = prompt.messages()
        if prompt.prefix:
            messages.append({"role": "assistant", "content": prompt.prefix})
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        return "chat/completions", {**body, "messages": messages, **self._settings.body}

    def _reply(self, index: int, answer: dict[str, Any]) -> Reply:
        """The reply in an answer's body; raises what reading a body of another form raises."""
        choice = answer["choices"][0]
        cut = choice.get("finish_reason") == "length"
        message = choice["message"] if "message" in choice else {"content": choice["text"]}
        content = message.get("content") or ""
        thinking = message.get("reasoning") or message.get("reasoning_content")
        # The stop text belongs to the reply; servers take it off, and some say which it was.
        stop = choice.get("stop_reason", choice.get("matched_stop"))
        text = content + (stop if isinstance(stop, str) else "")
        if thinking:
            text = f"{THINK}{thinking}" + ("" if cut and not content else END_THINK + text)
        elif self._settings.thinks and THINK not in text:
            text = THINK + text
        usage = answer.get("usage") or {}
        details = usage.get("completion_tokens_details") or {}
        counted = details.get("reasoning_tokens")
        return Reply(
            index,
            text,
            "length" if cut else "stop",
            int(usage.get("completion_tokens") or 0),
            counted if isinstance(counted, int) else None,
        )


def seed_of(seed: int, index: int) -> int:
    """The seed of one reply: 31 bits, which every server takes."""
    digest = hashlib.sha256(f"{seed}/{index}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _refusal(answer: httpx2.Response) -> str:
    """Status and what the endpoint says, in one line."""
    text = " ".join(answer.text.split())
    return f"{answer.status_code} {text[:300]}".strip()


def _retry_after(answer: httpx2.Response) -> float | None:
    try:
        return float(answer.headers.get("retry-after", ""))
    except ValueError:
        return None
