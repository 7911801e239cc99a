"""What the dataflow does not do, and why: a code for programs, words for people."""

from __future__ import annotations

from whetstone.errors import UserError


class FlowRefusal(UserError):
    """A request that the flow cannot follow, however often it is made."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
