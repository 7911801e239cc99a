"""Reading inert values: the decoder of ``values``, which treats what it reads as hostile.

Standard library only and self-contained: the same file runs inside the locked child and outside. What it
costs is bounded by counts of what was received, the same on every run:

- every item takes at least one byte, every length is checked before anything is made of it, depth is bounded;
- what is written once and named again later is text of at most ``MAX_SHARED_TEXT`` characters;
- numbers are taken as they stand: no fraction is reduced, nothing is divided;
- keys whose hashes are equal are compared with each other, all pairs of them: ``MAX_WORK`` times the bytes
  received is what such comparisons may read, and more is refused before any is made.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import partial
from struct import Struct as Layout
from struct import error as LayoutError
from typing import Any, cast

MAX_DEPTH = 100
MAX_SHARED_TEXT = 64
MAX_SHARED = 1 << 16
"""Texts of a message that can be named again, by their number."""
MAX_WORK, FREE_WORK = 256, 16 << 20
"""Bytes of colliding keys that may be read again: so many for each byte received, and so many besides."""
MOST_ITEMS = 8_000_000
"""Of a message that is short for so many; one that is longer may hold an item in each byte."""
_LARGE = 12
"""What a deque, Counter or ordered mapping counts for, which even empty takes that much more memory."""
_MOST_PARTS = 7
_SLOW = 500
"""What comparing two fractions, in Python itself, is worth in bytes."""
# What is done with a fraction or a decimal later takes quadratic time in its digits: beyond this, it is
# refused on both sides.
EXACT_BITS = 30_000
MAX_PART_BITS = 1024
"""Of the ends and the step of a range, and of what a date is made of: making them divides."""

# Neither reduces what it is given. The first is of Python 3.12 and later.
_unreduced: Callable[[int, int], Fraction] = getattr(Fraction, "_from_coprime_ints", None) or partial(
    cast("Any", Fraction), _normalize=False
)

SIZE = Layout("<Q")
FLOAT = Layout("<d")
INT = Layout("<q")
COMPLEX = Layout("<dd")
LITTLE = sys.byteorder == "little"

Importer = Callable[[object], object]
"""Gets the inert value that stood for an object. Raises WireError on nonsense."""


class WireError(Exception):
    """The bytes are not an encoding."""


class TooManyItems(WireError):
    """The bytes may be an encoding, of more items than the reader makes."""


class Reader:
    """Reads values from bytes. ``importer`` makes objects of what stands for them, where any may be."""

    def __init__(
        self,
        data: bytes,
        importer: Importer | None = None,
        readers: Sequence[ItemReader] | None = None,
        most_items: int | None = None,
    ) -> None:
        """``readers`` are those of each tag; beyond ``most_items`` in all containers it is refused."""
        self.data = data
        self.importer = importer
        self.readers = READERS if readers is None else readers
        self.most_items = max(len(data), MOST_ITEMS) if most_items is None else most_items
        self.position = 0
        self.items_read = 0
        self.work = 0
        self.texts: list[str] = []

    def value(self) -> Any:
        """The next whole value. Raises WireError."""
        try:
            return self.read(0)
        except (ValueError, TypeError, LookupError, OverflowError, ArithmeticError, LayoutError) as error:
            raise WireError(f"malformed: {type(error).__name__}") from None
        finally:
            self.texts.clear()

    def read(self, depth: int) -> Any:
        """One value, at this depth."""
        if depth > MAX_DEPTH + 4:
            raise WireError("nested too deep")
        position = self.position
        self.position = position + 1
        return self.readers[self.data[position]](self, depth)

    def take(self, size: int) -> bytes:
        """The next bytes."""
        position = self.position
        end = position + size
        if end > len(self.data):
            raise WireError("cut short")
        self.position = end
        return self.data[position:end]

    def size(self) -> int:
        """A length."""
        position = self.position
        self.position = position + 8
        return SIZE.unpack_from(self.data, position)[0]

    def byte(self) -> int:
        """A number of one byte."""
        position = self.position
        self.position = position + 1
        return self.data[position]

    def sized(self) -> bytes:
        """Bytes behind their length."""
        return self.take(self.size())

    def text(self, size: int) -> str:
        """Text of so many bytes, without surrogates."""
        return self.shared(str(self.take(size), "utf-8"))

    def shared(self, text: str) -> str:
        """The text, which has a number from here on if it is short."""
        if len(text) <= MAX_SHARED_TEXT and len(self.texts) < MAX_SHARED:
            self.texts.append(text)
        return text

    def counted(self, count: int) -> int:
        """``count`` more items, if so many may be."""
        self.items_read += count
        if self.items_read > self.most_items:
            raise TooManyItems(f"more than {self.most_items} items")
        return count

    def items(self, depth: int, per_item: int = 1) -> list[Any]:
        """As many values as the next length says."""
        if depth > MAX_DEPTH + 4:
            raise WireError("nested too deep")
        count = self.size() * per_item
        # Every item takes at least one byte: a count beyond that is a lie, found before any work.
        if count > len(self.data) - self.position:
            raise WireError("cut short")
        self.counted(count)
        data, readers, depth = self.data, self.readers, depth + 1
        items: list[Any] = []
        for _ in range(count):
            position = self.position
            self.position = position + 1
            items.append(readers[data[position]](self, depth))
        return items

    def keys(self, depth: int, paired: bool) -> tuple[list[Any], list[Any]]:
        """Keys, and with ``paired`` their values, that a hash table can be made of in linear time."""
        if depth > MAX_DEPTH + 4:
            raise WireError("nested too deep")
        count = self.size()
        if count > len(self.data) - self.position:
            raise WireError("cut short")
        self.counted(2 * count if paired else count)
        keys: list[Any] = []
        values: list[Any] = []
        costs: list[int] = []
        for _ in range(count):
            before = self.position + self.work
            keys.append(self.read(depth + 1))
            costs.append(self.position + self.work - before)
            if paired:
                values.append(self.read(depth + 1))
        hashes = list(map(hash, keys))
        if len(set(hashes)) < count:
            self._collide(hashes, costs)
        return keys, values

    def _collide(self, hashes: list[int], costs: list[int]) -> None:
        """Count what comparing the keys of equal hash may read, keys inside keys included."""
        alike: dict[int, list[int]] = {}
        for value, cost in zip(hashes, costs, strict=True):
            alike.setdefault(value, []).append(cost)
        self.work += sum(len(group) * (len(group) - 1) // 2 * max(group) for group in alike.values())
        if self.work > MAX_WORK * len(self.data) + FREE_WORK:
            raise WireError("keys with equal hashes")


ItemReader = Callable[[Reader, int], Any]


def _unknown(_r: Reader, _depth: int) -> Any:
    raise WireError("unknown tag")


def _read_int(r: Reader, _depth: int) -> int:
    position = r.position
    r.position = position + 8
    return INT.unpack_from(r.data, position)[0]


def _read_packed(make: Callable[[Any], Any]) -> ItemReader:
    """Numbers of one type, or texts that were written before, side by side."""

    def read(r: Reader, _depth: int) -> Any:
        code = chr(r.byte())
        data = r.take(r.byte() or r.size())
        named = code in "tT"
        if code in "Bt":
            r.counted(len(data))
            return make(map(r.texts.__getitem__, data) if named else data)
        if code not in "iqdT":
            raise WireError("unknown kind of array")
        packed = array("H" if named else code)
        packed.frombytes(data)
        r.counted(len(packed))
        if not LITTLE:
            packed.byteswap()
        return make(map(r.texts.__getitem__, packed) if named else packed)

    return read


def _read_pairs(make: Callable[[], dict[Any, Any]]) -> ItemReader:
    def read(r: Reader, depth: int) -> Any:
        if make is not dict:
            r.counted(_LARGE)
        result = make()
        for key, value in zip(*r.keys(depth, paired=True), strict=True):
            result[key] = value
        return result

    return read


def _read_deque(r: Reader, depth: int) -> Any:
    r.counted(_LARGE)
    return deque(r.items(depth))


def _read_fraction(r: Reader, depth: int) -> Any:
    numerator, denominator = r.read(depth + 1), r.read(depth + 1)
    if type(numerator) is not int or type(denominator) is not int:
        raise WireError("malformed fraction")
    if denominator <= 0 or max(numerator.bit_length(), denominator.bit_length()) > EXACT_BITS:
        raise WireError("a fraction with very large parts, or none")
    r.work += _SLOW
    # A fraction that a program's process wrote is reduced. One that is not equals no other.
    return _unreduced(numerator, denominator)


def _read_decimal(r: Reader, _depth: int) -> Any:
    text = r.sized()
    if len(text) > EXACT_BITS // 3:
        raise WireError("a decimal with very many digits")
    try:
        return Decimal(text.decode("ascii"))
    except InvalidOperation:
        raise WireError("malformed decimal") from None


def _read_ints(make: Callable[..., Any]) -> ItemReader:
    def read(r: Reader, depth: int) -> Any:
        parts = r.read(depth + 1)
        if type(parts) is not tuple or len(cast("tuple[object, ...]", parts)) > _MOST_PARTS:
            raise WireError("malformed parts")
        for part in cast("tuple[object, ...]", parts):
            if type(part) is not int or part.bit_length() > MAX_PART_BITS:
                raise WireError("malformed parts")
        return make(*parts)

    return read


def _of_code_points(data: bytes) -> str:
    """Text that holds surrogates. As UTF-8, each of them would take the decoder twenty times as long."""
    points = array("I")
    points.frombytes(data)
    if not LITTLE:
        points.byteswap()
    return "".join(map(chr, points))


def _read_handle(r: Reader, depth: int) -> Any:
    name = r.read(depth + 1)
    if r.importer is None:
        raise WireError("a handle where only plain values may be")
    return r.importer(name)


TAGS: dict[bytes, ItemReader] = {
    b"N": lambda r, d: None,
    b"e": lambda r, d: Ellipsis,
    b"T": lambda r, d: True,
    b"F": lambda r, d: False,
    b"i": _read_int,
    b"j": lambda r, d: r.byte(),
    b"I": lambda r, d: int.from_bytes(r.sized(), "little", signed=True),
    b"f": lambda r, d: FLOAT.unpack(r.take(8))[0],
    b"c": lambda r, d: complex(*COMPLEX.unpack(r.take(16))),
    b"x": lambda r, d: r.shared(_of_code_points(r.sized())),
    b"s": lambda r, d: r.text(r.size()),
    b"u": lambda r, d: r.text(r.byte()),
    b"v": lambda r, d: r.texts[r.byte()],
    b"w": lambda r, d: r.texts[int.from_bytes(r.take(2), "little")],
    b"b": lambda r, d: r.sized(),
    b"B": lambda r, d: bytearray(r.sized()),
    b"l": lambda r, d: r.items(d),
    b"t": lambda r, d: tuple(r.items(d)),
    b"P": _read_packed(list),
    b"p": _read_packed(tuple),
    b"S": lambda r, d: set(r.keys(d, paired=False)[0]),
    b"Z": lambda r, d: frozenset(r.keys(d, paired=False)[0]),
    b"E": _read_deque,
    b"d": _read_pairs(dict),
    b"O": _read_pairs(OrderedDict),
    b"C": _read_pairs(Counter),
    b"D": _read_decimal,
    b"Q": _read_fraction,
    b"h": _read_handle,
    b"1": _read_ints(date),
    b"2": _read_ints(datetime),
    b"3": _read_ints(time),
    b"4": _read_ints(timedelta),
    b"R": _read_ints(range),
}


def table(tags: dict[bytes, ItemReader]) -> list[ItemReader]:
    """The reader of every byte that can stand where a value begins."""
    return [tags.get(bytes([byte]), _unknown) for byte in range(256)]


READERS = table(TAGS)
