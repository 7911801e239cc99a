"""The standard checkers of testlib by name, with the rules of testlib at 1e4e8a2, on bytes in linear time.

Tokens are separated by space, tab, CR and LF alone. What a checker reads, it reads strictly:

- an integer has no ``+``, no leading zero and is not ``-0``, and fits int64 (``icmp``: int32);
- a double consists of ``0-9 . e E + -`` and is one whole decimal number, so there is no nan, inf or 0x1;
- after what is read, only white space may be left in the output.

| name | accepts |
| --- | --- |
| ``wcmp`` | the same tokens |
| ``lcmp`` | lines with the same tokens; ``fcmp``: the same lines (a final newline aside) |
| ``icmp``, ``hcmp`` | one int32; one integer of any size |
| ``ncmp``, ``uncmp`` | the same int64 numbers in order; in any order |
| ``yesno``, ``nyesno`` | one, or many, of YES and NO in any case |
| ``rcmp``, ``acmp`` | one double within 1.5e-6 absolute; ``rncmp``: many within 1.5e-5 |
| ``dcmp`` | one double within 1e-6 absolute or relative |
| ``rcmp4``, ``rcmp6``, ``rcmp9`` | doubles within 1e-4, 1e-6 or 1e-9, absolute or relative |
| ``caseicmp``, ``casencmp``, ``casewcmp`` | after ``Case 1:`` and so on: one int64, many, tokens |

Ours refuse three things that testlib lets pass: text after a byte 0xFF (which it takes for the end of
the file), a last ``Case`` without a number, and a double like ``1e`` (which C's ``scanf`` reads). An expected
output that a checker cannot read is the problem's fault, whatever the program printed. Of a long output no
more tokens or lines are read than are expected, and a few.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import islice, zip_longest

_TOKEN = re.compile(rb"[^ \t\r\n]+")
_INTEGER = re.compile(rb"0|-?[1-9][0-9]*")
_DOUBLE = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_RETURN = re.compile(rb"\r([^\n]?)")
_BLANKS = b" \t\r\n"
_INT32, _INT64 = 1 << 31, 1 << 63
_INT64_DIGITS = 20
_HUGE = 1e300
_ROUNDING = 1e-15
_LONG = 1 << 20
"""Bytes from which on the tokens of an output are counted before they are all made."""

Items = list[bytes]
Read = Callable[[bytes, int], Items]
"""Text into items, that many and one more at least if it is long."""


class _Unreadable(Exception):
    """A text does not have the form that the checker reads."""


def check_standard(name: str, output: bytes, expected: bytes) -> tuple[bool | None, str]:
    """(accepted, reason), the reason empty when accepted; accepted is None if ``expected`` is unreadable.

    Raises KeyError for an unknown name.
    """
    checker = CHECKERS[name]
    try:
        wanted = checker.read(expected, len(expected))
    except _Unreadable as error:
        return None, f"the expected output does not fit the checker {name}: {error}"
    return checker.check(output, wanted)


class _Checker:
    """How to read a text, and when one reading meets another."""

    def __init__(self, read: Read, meets: Callable[[Items, Items], str] | None = None) -> None:
        self.read = read
        self._meets = meets or _same

    def check(self, output: bytes, wanted: Items) -> tuple[bool, str]:
        try:
            difference = self._meets(self._read_output(output, len(wanted)), wanted)
        except _Unreadable as error:
            return False, str(error)
        return not difference, difference

    def _read_output(self, output: bytes, most: int) -> Items:
        return self.read(output, most)


class _One(_Checker):
    """Reads the first token; of an output, nothing but white space may follow it."""

    def _read_output(self, output: bytes, most: int) -> Items:
        items = self.read(output, most)
        if len(_tokens(output, 1)) > 1:
            raise _Unreadable("extra output after the answer")
        return items


def _tokens(text: bytes, most: int) -> Items:
    if len(text) < _LONG:
        return _TOKEN.findall(text)
    return [match[0] for match in islice(_TOKEN.finditer(text), most + 1)]


def _first(convert: Callable[[bytes], bytes]) -> Read:
    def read(text: bytes, _most: int) -> Items:
        found = _TOKEN.search(text)
        if found is None:
            raise _Unreadable("there is no token")
        return [convert(found[0])]

    return read


def _each(convert: Callable[[bytes], bytes]) -> Read:
    return lambda text, most: [convert(token) for token in _tokens(text, most)]


def _huge(token: bytes) -> bytes:
    if not _INTEGER.fullmatch(token):
        raise _Unreadable(f"{_show(token)} is not an integer")
    return token


def _int64(token: bytes) -> bytes:
    # The length first: converting a million digits would take quadratic time.
    if len(token) > _INT64_DIGITS or not -_INT64 <= int(_huge(token)) < _INT64:
        raise _Unreadable(f"{_show(token)} is not an int64")
    return token


def _int32(token: bytes) -> bytes:
    if not -_INT32 <= int(_int64(token)) < _INT32:
        raise _Unreadable(f"{_show(token)} is not an int32")
    return token


def _double(token: bytes) -> bytes:
    if not _DOUBLE.fullmatch(token):
        raise _Unreadable(f"{_show(token)} is not a double")
    return token


def _yes_or_no(token: bytes) -> bytes:
    if token.upper() not in (b"YES", b"NO"):
        raise _Unreadable(f"{_show(token)} is neither YES nor NO")
    return token.upper()


def _single_huge(text: bytes, most: int) -> Items:
    tokens = _tokens(text, most)
    if len(tokens) != 1:
        raise _Unreadable(f"{len(tokens) or 'no'} tokens instead of one")
    return [_huge(tokens[0])]


def _cases(convert: Callable[[bytes], bytes], single: bool = False) -> Read:
    """The values after ``Case 1:``, ``Case 2:`` and so on, with the word itself before each case's."""

    def read(text: bytes, most: int) -> Items:
        items: Items = []
        tokens = iter(_tokens(text, 2 * most))
        number = size = 0
        for token in tokens:
            if token == b"Case":
                number += 1
                if next(tokens, b"") != b"%d:" % number:
                    raise _Unreadable(f"`{number}:` is missing after `Case`")
                if single and number > 1 and not size:
                    raise _Unreadable(f"case {number - 1} has no value")
                size = 0
                items.append(token)
                continue
            size += 1
            if not number or (single and size > 1):
                raise _Unreadable(f"`Case` is missing before {_show(token)}")
            items.append(convert(token))
        if single and number and not size:
            raise _Unreadable(f"case {number} has no value")
        return items

    return read


