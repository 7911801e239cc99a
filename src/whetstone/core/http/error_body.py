"""The body of every refusal, for servers and clients."""

from __future__ import annotations

from msgspec import Struct


class ErrorDetail(Struct, frozen=True):
    """``code`` is one of few words. ``message`` explains the error and its remedy."""

    code: str
    message: str


class ErrorReply(Struct, frozen=True):
    """The body of every refusal. ``detail`` repeats the message, for clients of FastAPI."""

    error: ErrorDetail
    detail: str
