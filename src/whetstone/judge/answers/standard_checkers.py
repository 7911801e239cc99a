"""The standard checkers of testlib by name, with the rules of testlib at 1e4e8a2, on bytes in linear time.

Tokens are separated by space, tab, CR and LF only. Values have a strict form:

- an integer has no ``+``, no leading zero and is not ``-0``, and fits int64 (``icmp``: int32);
- a double consists of ``0-9 . e E + -`` and is one whole decimal number, so there is no nan, inf or 0x1;
- after the last value, the output may contain white space only.

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

These checkers refuse three things that testlib accepts: text after a byte 0xFF (its mark of the end of file),
a last ``Case`` without a number, and a double like ``1e`` (which C's ``scanf`` reads). If a checker cannot
read the expected output, the problem is at fault, whatever the program printed. Of a long output, only a few
more tokens or lines than expected are read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import islice, zip_longest

_TOKEN = re.compile(rb"[^ \t\r\n]+")
_INTEGER = re.compile(rb"0|-?[1-9][0-9]*")
_DOUBLE = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BLANKS = b" \t\r\n"
_INT32, _INT64 = 1 << 31, 1 << 63
_INT64_DIGITS = 20
_DOUBLE_BOUND = 1e300
_ROUNDING = 1e-15
# Tokens of an output with at least this number of bytes are counted before all of them are created.
_LONG_BYTES = 1 << 20

Items = list[bytes]
Read = Callable[[bytes, int], Items]
"""Splits a text into items.