def _lines(text: bytes, most: int) -> Items:
    """All lines as testlib reads them: CR before LF is dropped, and elsewhere gives way to what follows."""
    *ended, last = text.split(b"\n", -1 if len(text) < _LONG else most + 1)
    lines = [_RETURN.sub(rb"\1", line) if b"\r" in line else line for line in ended]
    if last:
        # As there, a CR that ends the text is not the end of a line, but read with the mark of its end.
        read = last if b"\n" in last else _RETURN.sub(lambda match: match[1] or b"\xff", last)
        lines.append(read if last.strip(_BLANKS) else _Blank(read))
    return lines


class _Blank(bytes):
    """A last line of white space, which counts only where a line is asked for."""


def _count(found: Items, wanted: Items) -> str:
    """How many were found; of a long output, not all were looked for."""
    return "more" if len(found) > len(wanted) else str(len(found))


def _same(found: Items, wanted: Items) -> str:
    """What differs between two sequences of tokens, as a reason; empty when nothing does."""
    if found == wanted:
        return ""
    for number, (left, right) in enumerate(zip(found, wanted, strict=False)):
        if left != right:
            return f"token {number + 1}: got {_show(left)}, expected {_show(right)}"
    return f"{_count(found, wanted)} tokens, expected {len(wanted)}"


