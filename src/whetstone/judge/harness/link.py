"""The wire between a program's process and the process that tests it.

Both ends speak the same protocol: a request is answered by exactly one reply, and while one end
waits for a reply it serves the requests of the other (a test's key function called by the program).
Messages are values of the ``values`` codec behind a length, bounded in size and depth.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from operator import is_
from struct import Struct
from typing import Any, cast

from whetstone.judge.harness.containers import CONTAINERS, refill
from whetstone.judge.harness.loading import write_all
from whetstone.judge.set_order import in_one_order
from whetstone.judge.values import MAX_BYTES, NotInert, WireError, decode, encode

_HEADER = Struct("<Q")
RETURNED, RAISED = "returned", "raised"
_MAX_REASON = 300
_MAX_NESTED = 300
"""Requests of the other end that are served at once, each within a reply that the one before it waits for."""


class LinkLost(BaseException):
    """The other process is gone or speaks nonsense. Not an Exception: test code must not swallow it."""


class Reference:
    """Stands in a message for a mutable argument that both ends hold, by its number."""

    def __init__(self, number: int) -> None:
        self.number = number


class Link:
    """One end of the wire. ``exporter`` and ``importer`` name objects that do not cross by value."""

    def __init__(
        self,
        fd: int,
        exporter: Callable[[object], object],
        importer: Callable[[object, list[Any]], object],
        serve: Callable[[list[Any]], list[Any]],
        last_look: Callable[[bytes], bytes] = bytes,
        heard: Callable[[bytes], object] = len,
    ) -> None:
        """``last_look`` gets each message as it would be sent, and returns it as it may be sent; ``heard``
        gets each that came, and returns false for one that must not be."""
        self._fd = fd
        self._exporter = exporter
        self._importer = importer
        self._serve = serve
        self._last_look = last_look
        self._heard = heard
        self._nested = 0
        self.lost = ""
        self.in_changes = False
        """Whether what is read just now says how containers changed, in words that mean nothing elsewhere."""
        # Threads of a program call the test's functions too: a request and its reply are one turn.
        self._turn = threading.RLock()

    def request(self, message: list[Any]) -> list[Any]:
        """Send a request and return the reply, serving the other end's requests meanwhile.

        Mutable containers in the request are afterwards brought to what the other end made of them.
        Raises NotInert when the request cannot cross, LinkLost when the other end is lost.
        """
        with self._turn:
            self._send(b"?" + self._last_look(encode(message, self._exporter)))
            shared = mutables(message)
            while True:
                data = self._receive()
                if data[:1] == b"!":
                    return self._reply(self._decode(data[1:], shared), shared)
                if data[:1] != b"?":
                    raise self.lose("an unknown kind of message")
                self.answer(data)

    def serve_forever(self) -> None:
        """Answer requests until the other end closes."""
        while True:
            with self._turn:
                data = self._receive()
            self.answer(data)

    def answer(self, data: bytes) -> None:
        """Serve one request. An answer that cannot cross is a TypeError, one too many a RecursionError."""
        self._nested += 1
        try:
            if self._nested > _MAX_NESTED:
                raise RecursionError
            encoded = self._last_look(self._answered(data))
        except RecursionError:
            encoded = _refusal("RecursionError")
        finally:
            self._nested -= 1
        with self._turn:
            self._send(b"!" + encoded)

    def _answered(self, data: bytes) -> bytes:
        message = self._decode(data[1:], [])
        shared = mutables(message)
        before = [content(item) for item in shared]
        reply = self._serve(message)
        try:
            return encode([reply, len(shared), changes(shared, before)], self._exporter)
        except NotInert:
            return _refusal("TypeError", "what has no plain form cannot be handed over")

    def _reply(self, message: list[Any], shared: list[Any]) -> list[Any]:
        if len(message) != 3 or type(message[0]) is not list:
            raise self.lose("a malformed reply")
        reply, count, changed = message
        if count == len(shared):
            try:
                apply_changes(shared, changed)
            except WireError as error:
                raise self.lose(str(error)) from None
        return cast("list[Any]", reply)

    def send_greeting(self, greeting: list[Any]) -> None:
        """The first message, which answers no request."""
        self._send(b"!" + encode(greeting, self._exporter))

    def receive_greeting(self) -> list[Any]:
        """Wait for the other end's first message."""
        data = self._receive()
        match self._decode(data[1:], []) if data[:1] == b"!" else None:
            case ["loaded"]:
                return ["loaded"]
            case ["failed", str() as reason]:
                return ["failed", reason[:_MAX_REASON]]
            case _:
                raise self.lose("a malformed greeting")

    def read(self, data: bytes) -> list[Any]:
        """What a message holds as bytes within: changes of containers."""
        self.in_changes = True
        try:
            return self._decode(data, [])
        finally:
            self.in_changes = False

    def _decode(self, data: bytes, shared: list[Any]) -> list[Any]:
        try:
            message = decode(data, lambda name: self._importer(name, shared))
        except RecursionError:
            raise
        except WireError as error:
            raise self.lose(str(error)) from None
        except Exception as error:
            raise self.lose(f"a malformed message: {type(error).__name__}") from None
        if type(message) is not list or not message:
            raise self.lose("a message that is not a list")
        return cast("list[Any]", message)

    def _send(self, data: bytes) -> None:
        if self.lost:
            raise LinkLost(self.lost)
        try:
            write_all(self._fd, _HEADER.pack(len(data)) + data)
        except OSError:
            raise self.lose("the other process ended") from None
        except BaseException:
            self.lose("interrupted while it sent")
            raise

    def _receive(self) -> bytes:
        if self.lost:
            raise LinkLost(self.lost)
        size = _HEADER.unpack(self._exactly(_HEADER.size))[0]
        if size > MAX_BYTES + 1024:
            raise self.lose("a message of absurd size")
        message = self._exactly(size)
        if message and not self._heard(message):
            raise self.lose("it answered otherwise than in the run that a time limit stopped")
        return message

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = os.read(self._fd, min(size - len(parts), 1 << 20))
            except OSError:
                part = b""
            except BaseException:  # a handler of the test's for a signal: what comes would be misread
                self.lose("interrupted while it waited")
                raise
            if not part:
                raise self.lose("the other process ended")
            parts += part
        return bytes(parts)

    def lose(self, reason: str) -> LinkLost:
        """Give the other end up for good, and return the exception that says why."""
        # Sticky: whatever the test does with the exception, no later request can succeed.
        self.lost = self.lost or reason
        return LinkLost(self.lost)


