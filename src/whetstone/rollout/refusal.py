"""Errors for requests that a flow refuses, with a code for programs and a message for people."""

from __future__ import annotations

from whetstone.core.errors import UserError


class FlowRefusal(UserError):
    """A request that the flow refuses every time; a retry cannot help."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
