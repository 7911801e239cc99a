"""Assembles the body of a completion from the events that a server streams.

The format is that of OpenAI's API (server-sent events, each a JSON object with parts of a choice), with the
extensions of vLLM, SGLang and llama.cpp. Only the first choice is read, because a request asks for one reply.
"""

from __future__ import annotations

import json
from typing import Any, cast

# The most bytes of one answer: far above any reply, as a limit for servers that never stop.
MOST_BYTES = 1 << 28

_TEXTS = ("content", "reasoning", "reasoning_content")
_LAST = ("finish_reason", "stop_reason", "matched_stop")


class StreamBroken(Exception):
    """A stream that ended early or contains an error; the message says which."""


class StreamAssembler:
    """Takes the bytes of a stream, and returns the body of an equivalent answer without streaming."""

    def __init__(self) -> None:
        self._rest = b""
        self._texts: dict[str, list[str]] = {}
        self._choice: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None
        self._ended = False

    def feed(self, data: bytes) -> None:
        """Process the next bytes. Raises StreamBroken for an error of the server, ValueError for invalid
        JSON."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            field, _, value = line.strip().partition(b":")
            if field == b"data":
                self._add_event(value.strip())

    def body(self) -> dict[str, Any]:
        """Return the completion after the stream has ended. Raises StreamBroken if the end is missing."""
        if self._rest:
            self.feed(b"\n")
        if not self._ended:
            raise StreamBroken("the stream of a reply ended before the reply did")
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        choice = dict(self._choice)
        if "text" in texts:
            choice["text"] = texts.pop("text")
        else:
            choice["message"] = {"role": "assistant", "content": None, **texts}
        return {"choices": [choice], "usage": self._usage}

    def _add_event(self, value: bytes) -> None:
        if value == b"[DONE]":
            return
        event = json.loads(value)
        if not isinstance(event, dict):
            raise ValueError("an event that is not an object")
        event = cast("dict[str, Any]", event)
        if event.get("error"):
            raise StreamBroken(f"an error in the stream: {json.dumps(event['error'])[:300]}")
        if isinstance(event.get("usage"), dict):
            self._usage = event["usage"]
        for choice in event.get("choices") or ():
            if choice.get("index", 0) == 0:
                self._add_choice(choice)

    def _add_choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or {}
        pieces = {"text": choice.get("text"), **{name: delta.get(name) for name in _TEXTS}}
        for name, piece in pieces.items():
            if isinstance(piece, str):
                self._texts.setdefault(name, []).append(piece)
        self._choice |= {name: choice[name] for name in _LAST if choice.get(name) is not None}
        self._ended = self._ended or choice.get("finish_reason") is not None
