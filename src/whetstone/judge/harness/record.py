"""What the testing process puts down for the judge, as it happens.

A refusal must be down before the program can learn of it: else a program that was refused could end its run
in a way that has it run again. It learns of it when it is asked anything while an exception makes its way out
of the test (a ``with`` or ``finally``, a message that shows its value), or when a function of the test's
tells it: see ``compiling``.
"""

from __future__ import annotations

from typing import Any

from whetstone.judge.harness.loading import write_all
from whetstone.judge.values import encode

LENGTH_BYTES = 4


class Record:
    """Entries on the process's result descriptor, each a list in the ``values`` codec behind its length.

    ``["begun"]`` before anything that the program says is read; ``["unit", status, reason, strained]`` for
    each unit in turn, until the link is lost; ``["seen", status, reason]`` for a failure that the program is
    about to learn of while its unit goes on, and ``["passed over"]`` when the test went on as if nothing had
    failed; ``["answered", count, digest]`` where the link was lost: see ``answered``.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._evaluating = self._stands = False
        self.pending: list[str] = []
        """Status and reason of a failure that was seen, and nothing yet made of it."""

    def begun(self) -> None:
        """From here on the program may have a hand in what happens to this process."""
        self._write(["begun"])

    def unit(self, outcome: list[str], strained: bool) -> None:
        """The unit's outcome. ``strained``: more than values had to cross."""
        self.pending, self._evaluating, self._stands = [], False, False
        self._write(["unit", *outcome, strained])

    def answered(self, short: list[Any]) -> None:
        """What the program said in a unit in which the link broke."""
        self._write(["answered", *short])

    def seen(self, status: str, reason: str) -> None:
        """The unit fails so, unless the test makes something else of it."""
        if not self.pending:
            self.pending = [status, reason]
            self._write(["seen", status, reason])

    def passed_over(self) -> None:
        """What was seen to fail was no failure to the test."""
        if self.pending and not (self._evaluating or self._stands):
            self.pending = []
            self._write(["passed over"])

    def stands(self) -> None:
        """What was seen to fail is the outcome of the unit, whatever is still to be done in it."""
        self._stands = bool(self.pending)

    def evaluating(self, begins: bool) -> None:
        """An assertion failed, and its message is evaluated; or that is done."""
        if begins:
            self.seen("failed", "assertion failed")
        self._evaluating = begins

    def _write(self, entry: list[Any]) -> None:
        data = encode(entry)
        write_all(self._fd, len(data).to_bytes(LENGTH_BYTES, "little") + data)
