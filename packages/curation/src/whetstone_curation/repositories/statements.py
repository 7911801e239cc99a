"""The statement of a task: what a function should do and how its mistake shows, without an expected value."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from inspect import cleandoc

from whetstone.judge.repository.observations import ExpectedTest
from whetstone.judge.values import decode
from whetstone_curation.repositories.changed_functions import REMOVED, SourceFunction

# A text of this length is found without its spaces and line breaks. A shorter one is compared exactly.
_LONG = 8
_BRACKETS = str.maketrans({'"': "'", "(": "[", ")": "]", " ": "", "\n": "", "\t": ""})


class ExpectedValues:
    """The telling expected values of tests, searched for in text. A search costs values times text."""

    def __init__(self, tests: Iterable[ExpectedTest]) -> None:
        self._exact: set[str] = set()
        self._squeezed: set[str] = set()
        seen = {one.value for test in tests for one in test.observations if one.value and one.is_telling}
        for value in seen:
            self._add(decode(b64decode(value)))

    def _add(self, value: object) -> None:
        if isinstance(value, str):
            forms = {value, repr(value)[1:-1], json.dumps(value)[1:-1]}
        elif isinstance(value, bytes | bytearray):
            forms = {bytes(value).decode("latin-1"), repr(bytes(value))[2:-1]}
        else:
            self._exact.add(str(value))
            written = {repr(value)}
            with suppress(TypeError, ValueError, RecursionError):
                written.add(json.dumps(value))
            found = self._exact if isinstance(value, int | float) else self._squeezed
            found.update(form.translate(_BRACKETS) for form in written)
            return
        for form in forms:
            self._add_text(form)

    def _add_text(self, text: str) -> None:
        squeezed = text.translate(_BRACKETS)
        if len(squeezed) >= _LONG and not text.isalpha():
            self._squeezed.add(squeezed)
        elif text.isalpha() or not squeezed:
            # A word of the language discloses nothing unless it is quoted or stands alone.
            self._squeezed.update(f"{quote}{text}{quote}" for quote in "'`" if text)
            self._exact.add(f"\n{text}\n")
        else:
            self._exact.add(text)

    def occur_in(self, text: str) -> bool:
        """Return whether a value occurs in a text: as it is printed or written, in other quotes or lines."""
        lines = "\n" + "\n".join(line.strip() for line in text.splitlines()) + "\n"
        squeezed = lines.translate(_BRACKETS)
        return any(value in squeezed for value in self._squeezed) or any(
            _occurs(value, lines) for value in self._exact
        )

    def without(self, lines: Sequence[str]) -> list[str]:
        """Return the lines of a docstring without the examples and lines in which a value occurs.

        The first and the last one are kept, because they contain the quotes.
        """
        if len(lines) < 3:
            return [*lines]
        blocks = _blocks(lines[1:-1])
        kept = [line for block in blocks if not self.occur_in("".join(block)) for line in block]
        return [lines[0], *kept, lines[-1]]


def _occurs(value: str, text: str) -> bool:
    """Return whether a value occurs and is no part of a word or a number."""
    start = text.find(value)
    while start >= 0:
        before, after = text[start - 1 : start], text[start + len(value) :][:2]
        joined = (value[0].isalnum() and (before.isalnum() or before in ("_", "."))) or (
            value[-1].isalnum() and re.match(r"\w|\.\d", after) is not None
        )
        if not joined:
            return True
        start = text.find(value, start + 1)
    return False


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the examples of a docstring, each with its output, and every other line alone."""
    block: list[str] = []
    for line in lines:
        text = line.strip()
        inside = block and block[0].strip().startswith(">>>")
        if block and (not inside or not text or text.startswith(">>>")):
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def statement_of(function: SourceFunction, docstring: str, kind: str, test: str, failure: str) -> str:
    """Return the statement. ``test``: the id of a test that fails. ``failure``: what its run showed."""
    name = f"`{function.name}` in `{function.path}`"
    if kind == REMOVED:
        first = f"The body of {name} is missing. Write it. Change no test."
    else:
        first = f"{name} has a mistake. Find and repair it. Change no test."
    parts = [first]
    if docstring.strip():
        parts.append(f"Its documentation:\n\n{cleandoc(docstring)}")
    parts.append(f"A hidden test fails: `{test.partition('[')[0]}`. {_symptom(failure)}")
    return "\n\n".join(parts)


def _symptom(failure: str) -> str:
    if failure.startswith("assertion"):
        return "One of its assertions sees another value."
    if failure == "the test failed":
        return "An exception or a failed assertion ends it."
    return "It does not run to its end."
