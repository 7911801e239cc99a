"""Messages of a hostile program on its link, chosen at random: well-formed, malformed and misplaced ones."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

from whetstone.judge.rpc.link import mutables
from whetstone.judge.values import NotInert, WireError, decode, encode

_ERRORS = sorted(
    {k.__name__ for k in vars(builtins).values() if isinstance(k, type) and issubclass(k, BaseException)}
)
_UNICODE = ("UnicodeDecodeError", "UnicodeEncodeError", "UnicodeTranslateError")
_NAMES = (
    *("v", "next", "a", "b", "t", "x", "y", "told", "fails", "label", "depth", "added", "_hidden", "_t"),
    *("object", "start", "end", "reason", "encoding", "args", "errno", "filename", "characters_written"),
    *("exceptions", "message", "split", "with_traceback", "add_note", "value", "code", "name", "msg", "text"),
    *("lineno", "offset", "end_offset", "__class__", "__dict__", "__notes__", "__cause__", "__traceback__"),
    *("__init__", "__globals__", "__self__", "__reduce_ex__", "__getattribute__", "mro", "", "a.b", "\ud800"),
)
_OPERATIONS = (
    *("getattr", "setattr", "getattr", "setattr", "getitem", "setitem", "delitem", "len", "bool", "items"),
    *("contains", "eq", "hash", "lt", "le", "gt", "ge", "add", "sub", "mul", "call", "str", "repr", "str"),
    *("delattr", "next", "format", "__init__", "object", ""),
)
_EDGES = (
    0,
    1,
    -1,
    2,
    3,
    7,
    255,
    1 << 20,
    -(1 << 20),
    1 << 50,
    -(1 << 50),
    (1 << 63) - 1,
    -(1 << 63),
    1 << 70,
)
_TEXTS = ("", "x", "abc", "utf-8", "None", "f", "{0.__class__}", "%s", "é\ud800", "a" * 300)
_ARITY = {"setattr": 2, "setitem": 2, **dict.fromkeys(("len", "bool", "str", "repr", "items", "hash"), 0)}
_FIELDS = ("x", "y", "count", "index", "keys", "_z", "class", "ﬁ", "fi")
_TYPES = ("int", "str", "dict", "NoneType", "type", "object", "eval")
_MAX_DEPTH = 4
_RAISED, _RETURNED = "raised", "returned"


@dataclass(eq=False)
class _NamedReference:
    """A value that crosses the link as a name."""

    name: object

    def __hash__(self) -> int:
        # The default hash is an address, which would give sets of references a random order.
        return crc32(repr(self.name).encode("utf-8", "surrogatepass"))


def _has_stable_hash(item: object) -> bool:
    """Return whether the hash in the other process does not depend on an address. Otherwise the order of a
    set shows the address."""
    if isinstance(item, _NamedReference):
        return isinstance(item.name, list) and item.name[:1] == ["object"]
    return isinstance(item, (int, str))


def _name_of(value: object) -> object:
    if isinstance(value, _NamedReference):
        return value.name
    raise NotInert("only named references are encoded here")


class Hostile:
    """A program that sends anything except a solution. Its messages depend on ``rng`` and on the received
    messages only."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        # The probability of a protocol violation. The first violation ends the link, so most programs have a
        # low rate and talk for long.
        self._violation_rate = rng.choice((0.0, 0.001, 0.01, 0.1))
        # Requests of the test without a reply. The last one must be answered first, because requests nest.
        self.unanswered: list[list[Any]] = []
        # The numbers of functions and objects of the test that the program has received.
        self.functions = self.objects = self._shared = self._failed = 0
        self._traits: dict[int, tuple[str, ...]] = {}

    def receive(self, data: bytes) -> None:
        """Process a message of the test process."""
        message: list[Any] = decode(data[1:], self._import_name)
        match message:
            case [[str() as status, *_, int() as number], *_] if status == _RAISED:
                self._failed = max(self._failed, number + 1)
            case _:
                pass
        if data[:1] == b"?":
            self.unanswered.append(message)

    def _import_name(self, name: Any) -> object:
        match name:
            case ["callback", int() as number, _]:
                self.functions = max(self.functions, number + 1)
            case ["object", int() as number, *_, tuple() as traits]:
                self.objects = max(self.objects, number + 1)
                self._traits[number] = traits
            case _:
                pass
        return _NamedReference(name)

    def greeting(self) -> bytes:
        """Return the first message."""
        if self._breaks_protocol():
            return self._encode(self._random_kind(), self.value())
        return self._encode(b"!", ["loaded"])

    def message(self) -> bytes:
        """Return the next message."""
        is_request = self.rng.random() < 0.4 and (self.functions or self.objects or self._breaks_protocol())
        message = self.request() if is_request else self.reply()
        return self.garbled_message(message) if self._breaks_protocol() else message

    def request(self) -> bytes:
        """Return a request to a function or an object of the test."""
        if self.functions and (self.rng.random() < 0.5 or not self.objects):
            return self._encode(
                b"?", ["call", self._random_index(self.functions), self.values(2), self._keyword_arguments()]
            )
        number = self._random_index(self.objects)
        supported = self._traits.get(number, _OPERATIONS)
        operation = self.rng.choice(
            _OPERATIONS if self._breaks_protocol() else ("getattr", "setattr", *supported)
        )
        arguments = (
            self.values(3)
            if self._breaks_protocol()
            else [self.value() for _ in range(_ARITY.get(operation, 1))]
        )
        if operation.endswith("attr"):
            arguments[:1] = [self.rng.choice(_NAMES)]
        if operation == "call" and not self._breaks_protocol():
            arguments = [self.values(2), self._keyword_arguments()]
        return self._encode(b"?", ["object", operation, number, arguments])

    def reply(self) -> bytes:
        """Return a reply to the last unanswered request."""
        request = self.unanswered.pop() if self.unanswered else []
        shared = self._shared = len(mutables(request))
        result = self.exception() if self.rng.random() < 0.35 else [_RETURNED, self.answer(request)]
        count = self._random_index(shared + 1) if self._breaks_protocol() else shared
        changes = self.changes(shared) if self.rng.random() < 0.2 else []
        tail = [encode([self.value(plain=True)])] if self._breaks_protocol() else []
        return self._encode(
            self._random_kind() if self._breaks_protocol() else b"!", [result, count, changes, *tail]
        )

    def shortest_reply(self) -> bytes:
        """Return the shortest valid reply to the last unanswered request, so that the test ends."""
        request = self.unanswered.pop() if self.unanswered else []
        return self._encode(b"!", [[_RETURNED, self._valid_result(request)], len(mutables(request)), []])

    def answer(self, request: list[Any]) -> object:
        """Return a value that fits the request in most cases."""
        # A result of the wrong type for one of these requests ends the link.
        must_fit = request[:1] in (["names"], ["take"], ["len"], ["str"], ["repr"])
        odd = self.rng.random() < 0.15 and not must_fit
        return self.value() if odd or self._breaks_protocol() else self._valid_result(request)

    def _valid_result(self, request: list[Any]) -> object:
        match request:
            case ["names", tuple() as names]:
                return {name: self._proxy_of(name) for name in names}
            case ["ping", nonce]:
                return nonce
            case ["take", *_]:
                return [self.values(3), self.rng.random() < 0.5]
            case ["state", *_]:
                return [0, {"v": self.value()}]
            case ["len" | "bool" | "str" | "repr" | "items" as operation, *_]:
                return {"len": 2, "bool": True, "str": "text", "repr": "text", "items": self.values(3)}[
                    operation
                ]
            case _:
                return self.value()

    def _proxy_of(self, name: str) -> object:
        if name == "Err" and not self._breaks_protocol():
            return _NamedReference(["exception", self.error_class()])
        return _NamedReference(["object", len(name), [True, False, False], [], {"__name__": name}])

    def exception(self) -> list[Any]:
        """Return an exception. Most are of a class that reads its arguments in C."""
        described = self.error_class()
        plain = not self._breaks_protocol()
        args = [self.value(plain=plain) for _ in range(self.rng.randrange(4))]
        attributes = {self.rng.choice(_NAMES): self.value(plain=plain) for _ in range(2)}
        if self.rng.random() < 0.5:
            start = self.rng.choice(_EDGES)
            end = start + 1 if self.rng.random() < 0.7 else self.rng.choice(_EDGES)
            described[1] = self.rng.choice(_UNICODE)
            held: object = b"abc" if described[1] == "UnicodeDecodeError" else "abc"
            args = (
                [held, start, end, "r"]
                if described[1] == "UnicodeTranslateError"
                else ["c", held, start, end, "r"]
            )
            if self.rng.random() < 0.5:
                args, attributes = [], {"object": held, "start": start, "end": end}
        number = self._random_index(self._failed) if self._failed and self.rng.random() < 0.2 else None
        return [_RAISED, described, args, attributes, number][: 4 if self._breaks_protocol() else 5]

    def error_class(self) -> list[Any]:
        """Return ``[chain, base]`` of an exception class."""
        length = 40 if self._breaks_protocol() else self.rng.choice((0, 0, 1, 2))
        chain = [[self._random_index(5), self.rng.choice((*_TEXTS, "AssertionError"))] for _ in range(length)]
        base = (
            self.rng.choice(("object", "eval", "int", ""))
            if self._breaks_protocol()
            else self.rng.choice(_ERRORS)
        )
        return [chain or None, base]

    def changes(self, shared: int) -> list[Any]:
        """Return the changes that the program claims to have made to containers of the test."""
        pairs = [[self._random_index(shared), self.values(4)[: self.rng.choice((2, 2, 4))]] for _ in range(2)]
        return pairs[: self.rng.randrange(3)] if shared else []

    def values(self, most: int) -> list[Any]:
        """Return up to ``most`` values."""
        return [self.value() for _ in range(self.rng.randrange(most + 1))]

    def value(self, depth: int = 0, *, plain: bool = False) -> Any:
        """Return any value, nested or named. ``plain``: without names."""
        kind = self.rng.randrange(10 if depth < _MAX_DEPTH else 4)
        if plain and 4 <= kind < 8:
            kind = 0
        if kind < 2:
            return self.rng.choice(_EDGES)
        if kind < 4:
            return self.rng.choice((*_TEXTS, None, True, 1.5, float("nan"), b"abc", bytearray(b"ab"), 1j))
        if kind < 8:
            return _NamedReference(self.name(depth + 1))
        items = [self.value(depth + 1, plain=plain) for _ in range(self.rng.randrange(4))]
        if kind == 8 and depth and self.rng.random() < 0.2:
            return {item for item in items if _has_stable_hash(item)}
        if kind == 8:
            return tuple(items) if self.rng.random() < 0.3 else items
        return dict(zip(_TEXTS, items, strict=False))

    def name(self, depth: int) -> object:
        """Return a name of a value that does not cross by value."""
        flags = [self.rng.random() < 0.4 for _ in range(3)]
        handle = [
            "object",
            self._random_index(6),
            flags,
            self._random_indexes(),
            {"__name__": self.rng.choice(_TEXTS)},
        ]
        if self._breaks_protocol():
            return self.rng.choice((["held", self._random_index(4)], ["kept"], [self.rng.choice(_TEXTS), 1]))
        fields = self.rng.sample(_FIELDS if self._breaks_protocol() else _FIELDS[:5], 2)
        items = [self.value(depth + 1) for _ in fields]
        own = handle[1] if self.rng.random() < 0.3 else None
        names: list[object] = [
            *(handle, handle),
            ["type", self.rng.choice(_TYPES if self._breaks_protocol() else _TYPES[:4])],
            ["exception", self.error_class()],
            ["record", [self.rng.choice(_TEXTS), fields, items], self._random_indexes(), own],
        ]
        if self.objects or self._breaks_protocol():
            names += [["object_of_yours", self._random_index(self.objects)]] * 2
        if self.functions or self._breaks_protocol():
            names += [["yours", self._random_index(self.functions)]] * 2
        if self._shared or self._breaks_protocol():
            names += [["shared", self._random_index(self._shared)]]
        return self.rng.choice(names)

    def garbled_message(self, message: bytes) -> bytes:
        """Return a message with some bytes changed. It may also be cut off or repeated."""
        data = bytearray(message)
        for _ in range(self.rng.randrange(1, 4)):
            data[self.rng.randrange(len(data))] = self.rng.randrange(256)
        cut = self.rng.randrange(len(data) + 1)
        return bytes(self.rng.choice((data, data[:cut], data + data[cut:])))

    def _encode(self, kind: bytes, message: object) -> bytes:
        try:
            return kind + encode(message, _name_of)
        except (NotInert, WireError, RecursionError):
            return kind + encode([_RETURNED, None])

    def _random_kind(self) -> bytes:
        return self.rng.choice((b"?", b"!", b"x", b""))

    def _breaks_protocol(self) -> bool:
        return self.rng.random() < self._violation_rate

    def _random_index(self, count: int) -> int:
        """Return an index below ``count``, or rarely one that is out of range."""
        if count < 1 or self._breaks_protocol():
            return self.rng.choice(_EDGES)
        return self.rng.randrange(count)

    def _random_indexes(self) -> list[Any]:
        return [self._random_index(4) for _ in range(self.rng.randrange(3))]

    def _keyword_arguments(self) -> dict[Any, Any]:
        return {self.rng.choice(_NAMES): self.value()} if self.rng.random() < 0.2 else {}
