"""An OpenAI-compatible server on loopback, through which an agent plays an episode.

It knows the conversations that its clients continue, so tokens are never encoded again: a request whose
messages begin with a recorded conversation goes on from the generated tokens. All other messages are prompts.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from whetstone.core.errors import UserError
from whetstone.core.http.refusal import ClientGone, RequestRefused, bad_request, json_response
from whetstone.core.http.request_body import body_of, cancel_on_disconnect
from whetstone.core.http.server import embedded_server, listen
from whetstone.core.http.service_host import RequestLog
from whetstone.core.http.settings import Address, HostLimits
from whetstone.core.sample import Sample
from whetstone.environments.chat_api import (
    ChatAnswer,
    ChatRequest,
    MessageKey,
    answer_to,
    read_request,
    response_to,
)
from whetstone.environments.conversation import Conversation, Reply
from whetstone.environments.episode import Episode
from whetstone.environments.prompt import Prompt, TemplateError, as_user
from whetstone.environments.single_turn import Outcome, sample_of

_LOG = logging.getLogger(__name__)
_MOST_RUNNING = 64
# Requests for each allowed reply, refused ones included: reading a request takes time of the event loop.
_REQUESTS_PER_CALL = 4
_BODY_S = 60.0


@dataclass
class _Recorded:
    """A conversation, the keys of its messages, and the number of keys at the end of each reply."""

    conversation: Conversation
    tools: list[dict[str, Any]]
    keys: list[MessageKey] = field(default_factory=list[MessageKey])
    ends: list[int] = field(default_factory=list[int])


class Session:
    """The access of one episode's agent to the model. ``Gateway.open`` makes it.

    ``limit`` says which limit refused a request, and ``failure`` why a reply failed; both are empty at first.
    ``error`` is the exception of the model client that ended the session, if there is one.
    """

    def __init__(self, episode: Episode, url: str, calls: int, prompt_tokens: int) -> None:
        self.id, self.base_url = secrets.token_hex(8), url
        self.api_key = f"{self.id}.{secrets.token_urlsafe(32)}"
        self.limit = self.failure = ""
        self.error: Exception | None = None
        self.calls = 0
        self.model = episode.models[0]
        self._closed = False
        self._running: dict[asyncio.Task[Any], asyncio.Event] = {}
        self._episode = episode
        self._most_calls, self._most_prompt_tokens = calls, prompt_tokens
        self._requests = self._prompt_tokens = 0
        self._recorded: list[_Recorded] = []
        self._lock = asyncio.Lock()

    @property
    def conversations(self) -> int:
        """The number of conversations and forks."""
        return len(self._recorded)

    @property
    def replied(self) -> bool:
        """Whether the model has written a reply, or has failed to."""
        return bool(self._recorded)

    def accepts(self, api_key: str) -> bool:
        """Return whether this is the key of the session."""
        return hmac.compare_digest(api_key.encode(), self.api_key.encode())

    @contextmanager
    def request(self) -> Generator[None]:
        """Return the context of a request. Raises RequestRefused if there are too many, and if the session
        closes before the end."""
        self._requests += 1
        if self._requests > _REQUESTS_PER_CALL * (self._most_calls + _MOST_RUNNING):
            raise self._refused("requests_exhausted", "the episode has sent too many requests")
        if len(self._running) >= _MOST_RUNNING:
            raise RequestRefused(429, "busy", f"at most {_MOST_RUNNING} requests may run at once", 1.0)
        task = asyncio.current_task()
        assert task is not None
        ended = self._running[task] = asyncio.Event()
        try:
            yield
        except asyncio.CancelledError:
            if not self._closed:
                raise
            task.uncancel()
            raise _unknown_key() from None
        finally:
            del self._running[task]
            ended.set()

    async def reply_to(self, request: ChatRequest) -> str:
        """Return the body of the response to a request. Raises RequestRefused."""
        # One request at a time, as the turns of an episode are scheduled.
        async with self._lock:
            if self.error is not None:
                raise RequestRefused(500, "ended", "the episode has ended with an error of the model")
            if self.calls >= self._most_calls:
                raise self._refused("calls_exhausted", f"the {self._most_calls} calls are used up")
            if self._prompt_tokens >= self._most_prompt_tokens:
                raise self._refused("tokens_exhausted", "the prompt tokens of the episode are used up")
            self.calls += 1
            try:
                reply, answer = await self._continue(request)
            except TemplateError as error:
                raise bad_request(str(error)) from None
            except UserError as error:
                raise self._refused("context_length_exceeded", str(error)) from None
            except RequestRefused:
                raise
            except Exception as error:
                self.error = error
                raise
            self._prompt_tokens += reply.prompt_tokens or 0
            return response_to(request, answer, reply, f"chatcmpl-{self.id}-{self.calls}", self.model)

    async def _continue(self, request: ChatRequest) -> tuple[Reply, ChatAnswer]:
        """Request the reply from the recorded conversation that the request continues, or from a new one."""
        base, turns = self._longest_match(request)
        if base is None:
            dialogue = [as_user(message) for message in request.messages]
            prompt = Prompt("", "", chat=True, tools=request.tools, dialogue=dialogue)
            begun = await self._episode.begin(prompt, limits=request.limits)
            recorded = _Recorded(begun, request.tools)
            self._recorded.append(recorded)
        else:
            recorded = await self._extend(base, turns, request)
        reply = recorded.conversation.reply
        if reply.finish_reason == "failed":
            self.failure = reply.error or "for an unknown reason"
            raise RequestRefused(500, "reply_failed", f"the reply failed: {reply.error}")
        # Reading a long reply takes a moment. A thread keeps the event loop responsive.
        answer = await asyncio.to_thread(answer_to, request, reply, self.calls)
        recorded.keys = [*request.keys, answer.key]
        recorded.ends.append(len(recorded.keys))
        return reply, answer

    async def _extend(self, base: _Recorded, turns: int, request: ChatRequest) -> _Recorded:
        conversation, limits = base.conversation, request.limits
        messages = request.messages[base.ends[turns - 1] :]
        if turns == len(conversation.turns):
            if await conversation.send(*messages, limits=limits) is not None:
                return base
        elif (fork := await self._episode.fork(conversation, turns, *messages, limits=limits)) is not None:
            forked = _Recorded(fork, base.tools, ends=base.ends[:turns])
            self._recorded.append(forked)
            return forked
        raise self._refused("context_length_exceeded", "the model's context has no room for these messages")

    def _longest_match(self, request: ChatRequest) -> tuple[_Recorded | None, int]:
        """Return the recorded conversation and the number of its turns with which the messages begin.

        Of equally long ones, a conversation that ends there is preferred to one that has continued.
        """
        best: tuple[int, bool] = (0, False)
        found: tuple[_Recorded | None, int] = (None, 0)
        for recorded in self._recorded:
            if recorded.tools != request.tools:
                continue
            pairs = zip(recorded.keys, request.keys, strict=False)
            common = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
            common = min(len(recorded.keys), len(request.keys)) if common is None else common
            for turns, end in enumerate(recorded.ends, 1):
                rank = (end, turns == len(recorded.conversation.turns))
                if end <= common and rank > best:
                    best, found = rank, (recorded, turns)
        return found

    def _refused(self, code: str, message: str) -> RequestRefused:
        self.limit = message
        return RequestRefused(400, code, message)

    def samples(self, outcome: Outcome, metrics: Mapping[str, float] | None = None) -> list[Sample]:
        """Return one sample for each conversation and fork, in the order in which they began. Every generated
        token has a loss in exactly one of them."""
        return [sample_of(recorded.conversation, outcome, metrics) for recorded in self._recorded]

    async def close(self) -> None:
        """Refuse further requests, and cancel those that run."""
        self._closed = True
        for task, ended in [*self._running.items()]:
            task.cancel()
            await ended.wait()


class _Silent(RequestLog):
    def failed(self, endpoint: str, status: int) -> bool:
        """Log no request: agents send what they like."""
        return False


class Gateway:
    """The server of all episodes of an environment. It starts with the first session."""

    # 2 MiB are the text of about half a million tokens.
    limits = HostLimits(most_body_bytes=2 << 20, head_s=10.0, body_silence_s=10.0, write_silence_s=30.0)

    def __init__(self) -> None:
        self.telemetry = _Silent()
        self.draining = False
        self.held_bytes = 0
        self._sessions: dict[str, Session] = {}
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._url = ""

    def watch(self) -> None:
        """See ServiceHost. There are no background tasks."""

    async def open(self, episode: Episode, *, calls: int, prompt_tokens: int) -> Session:
        """Return the session of an episode; ``end`` closes it.

        calls: the most replies. prompt_tokens: the prompt tokens of all requests together, after which
        further requests are refused.
        """
        if self._serving is None or self._serving.done():
            listening = listen(Address(port=0))
            self._url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
            self._server = embedded_server(self, self)
            self._serving = asyncio.create_task(self._server.serve([listening]))
        session = Session(episode, self._url, calls, prompt_tokens)
        self._sessions[session.id] = session
        return session

    async def end(self, session: Session) -> None:
        """Close a session. The server does not know its key any more."""
        self._sessions.pop(session.id, None)
        await session.close()

    async def close(self) -> None:
        """End all sessions and the server."""
        for session in [*self._sessions.values()]:
            await self.end(session)
        if self._server is not None and self._serving is not None and not self._serving.done():
            self._server.should_exit = True
            await self._serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as an ASGI application."""
        try:
            response = await self._response(Request(scope, receive))
        except RequestRefused as refused:
            response = _error(refused)
        except ClientGone:
            return
        except Exception:
            _LOG.exception("a request to the gateway failed")
            response = _error(RequestRefused(500, "defect", "the server failed; its log has the error"))
        with suppress(TimeoutError):  # the client does not read, so the rest is not sent
            async with asyncio.timeout(self.limits.write_silence_s):
                await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        session = self._session_of(request)
        match request.method, request.url.path:
            case "GET", "/v1/models":
                model = {"id": session.model, "object": "model", "created": 0, "owned_by": "whetstone"}
                return json_response({"object": "list", "data": [model]})
            case "POST", "/v1/chat/completions":
                with session.request():
                    return await self._chat(request, session)
            case _:
                raise RequestRefused(404, "no_such_path", "use POST /v1/chat/completions or GET /v1/models")

    def _session_of(self, request: Request) -> Session:
        """Return the session of a request's key. Raises RequestRefused."""
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        # The part before the dot is no secret, so it may select the session.
        session = self._sessions.get(key.strip().partition(".")[0])
        if kind.lower() != "bearer" or session is None or not session.accepts(key.strip()):
            raise _unknown_key()
        return session

    async def _chat(self, request: Request, session: Session) -> Response:
        try:
            async with asyncio.timeout(_BODY_S), body_of(request, self) as body:
                chat = read_request(body)
        except TimeoutError:
            raise RequestRefused(408, "slow_body", f"the body took more than {_BODY_S:g} s") from None
        text = await cancel_on_disconnect(request, session.reply_to(chat))
        # The run's sampling decides, so that the log-probs are those of the policy.
        headers = {"x-whetstone-ignored": ", ".join(chat.ignored)} if chat.ignored else {}
        return Response(text, 200, headers, "text/event-stream" if chat.stream else "application/json")


def _unknown_key() -> RequestRefused:
    return RequestRefused(401, "invalid_api_key", "the API key is unknown, or its episode has ended")


def _error(refused: RequestRefused) -> Response:
    """Return a refusal in the form of OpenAI's errors."""
    # Clients do not repeat a 400. Its message says what is too large.
    status = 400 if refused.status == 413 else refused.status
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": refused.message, "type": kind, "param": None, "code": refused.code}
    headers = {} if refused.retry_after_s is None else {"retry-after": f"{refused.retry_after_s:g}"}
    return json_response({"error": error}, status, headers)