def mutables(value: object) -> list[Any]:
    """The mutable containers inside ``value``, in an order that both ends find alike."""
    found: list[Any] = []
    stack: list[object] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, CONTAINERS):
            found.append(item)
        children = _children(item)
        if children and any(map(_may_hold, set(map(type, children)))):
            stack.extend(reversed(children))
    return found


def _may_hold(kind: type) -> bool:
    return issubclass(kind, (*CONTAINERS, tuple))


def _children(item: object) -> list[Any]:
    if isinstance(item, list):
        return list.__getitem__(cast("list[Any]", item), slice(None))
    if isinstance(item, tuple):
        return list(tuple.__iter__(cast("tuple[Any, ...]", item)))
    if isinstance(item, deque):
        return list(deque.__iter__(cast("deque[Any]", item)))
    if isinstance(item, dict):
        return list(dict.values(cast("dict[Any, Any]", item)))
    return []


def content(item: Any) -> list[Any]:
    """What a mutable container holds now, flat: keys and values of a dict in turn."""
    if isinstance(item, dict):
        pairs = list(dict.items(cast("dict[Any, Any]", item)))
        return [part for pair in pairs for part in pair]
    if isinstance(item, set):
        return in_one_order(list(set.__iter__(cast("set[Any]", item))))
    if isinstance(item, bytearray):
        return list(bytearray.__iter__(item))
    return _children(item)


def changes(shared: list[Any], before: list[list[Any]]) -> list[Any]:
    """``[number, content]`` of each shared container that no longer holds what it held ``before``."""
    numbers = {id(item): number for number, item in enumerate(shared)}
    changed: list[Any] = []
    for number, item in enumerate(shared):
        now = content(item)
        if len(now) != len(before[number]) or not all(map(is_, now, before[number])):
            parts = [Reference(numbers[id(part)]) if id(part) in numbers else part for part in now]
            changed.append([number, parts])
    return changed


def apply_changes(shared: list[Any], changed: object) -> None:
    """Bring shared containers to the reported content. Raises WireError on nonsense."""
    if type(changed) is not list:
        raise WireError("malformed changes")
    for entry in cast("list[Any]", changed):
        if type(entry) is not list or len(cast("list[Any]", entry)) != 2:
            raise WireError("malformed changes")
        number, parts = cast("list[Any]", entry)
        if type(number) is not int or type(parts) is not list or not 0 <= number < len(shared):
            raise WireError("malformed changes")
        try:
            _refill(shared[number], cast("list[Any]", parts))
        except RecursionError:
            raise
        except Exception as error:
            raise WireError(f"malformed changes: {type(error).__name__}") from None


def _refill(item: Any, parts: list[Any]) -> None:
    if isinstance(item, dict):
        refill(cast("dict[Any, Any]", item), dict(zip(parts[::2], parts[1::2], strict=True)))
    else:
        refill(item, bytes(parts) if isinstance(item, bytearray) else parts)


def _refusal(kind: str, *texts: str) -> bytes:
    return encode([[RAISED, [None, kind], list(texts), {}, None], 0, []])
