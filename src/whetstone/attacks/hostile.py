"""What a hostile program says on its link: well-formed, malformed and misplaced messages, drawn at random."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

from whetstone.judge.harness.link import mutables
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
class Named:
    """Stands for what crosses by a name."""

    name: object

    def __hash__(self) -> int:
        return crc32(repr(self.name).encode("utf-8", "surrogatepass"))  # in sets, the same order always


def _has_the_same_place_everywhere(item: object) -> bool:
    """Whether its hash over there does not depend on where it lies: in a set, that shows in the order."""
    if isinstance(item, Named):
        return isinstance(item.name, list) and item.name[:1] == ["object"]
    return isinstance(item, (int, str))


def _named(value: object) -> object:
    if isinstance(value, Named):
        return value.name
    raise NotInert("a value of no use here")


class Hostile:
    """A program that wants anything but a verdict. What it says follows from ``draw`` and what it hears."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        # How often it breaks the protocol: the first time is the last, so most keep to it for long.
        self._wild = draw.choice((0.0, 0.001, 0.01, 0.1))
        self.owed: list[list[Any]] = []
        """Requests of the test's that were not answered yet, the last one first to be."""
        self.functions = self.objects = self._shared = self._failed = 0
        self._traits: dict[int, tuple[str, ...]] = {}
        """How many functions and objects of the test's were handed over."""

    def hear(self, data: bytes) -> None:
        """Take in a message of the testing process."""
        message: list[Any] = decode(data[1:], self._met)
        match message:
            case [[str() as said, *_, int() as number], *_] if said == _RAISED:
                self._failed = max(self._failed, number + 1)
            case _:
                pass
        if data[:1] == b"?":
            self.owed.append(message)

    def _met(self, name: Any) -> object:
        match name:
            case ["callback", int() as number, _]:
                self.functions = max(self.functions, number + 1)
            case ["object", int() as number, *_, tuple() as traits]:
                self.objects = max(self.objects, number + 1)
                self._traits[number] = traits
            case _:
                pass
        return Named(name)

    def greeting(self) -> bytes:
        """The first message."""
        if self._rarely():
            return self._sent(self._kind(), self.value())
        return self._sent(b"!", ["loaded"])

    def message(self) -> bytes:
        """Something to say now."""
        asks = self.draw.random() < 0.4 and (self.functions or self.objects or self._rarely())
        made = self.request() if asks else self.reply()
        return self.garbled(made) if self._rarely() else made

    def request(self) -> bytes:
        """Use a function or an object of the test's."""
        if self.functions and (self.draw.random() < 0.5 or not self.objects):
            return self._sent(b"?", ["call", self._number(self.functions), self.values(2), self._keywords()])
        number = self._number(self.objects)
        has = self._traits.get(number, _OPERATIONS)
        operation = self.draw.choice(_OPERATIONS if self._rarely() else ("getattr", "setattr", *has))
        arguments = (
            self.values(3) if self._rarely() else [self.value() for _ in range(_ARITY.get(operation, 1))]
        )
        if operation.endswith("attr"):
            arguments[:1] = [self.draw.choice(_NAMES)]
        if operation == "call" and not self._rarely():
            arguments = [self.values(2), self._keywords()]
        return self._sent(b"?", ["object", operation, number, arguments])

    def reply(self) -> bytes:
        """Answer what is owed."""
        asked = self.owed.pop() if self.owed else []
        shared = self._shared = len(mutables(asked))
        said = self.raised() if self.draw.random() < 0.35 else [_RETURNED, self.answer(asked)]
        count = self._number(shared + 1) if self._rarely() else shared
        changes = self.changes(shared) if self.draw.random() < 0.2 else []
        tail = [encode([self.value(plain=True)])] if self._rarely() else []
        return self._sent(self._kind() if self._rarely() else b"!", [said, count, changes, *tail])

    def dutiful(self) -> bytes:
        """Answer what is owed as shortly as can be, so that the test comes to its end."""
        asked = self.owed.pop() if self.owed else []
        return self._sent(b"!", [[_RETURNED, self._expected(asked)], len(mutables(asked)), []])

    def answers_with(self, value: object) -> Callable[[], bytes]:
        """What a program says that gives this value for every call, and keeps to the protocol."""

        def answer() -> bytes:
            asked = self.owed.pop()
            given = self._expected(asked) if asked[0] in ("names", "ping") else value
            return self._sent(b"!", [[_RETURNED, given], len(mutables(asked)), []])

        self._wild = 0.0
        return answer

    def answer(self, asked: list[Any]) -> object:
        """A value that mostly fits the request."""
        odd = self.draw.random() < 0.15 and asked[:1] not in (["names"], ["take"], ["len"], ["str"], ["repr"])
        return self.value() if odd or self._rarely() else self._expected(asked)

    def _expected(self, asked: list[Any]) -> object:
        match asked:
            case ["names", tuple() as names]:
                return {name: self._stand_for(name) for name in names}
            case ["ping", nonce]:
                return nonce
            case ["take", *_]:
                return [self.values(3), self.draw.random() < 0.5]
            case ["state", *_]:
                return [0, {"v": self.value()}]
            case ["len" | "bool" | "str" | "repr" | "items" as operation, *_]:
                return {"len": 2, "bool": True, "str": "text", "repr": "text", "items": self.values(3)}[
                    operation
                ]
            case _:
                return self.value()

    def _stand_for(self, name: str) -> object:
        if name == "Err" and not self._rarely():
            return Named(["exception", self.error_class()])
        return Named(["object", len(name), [True, False, False], [], {"__name__": name}])

    def raised(self) -> list[Any]:
        """An exception, most often of a class that reads its arguments in C."""
        described = self.error_class()
        plain = not self._rarely()
        args = [self.value(plain=plain) for _ in range(self.draw.randrange(4))]
        attributes = {self.draw.choice(_NAMES): self.value(plain=plain) for _ in range(2)}
        if self.draw.random() < 0.5:
            start = self.draw.choice(_EDGES)
            end = start + 1 if self.draw.random() < 0.7 else self.draw.choice(_EDGES)
            described[1] = self.draw.choice(_UNICODE)
            held: object = b"abc" if described[1] == "UnicodeDecodeError" else "abc"
            args = (
                [held, start, end, "r"]
                if described[1] == "UnicodeTranslateError"
                else ["c", held, start, end, "r"]
            )
            if self.draw.random() < 0.5:
                args, attributes = [], {"object": held, "start": start, "end": end}
        number = self._number(self._failed) if self._failed and self.draw.random() < 0.2 else None
        return [_RAISED, described, args, attributes, number][: 4 if self._rarely() else 5]

    def error_class(self) -> list[Any]:
        """``[chain, base]`` of an exception class."""
        length = 40 if self._rarely() else self.draw.choice((0, 0, 1, 2))
        chain = [[self._number(5), self.draw.choice((*_TEXTS, "AssertionError"))] for _ in range(length)]
        base = (
            self.draw.choice(("object", "eval", "int", "")) if self._rarely() else self.draw.choice(_ERRORS)
        )
        return [chain or None, base]

    def changes(self, shared: int) -> list[Any]:
        """What the program says that it made of the test's containers."""
        pairs = [[self._number(shared), self.values(4)[: self.draw.choice((2, 2, 4))]] for _ in range(2)]
        return pairs[: self.draw.randrange(3)] if shared else []

    def values(self, most: int) -> list[Any]:
        """Up to so many values."""
        return [self.value() for _ in range(self.draw.randrange(most + 1))]

    def value(self, depth: int = 0, *, plain: bool = False) -> Any:
        """Any value, nested or named; if ``plain``, without names."""
        kind = self.draw.randrange(10 if depth < _MAX_DEPTH else 4)
        if plain and 4 <= kind < 8:
            kind = 0
        if kind < 2:
            return self.draw.choice(_EDGES)
        if kind < 4:
            return self.draw.choice((*_TEXTS, None, True, 1.5, float("nan"), b"abc", bytearray(b"ab"), 1j))
        if kind < 8:
            return Named(self.name(depth + 1))
        items = [self.value(depth + 1, plain=plain) for _ in range(self.draw.randrange(4))]
        if kind == 8 and depth and self.draw.random() < 0.2:
            return {item for item in items if _has_the_same_place_everywhere(item)}
        if kind == 8:
            return tuple(items) if self.draw.random() < 0.3 else items
        return dict(zip(_TEXTS, items, strict=False))

    def name(self, depth: int) -> object:
        """A name for what does not cross by value."""
        flags = [self.draw.random() < 0.4 for _ in range(3)]
        handle = ["object", self._number(6), flags, self._numbers(), {"__name__": self.draw.choice(_TEXTS)}]
        if self._rarely():
            return self.draw.choice((["held", self._number(4)], ["kept"], [self.draw.choice(_TEXTS), 1]))
        fields = self.draw.sample(_FIELDS if self._rarely() else _FIELDS[:5], 2)
        items = [self.value(depth + 1) for _ in fields]
        own = handle[1] if self.draw.random() < 0.3 else None
        names: list[object] = [
            *(handle, handle),
            ["type", self.draw.choice(_TYPES if self._rarely() else _TYPES[:4])],
            ["exception", self.error_class()],
            ["record", [self.draw.choice(_TEXTS), fields, items], self._numbers(), own],
        ]
        if self.objects or self._rarely():
            names += [["object_of_yours", self._number(self.objects)]] * 2
        if self.functions or self._rarely():
            names += [["yours", self._number(self.functions)]] * 2
        if self._shared or self._rarely():
            names += [["shared", self._number(self._shared)]]
        return self.draw.choice(names)

    def garbled(self, message: bytes) -> bytes:
        """A message with some of its bytes changed, cut off or repeated; sometimes more than one."""
        data = bytearray(message)
        for _ in range(self.draw.randrange(1, 4)):
            data[self.draw.randrange(len(data))] = self.draw.randrange(256)
        cut = self.draw.randrange(len(data) + 1)
        return bytes(self.draw.choice((data, data[:cut], data + data[cut:])))

    def _sent(self, kind: bytes, message: object) -> bytes:
        try:
            return kind + encode(message, _named)
        except (NotInert, WireError, RecursionError):
            return kind + encode([_RETURNED, None])

    def _kind(self) -> bytes:
        return self.draw.choice((b"?", b"!", b"x", b""))

    def _rarely(self) -> bool:
        return self.draw.random() < self._wild

    def _number(self, count: int) -> int:
        """An index below ``count``, or one that is out of range."""
        if count < 1 or self._rarely():
            return self.draw.choice(_EDGES)
        return self.draw.randrange(count)

    def _numbers(self) -> list[Any]:
        return [self._number(4) for _ in range(self.draw.randrange(3))]

    def _keywords(self) -> dict[Any, Any]:
        return {self.draw.choice(_NAMES): self.value()} if self.draw.random() < 0.2 else {}