A long text may be cut, but at least one item more than the given number is returned.
"""


class _Unreadable(Exception):
    """A text that does not have the form that the checker reads."""


def check_standard(name: str, output: bytes, expected: bytes) -> tuple[bool | None, str]:
    """Return (accepted, reason). The reason is empty if accepted. ``accepted`` is None if ``expected`` is
    unreadable.

    Raises KeyError for an unknown name.
    """
    checker = CHECKERS[name]
    try:
        wanted = checker.read(expected, len(expected))
    except _Unreadable as error:
        return None, f"the expected output does not fit the checker {name}: {error}"
    return checker.check(output, wanted)


class _Checker:
    """How to read a text, and how to compare two of them."""

    def __init__(self, read: Read, compare: Callable[[Items, Items], str] | None = None) -> None:
        self.read = read
        self._compare = compare or _compare_tokens

    def check(self, output: bytes, wanted: Items) -> tuple[bool, str]:
        try:
            difference = self._compare(self._read_output(output, len(wanted)), wanted)
        except _Unreadable as error:
            return False, str(error)
        return not difference, difference

    def _read_output(self, output: bytes, limit: int) -> Items:
        return self.read(output, limit)


class _One(_Checker):
    """Reads the first token. In an output, only white space may follow it."""

    def _read_output(self, output: bytes, limit: int) -> Items:
        items = self.read(output, limit)
        if len(_tokens(output, 1)) > 1:
            raise _Unreadable("extra output after the answer")
        return items


def _tokens(text: bytes, limit: int) -> Items:
    if len(text) < _LONG_BYTES:
        return _TOKEN.findall(text)
    return [match[0] for match in islice(_TOKEN.finditer(text), limit + 1)]


def _first_token(convert: Callable[[bytes], bytes]) -> Read:
    def read(text: bytes, _most: int) -> Items:
        found = _TOKEN.search(text)
        if found is None:
            raise _Unreadable("there is no token")
        return [convert(found[0])]

    return read


def _all_tokens(convert: Callable[[bytes], bytes]) -> Read:
    return lambda text, limit: [convert(token) for token in _tokens(text, limit)]


def _integer(token: bytes) -> bytes:
    if not _INTEGER.fullmatch(token):
        raise _Unreadable(f"{_show(token)} is not an integer")
    return token


def _int64(token: bytes) -> bytes:
    # Check the length first: converting a million digits would take quadratic time.
    if len(token) > _INT64_DIGITS or not -_INT64 <= int(_integer(token)) < _INT64:
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


def _single_integer(text: bytes, limit: int) -> Items:
    tokens = _tokens(text, limit)
    if len(tokens) != 1:
        raise _Unreadable(f"{len(tokens) or 'no'} tokens instead of one")
    return [_integer(tokens[0])]


def _case_values(convert: Callable[[bytes], bytes], single: bool = False) -> Read:
    """Read the values after ``Case 1:``, ``Case 2:`` and so on, each case after the word ``Case``."""

    def read(text: bytes, limit: int) -> Items:
        items: Items = []
        tokens = iter(_tokens(text, 2 * limit))
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


def _lines(text: bytes, limit: int) -> Items:
    """Return all lines as testlib reads them: a CR is dropped before LF, and elsewhere replaced by the
    next byte."""
    *ended, last = text.split(b"\n", -1 if len(text) < _LONG_BYTES else limit + 1)
    lines = [_without_returns(line) if b"\r" in line else line for line in ended]
    if last:
        final = last
        if b"\n" not in last:
            # As in testlib, a CR at the end of the text does not end a line. It is read with the end-of-file
            # mark.
            returns = len(last) - len(last.rstrip(b"\r"))
            final = _without_returns(last) + b"\xff" * (returns % 2)
        lines.append(final if last.strip(_BLANKS) else _Blank(final))
    return lines


def _without_returns(line: bytes) -> bytes:
    """Return a line in which each CR, from the left, has taken the next byte with it.

    A pair of CR becomes one CR. The line has no LF, so LF can stand for a pair meanwhile.
    """
    if b"\r\r" not in line:
        return line.replace(b"\r", b"")
    return line.replace(b"\r\r", b"\n").replace(b"\r", b"").replace(b"\n", b"\r")


class _Blank(bytes):
    """A last line of white space. It counts only if a line is expected there."""


def _count(found: Items, wanted: Items) -> str:
    """Return the number of found items. Of a long output, not all were read."""
    return "more" if len(found) > len(wanted) else str(len(found))


def _compare_tokens(found: Items, wanted: Items) -> str:
    """Return the difference of two sequences of tokens, as a reason; empty if there is none."""
    if found == wanted:
        return ""
    for number, (left, right) in enumerate(zip(found, wanted, strict=False)):
        if left != right:
            return f"token {number + 1}: got {_show(left)}, expected {_show(right)}"
    return f"{_count(found, wanted)} tokens, expected {len(wanted)}"


def _line_comparison(same: Callable[[bytes, bytes], bool]) -> Callable[[Items, Items], str]:
    def compare(found: Items, wanted: Items) -> str:
        # An empty last line of the expected text does not count. Lines that the output lacks count as empty.
        needed = wanted[:-1] if wanted and not wanted[-1] else wanted
        for number, (left, right) in enumerate(zip_longest(found[: len(needed)], needed, fillvalue=b"")):
            if left != right and not same(left, right):
                return f"line {number + 1}: got {_show(left)}, expected {_show(right)}"
        extra = b"".join(line for line in found[len(needed) :] if type(line) is not _Blank).strip(_BLANKS)
        return f"extra output {_show(extra)}" if extra else ""

    return compare


def _same_tokens(left: bytes, right: bytes) -> bool:
    needed = right.split()
    return left.split(None, len(needed)) == needed


def _compare_multisets(found: Items, wanted: Items) -> str:
    if len(found) != len(wanted):
        return f"{_count(found, wanted)} numbers, expected {len(wanted)}"
    return "" if Counter(found) == Counter(wanted) else "other numbers than expected"


def _number_comparison(close: Callable[[float, float], bool]) -> Callable[[Items, Items], str]:
    def compare(found: Items, wanted: Items) -> str:
        for number, (left, right) in enumerate(zip(found, wanted, strict=False)):
            if not close(float(left), float(right)):
                return f"number {number + 1}: got {_show(left)}, expected {_show(right)}"
        return "" if len(found) == len(wanted) else f"{_count(found, wanted)} numbers, expected {len(wanted)}"

    return compare


def _within_absolute(bound: float) -> Callable[[float, float], bool]:
    # The difference of two infinite doubles is nan. With this form of the condition they are equal, as in
    # testlib.
    return lambda found, wanted: not abs(wanted - found) > bound + _ROUNDING


def _within_absolute_or_relative(bound: float) -> Callable[[float, float], bool]:
    bound += _ROUNDING

    def close(found: float, wanted: float) -> bool:
        # testlib treats all doubles beyond this bound as infinite: only their signs are compared.
        if abs(wanted) > _DOUBLE_BOUND:
            return abs(found) > _DOUBLE_BOUND and (found > 0) == (wanted > 0)
        if abs(found) > _DOUBLE_BOUND:
            return False
        if abs(found - wanted) <= bound:
            return True
        ends = wanted * (1.0 - bound), wanted * (1.0 + bound)
        return min(ends) <= found <= max(ends)

    return close


def _show(token: bytes) -> str:
    return repr(token[:40].decode("utf-8", "replace") + ("…" if len(token) > 40 else ""))


CHECKERS: dict[str, _Checker] = {
    "acmp": _One(_first_token(_double), _number_comparison(_within_absolute(1.5e-6))),
    "caseicmp": _Checker(_case_values(_int64, single=True)),
    "casencmp": _Checker(_case_values(_int64)),
    "casewcmp": _Checker(_case_values(bytes)),
    "dcmp": _One(_first_token(_double), _number_comparison(_within_absolute_or_relative(1e-6))),
    "fcmp": _Checker(_lines, _line_comparison(bytes.__eq__)),
    "hcmp": _Checker(_single_integer),
    "icmp": _One(_first_token(_int32)),
    "lcmp": _Checker(_lines, _line_comparison(_same_tokens)),
    "ncmp": _Checker(_all_tokens(_int64)),
    "nyesno": _Checker(_all_tokens(_yes_or_no)),
    "rcmp": _One(_first_token(_double), _number_comparison(_within_absolute(1.5e-6))),
    "rcmp4": _Checker(_all_tokens(_double), _number_comparison(_within_absolute_or_relative(1e-4))),
    "rcmp6": _Checker(_all_tokens(_double), _number_comparison(_within_absolute_or_relative(1e-6))),
    "rcmp9": _Checker(_all_tokens(_double), _number_comparison(_within_absolute_or_relative(1e-9))),
    "rncmp": _Checker(_all_tokens(_double), _number_comparison(_within_absolute(1.5e-5))),
    "uncmp": _Checker(_all_tokens(_int64), _compare_multisets),
    "wcmp": _Checker(_tokens),
    "yesno": _One(_first_token(_yes_or_no)),
}
