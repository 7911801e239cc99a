"""The standard checkers as testlib writes them: streams read character by character, one verdict at the end.

Written from testlib's documentation and behaviour as a second opinion, on purpose in another style than
the checkers under test: everything here is sequential, nothing is a regular expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

BLANKS = b" \t\r\n"


class Refused(Exception):
    """The output is not accepted."""


class Broken(Exception):
    """The expected output is not what the checker reads."""


class Stream:
    """A text and a position in it. ``error`` is what reading something malformed raises."""

    def __init__(self, text: bytes, error: type[Exception]) -> None:
        self.text, self.at, self.error = text, 0, error

    def seek_end(self) -> bool:
        while self.at < len(self.text) and self.text[self.at] in BLANKS:
            self.at += 1
        return self.at == len(self.text)

    def token(self) -> bytes:
        if self.seek_end():
            raise self.error("end of file")
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in BLANKS:
            self.at += 1
        return self.text[start : self.at]

    def line(self) -> bytes:
        out = bytearray()
        while self.at < len(self.text) and self.text[self.at] != 10:
            if self.text[self.at] == 13:
                self.at += 1
                if self.at < len(self.text) and self.text[self.at] == 10:
                    break
                if self.at == len(self.text):
                    return bytes(out) + b"\xff"
            out.append(self.text[self.at])
            self.at += 1
        self.at += self.at < len(self.text)
        return bytes(out)

    def integer(self, bits: int = 64) -> int:
        token = self.token()
        digits = token[1:] if token[:1] == b"-" else token
        if not digits or any(c not in b"0123456789" for c in digits) or len(token) > 20:
            raise self.error("integer")
        if (digits[:1] == b"0" and len(digits) > 1) or token == b"-0":
            raise self.error("integer")
        value = 0
        for c in digits:
            value = value * 10 + c - 48
        value = -value if token[:1] == b"-" else value
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise self.error("range")
        return value

    def double(self) -> float:
        token = self.token()
        if any(c not in b"0123456789.eE+-" for c in token) or not any(48 <= c <= 57 for c in token):
            raise self.error("double")
        try:
            return float(token)
        except ValueError:
            raise self.error("double") from None


def near(expected: float, found: float, bound: float) -> bool:
    bound += 1e-15
    if math.isinf(expected) or abs(expected) > 1e300:
        return abs(found) > 1e300 and math.copysign(1, found) == math.copysign(1, expected)
    if abs(found) > 1e300:
        return False
    low, high = sorted([expected * (1 - bound), expected * (1 + bound)])
    return abs(found - expected) <= bound or low <= found <= high


def insist(condition: bool) -> None:
    if not condition:
        raise Refused


def lines(same: Callable[[bytes, bytes], bool]) -> Callable[[Stream, Stream], None]:
    def run(ans: Stream, out: Stream) -> None:
        while ans.at < len(ans.text):
            wanted = ans.line()
            if not wanted and ans.at == len(ans.text):
                break
            insist(same(wanted, out.line()))

    return run


def one(read: Callable[[Stream], object], same: Callable[[object, object], bool]) -> Callable[..., None]:
    def run(ans: Stream, out: Stream) -> None:
        wanted = read(ans)
        insist(same(wanted, read(out)))

    return run


def many(read: Callable[[Stream], object], same: Callable[..., bool]) -> Callable[[Stream, Stream], None]:
    def run(ans: Stream, out: Stream) -> None:
        wanted, found = [], []
        while not ans.seek_end():
            wanted.append(read(ans))
        while not out.seek_end():
            found.append(read(out))
        insist(len(wanted) == len(found) and all(map(same, wanted, found)))

    return run


def unordered(ans: Stream, out: Stream) -> None:
    def numbers(stream: Stream) -> list[int]:
        found = []
        while not stream.seek_end():
            found.append(stream.integer())
        return sorted(found)

    insist(numbers(ans) == numbers(out))


def word(stream: Stream) -> bytes:
    token = stream.token().upper()
    if token not in (b"YES", b"NO"):
        raise stream.error("yes or no")
    return token


def huge(stream: Stream) -> bytes:
    token = stream.token()
    digits = token[1:] if token[:1] == b"-" else token
    canonical = digits and all(48 <= c <= 57 for c in digits) and digits[0] != 48
    if token != b"0" and not canonical:
        raise stream.error("integer")
    if not stream.seek_end():
        raise stream.error("more than one token")
    return token


def cases(value: Callable[[Stream], object], single: bool) -> Callable[[Stream, Stream], None]:
    def read(stream: Stream) -> list[list[object]]:
        found: list[list[object]] = []
        ahead = False
        while not stream.seek_end():
            if not ahead and stream.token() != b"Case":
                raise stream.error("Case")
            ahead = False
            if stream.token() != str(len(found) + 1).encode() + b":":
                raise stream.error("number")
            values: list[object] = []
            while not stream.seek_end():
                start = stream.at
                if stream.token() == b"Case":
                    ahead = True
                    if stream.seek_end():
                        raise stream.error("Case without a number")
                    break
                stream.at = start
                values.append(value(stream))
            if single and len(values) != 1:
                raise stream.error("one value")
            found.append(values)
        return found

    def run(ans: Stream, out: Stream) -> None:
        wanted = read(ans)
        insist(wanted == read(out))

    return run


def equal(left: object, right: object) -> bool:
    return left == right


def absolute(bound: float) -> Callable[[Any, Any], bool]:
    return lambda wanted, found: not abs(wanted - found) > bound + 1e-15


def relative(bound: float) -> Callable[[Any, Any], bool]:
    return lambda wanted, found: near(wanted, found, bound)


MODELS: dict[str, Callable[[Stream, Stream], None]] = {
    "acmp": one(Stream.double, absolute(1.5e-6)),
    "caseicmp": cases(Stream.integer, single=True),
    "casencmp": cases(Stream.integer, single=False),
    "casewcmp": cases(Stream.token, single=False),
    "dcmp": one(Stream.double, relative(1e-6)),
    "fcmp": lines(equal),
    "hcmp": one(huge, equal),
    "icmp": one(lambda stream: stream.integer(32), equal),
    "lcmp": lines(lambda wanted, found: wanted.split() == found.split()),
    "ncmp": many(Stream.integer, equal),
    "nyesno": many(word, equal),
    "rcmp": one(Stream.double, absolute(1.5e-6)),
    "rcmp4": many(Stream.double, relative(1e-4)),
    "rcmp6": many(Stream.double, relative(1e-6)),
    "rcmp9": many(Stream.double, relative(1e-9)),
    "rncmp": many(Stream.double, absolute(1.5e-5)),
    "uncmp": unordered,
    "wcmp": many(Stream.token, equal),
    "yesno": one(word, equal),
}


def model(name: str, output: bytes, expected: bytes) -> bool | None:
    """Accepted, refused, or None where the expected output itself is malformed."""
    out = Stream(output, Refused)
    try:
        MODELS[name](Stream(expected, Broken), out)
        insist(out.seek_end())
    except Refused:
        return False
    except Broken:
        return None
    return True