def _same_lines(same: Callable[[bytes, bytes], bool]) -> Callable[[Items, Items], str]:
    def meets(found: Items, wanted: Items) -> str:
        # The expected text's last line does not count when it is empty; lines the output lacks are empty.
        needed = wanted[:-1] if wanted and not wanted[-1] else wanted
        for number, (left, right) in enumerate(zip_longest(found[: len(needed)], needed, fillvalue=b"")):
            if left != right and not same(left, right):
                return f"line {number + 1}: got {_show(left)}, expected {_show(right)}"
        extra = b"".join(line for line in found[len(needed) :] if type(line) is not _Blank).strip(_BLANKS)
        return f"extra output {_show(extra)}" if extra else ""

    return meets


def _same_tokens(left: bytes, right: bytes) -> bool:
    needed = right.split()
    return left.split(None, len(needed)) == needed


def _same_multiset(found: Items, wanted: Items) -> str:
    if len(found) != len(wanted):
        return f"{_count(found, wanted)} numbers, expected {len(wanted)}"
    return "" if Counter(found) == Counter(wanted) else "other numbers than expected"


def _near(close: Callable[[float, float], bool]) -> Callable[[Items, Items], str]:
    def meets(found: Items, wanted: Items) -> str:
        for number, (left, right) in enumerate(zip(found, wanted, strict=False)):
            if not close(float(left), float(right)):
                return f"number {number + 1}: got {_show(left)}, expected {_show(right)}"
        return "" if len(found) == len(wanted) else f"{_count(found, wanted)} numbers, expected {len(wanted)}"

    return meets


def _absolute(bound: float) -> Callable[[float, float], bool]:
    # Written so that two infinite doubles, whose difference is no number, meet, as they do in testlib.
    return lambda found, wanted: not abs(wanted - found) > bound + _ROUNDING


def _absolute_or_relative(bound: float) -> Callable[[float, float], bool]:
    bound += _ROUNDING

    def close(found: float, wanted: float) -> bool:
        if abs(wanted) > _HUGE:
            return abs(found) > _HUGE and (found > 0) == (wanted > 0)
        if abs(found) > _HUGE:
            return False
        if abs(found - wanted) <= bound:
            return True
        ends = wanted * (1.0 - bound), wanted * (1.0 + bound)
        return min(ends) <= found <= max(ends)

    return close


def _show(token: bytes) -> str:
    return repr(token[:40].decode("utf-8", "replace") + ("…" if len(token) > 40 else ""))


CHECKERS: dict[str, _Checker] = {
    "acmp": _One(_first(_double), _near(_absolute(1.5e-6))),
    "caseicmp": _Checker(_cases(_int64, single=True)),
    "casencmp": _Checker(_cases(_int64)),
    "casewcmp": _Checker(_cases(bytes)),
    "dcmp": _One(_first(_double), _near(_absolute_or_relative(1e-6))),
    "fcmp": _Checker(_lines, _same_lines(bytes.__eq__)),
    "hcmp": _Checker(_single_huge),
    "icmp": _One(_first(_int32)),
    "lcmp": _Checker(_lines, _same_lines(_same_tokens)),
    "ncmp": _Checker(_each(_int64)),
    "nyesno": _Checker(_each(_yes_or_no)),
    "rcmp": _One(_first(_double), _near(_absolute(1.5e-6))),
    "rcmp4": _Checker(_each(_double), _near(_absolute_or_relative(1e-4))),
    "rcmp6": _Checker(_each(_double), _near(_absolute_or_relative(1e-6))),
    "rcmp9": _Checker(_each(_double), _near(_absolute_or_relative(1e-9))),
    "rncmp": _Checker(_each(_double), _near(_absolute(1.5e-5))),
    "uncmp": _Checker(_each(_int64), _same_multiset),
    "wcmp": _Checker(_tokens),
    "yesno": _One(_first(_yes_or_no)),
}
