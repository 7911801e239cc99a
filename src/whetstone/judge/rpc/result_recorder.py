"""In the test process: records outcomes for the judge at once, as they happen.

A failure must be recorded before the program can learn of it. Otherwise a failed program could end its run in
a way that makes the judge run it again. The program can learn of a failure from a request while an exception
propagates in the test (a ``with`` or ``finally``, a message that shows its value). It can also learn of it
from a function of the test; see ``compiling``.
"""

from __future__ import annotations

from typing import Any

from whetstone.judge.rpc.loading import write_all
from whetstone.judge.values import encode

LENGTH_BYTES = 4


class ResultRecorder:
    """Writes entries to the result descriptor, each a list in the ``values`` codec after its length.

    - ``["begun"]``: before the first message of the program is read
    - ``["unit", status, reason, strained]``: for each unit in turn, until the link is lost
    - ``["seen", status, reason]``: a failure that the program may learn of while its unit continues
    - ``["passed over"]``: the test continued as if nothing had failed
    - ``["answered", count, digest]``: the program's messages in the unit in which the link was lost
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._evaluating = self._is_final = False
        self.pending: list[str] = []
        """Status and reason of a recorded failure of a unit without an outcome."""

    def record_start(self) -> None:
        """Record that from now on the program may influence this process."""
        self._write(["begun"])

    def record_unit(self, outcome: list[str], strained: bool) -> None:
        """Record the outcome of a unit. ``strained``: more than plain values crossed the link."""
        self.pending, self._evaluating, self._is_final = [], False, False
        self._write(["unit", *outcome, strained])

    def record_messages(self, summary: list[Any]) -> None:
        """Record the summary of the program's messages in a unit in which the link broke."""
        self._write(["answered", *summary])

    def record_failure(self, status: str, reason: str) -> None:
        """Record that the unit fails, unless the test handles the failure."""
        if not self.pending:
            self.pending = [status, reason]
            self._write(["seen", status, reason])

    def withdraw_failure(self) -> None:
        """Record that the test handled the failure."""
        if self.pending and not (self._evaluating or self._is_final):
            self.pending = []
            self._write(["passed over"])

    def finalize_failure(self) -> None:
        """Make the recorded failure the outcome of the unit, whatever the test still does."""
        self._is_final = bool(self.pending)

    def set_evaluating(self, begins: bool) -> None:
        """Record that an assertion failed and its message is now evaluated (True), or has been (False)."""
        if begins:
            self.record_failure("failed", "assertion failed")
        self._evaluating = begins

    def _write(self, entry: list[Any]) -> None:
        data = encode(entry)
        write_all(self._fd, len(data).to_bytes(LENGTH_BYTES, "little") + data)
