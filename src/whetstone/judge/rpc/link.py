"""The link between a program's process and the process that tests it.

Both ends use the same protocol. Each request has exactly one reply. While one end waits for a reply, it
serves requests of the other end, such as a call of the test's key function. A message is a length and a value
of the ``values`` codec, limited in size and depth. See ``docs/rpc.md``.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from operator import is_
from struct import Struct
from typing import Any, cast

from whetstone.judge.rpc.containers import CONTAINERS, refill
from whetstone.judge.rpc.loading import write_all
from whetstone.judge.set_order import in_canonical_order
from whetstone.judge.values import MAX_BYTES, NotInert, TooLarge, WireError, decode, encode

_HEADER = Struct("<Q")
RETURNED, RAISED = "returned", "raised"
_MAX_REASON = 300
# The largest number of nested requests of the other end.
_MAX_NESTED = 300


class LinkLost(BaseException):
    """The other process exited or broke the protocol. No Exception, so that test code does not catch it."""


class Reference:
    """A reference in a message to a mutable argument that both ends have, by its number."""

    def __init__(self, number: int) -> None:
        self.number = number


class ByName:
    """Stands in a message for a value that must be sent as an object, because it has no plain form."""

    def __init__(self, value: object) -> None:
        self.value = value


class RpcLink:
    """One end of the link. ``exporter`` and ``importer`` translate objects that do not cross by value."""

    def __init__(
        self,
        fd: int,
        exporter: Callable[[object], object],
        importer: Callable[[object, list[Any]], object],
        serve: Callable[[list[Any]], list[Any]],
        filter_outgoing: Callable[[bytes], bytes] = bytes,
        on_message: Callable[[bytes], object] = len,
    ) -> None:
        """``filter_outgoing`` gets each encoded message before it is sent, and returns the bytes to send.

        ``on_message`` gets each received message. It returns a false value for one that must end the link.
        """
        self._fd = fd
        self._exporter = exporter
        self._importer = importer
        self._serve = serve
        self._filter_outgoing = filter_outgoing
        self._on_message = on_message
        self._nested = 0
        self.lost = ""
        self.was_incomplete = False
        """Whether something that this end had to send did not cross as it is."""
        self.in_changes = False
        """Whether changes of containers are being read. Some names are valid only there."""
        # Threads of a program may call functions of the test at the same time. The lock keeps a request and
        # its reply together.
        self._turn = threading.RLock()

    def request(self, message: list[Any]) -> list[Any]:
        """Send a request and return the reply, serving the other end's requests meanwhile.

        Mutable containers in the request are then updated with the changes that the other end made.
        Raises NotInert if the request cannot be encoded, LinkLost if the link has ended.
        """
        with self._turn:
            data = encode(message, self._exporter)
            self._send(b"?" + self._filter_outgoing(data))
            shared = mutables(message, len(data))
            while True:
                data = self._receive()
                if data[:1] == b"!":
                    return self._handle_reply(self._decode(data[1:], shared), shared)
                if data[:1] != b"?":
                    raise self.break_link("an unknown kind of message")
                self.answer(data)

    def serve_forever(self) -> None:
        """Answer requests until the other end closes."""
        while True:
            with self._turn:
                data = self._receive()
            self.answer(data)

    def answer(self, data: bytes) -> None:
        """Serve one request and send the reply.

        A result that cannot be encoded is sent as an object. For too many nested requests, the reply is a
        RecursionError.
        """
        self._nested += 1
        try:
            if self._nested > _MAX_NESTED:
                raise RecursionError
            encoded = self._filter_outgoing(self._serve_request(data))
        except RecursionError:
            encoded = _error_reply("RecursionError")
        finally:
            self._nested -= 1
        with self._turn:
            self._send(b"!" + encoded)

    def _serve_request(self, data: bytes) -> bytes:
        message = self._decode(data[1:], [])
        shared = mutables(message, len(data))
        before = [content(item) for item in shared]
        reply = self._serve(message)
        try:
            return encode([reply, len(shared), changes(shared, before)], self._exporter)
        except TooLarge as error:
            return _error_reply("TypeError", f"the result is {error}, so it cannot be sent")
        # NotInert, or what code of the object raises. Neither is an answer of the called function.
        except Exception:
            self.was_incomplete = True
        try:
            return encode(
                [[part if i == 0 else ByName(part) for i, part in enumerate(reply)], 0, []], self._exporter
            )
        except NotInert:
            return _error_reply("TypeError", "the result has no plain form, so it cannot be sent")

    def _handle_reply(self, message: list[Any], shared: list[Any]) -> list[Any]:
        if len(message) != 3 or type(message[0]) is not list:
            raise self.break_link("a malformed reply")
        reply, count, changed = message
        # The numbers differ if the other end counts another object as mutable. The changes then have no
        # target.
        if count == len(shared):
            try:
                apply_changes(shared, changed)
            except WireError as error:
                raise self.break_link(str(error)) from None
        return cast("list[Any]", reply)

    def send_greeting(self, greeting: list[Any]) -> None:
        """Send the first message, which belongs to no request."""
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
                raise self.break_link("a malformed greeting")

    def read(self, data: bytes) -> list[Any]:
        """Decode changes of containers, which a message contains as bytes."""
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
            raise self.break_link(str(error)) from None
        except Exception as error:
            raise self.break_link(f"a malformed message: {type(error).__name__}") from None
        if type(message) is not list or not message:
            raise self.break_link("a message that is not a list")
        return cast("list[Any]", message)

    def _send(self, data: bytes) -> None:
        if self.lost:
            raise LinkLost(self.lost)
        try:
            write_all(self._fd, _HEADER.pack(len(data)) + data)
        except OSError:
            raise self.break_link("the other process ended") from None
        except BaseException:
            self.break_link("interrupted while it sent")
            raise

    def _receive(self) -> bytes:
        if self.lost:
            raise LinkLost(self.lost)
        size = _HEADER.unpack(self._read_exactly(_HEADER.size))[0]
        if size > MAX_BYTES + 1024:
            raise self.break_link("a message that is too large")
        message = self._read_exactly(size)
        if message and not self._on_message(message):
            raise self.break_link("its answer differs from that in the run that a time limit stopped")
        return message

    def _read_exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = os.read(self._fd, min(size - len(parts), 1 << 20))
            except OSError:
                part = b""
            # A signal handler of the test raised in the middle of a message.
            except BaseException:
                self.break_link("interrupted while it waited")
                raise
            if not part:
                raise self.break_link("the other process ended")
            parts += part
        return bytes(parts)

    def break_link(self, reason: str) -> LinkLost:
        """End the link, and return the exception with the reason."""
        # Even if the test catches the exception, no later request can succeed.
        self.lost = self.lost or reason
        return LinkLost(self.lost)


def mutables(value: object, most: int = MAX_BYTES) -> list[Any]:
    """Return the mutable containers inside ``value``, in an order that is the same at both ends.

    Not more than ``most``, because a list that contains itself has no end.
    """
    found: list[Any] = []
    stack: list[object] = [value]
    while stack and len(found) < most:
        item = stack.pop()
        if isinstance(item, CONTAINERS):
            found.append(item)
        children = _children(item)
        if children and any(map(_may_contain, set(map(type, children)))):
            stack.extend(reversed(children))
    return found


def _may_contain(kind: type) -> bool:
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
    """Return the elements of a mutable container; for a dict, keys and values alternate."""
    if isinstance(item, dict):
        pairs = list(dict.items(cast("dict[Any, Any]", item)))
        return [part for pair in pairs for part in pair]
    if isinstance(item, set):
        return in_canonical_order(list(set.__iter__(cast("set[Any]", item))))
    if isinstance(item, bytearray):
        return list(bytearray.__iter__(item))
    return _children(item)


def changes(shared: list[Any], before: list[list[Any]]) -> list[Any]:
    """Return ``[number, content]`` of each shared container whose content differs from ``before``."""
    numbers = {id(item): number for number, item in enumerate(shared)}
    changed: list[Any] = []
    for number, item in enumerate(shared):
        now = content(item)
        if len(now) != len(before[number]) or not all(map(is_, now, before[number])):
            parts = [Reference(numbers[id(part)]) if id(part) in numbers else part for part in now]
            changed.append([number, parts])
    return changed


def apply_changes(shared: list[Any], changed: object) -> None:
    """Set shared containers to the reported content. Raises WireError if it is malformed."""
    if type(changed) is not list:
        raise WireError("malformed changes")
    for entry in cast("list[Any]", changed):
        if type(entry) is not list or len(cast("list[Any]", entry)) != 2:
            raise WireError("malformed changes")
        number, parts = cast("list[Any]", entry)
        if type(number) is not int or type(parts) is not list or not 0 <= number < len(shared):
            raise WireError("malformed changes")
        try:
            item = shared[number]
            if isinstance(item, dict):
                refill(cast("dict[Any, Any]", item), dict(zip(parts[::2], parts[1::2], strict=True)))
            else:
                refill(item, bytes(parts) if isinstance(item, bytearray) else parts)
        except RecursionError:
            raise
        except Exception as error:
            raise WireError(f"malformed changes: {type(error).__name__}") from None


def _error_reply(kind: str, *texts: str) -> bytes:
    return encode([[RAISED, [None, kind], list(texts), {}, None], 0, []])
