"""The decoder of ``values``, which treats its input as hostile.

Standard library only and self-contained: the same file runs inside the sandbox and outside. Its cost is
limited by counts of the received data, which are the same in every run:

- Each item takes at least one byte. Each length is checked before an allocation. The depth is limited.
- Only text of at most ``MAX_SHARED_TEXT`` characters can be written once and referenced later.
- Numbers are used as they are written: no fraction is reduced, and nothing is divided.
- Keys with equal hashes are compared with each other in all pairs. Such comparisons may read ``MAX_WORK``
  times the received bytes; more work is refused before it is done.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import partial
from struct import Struct as Layout
from struct import error as LayoutError
from typing import Any, cast

from whetstone.judge.plain_forms import read_timezone

MAX_DEPTH = 100
# The name of an object may be this much deeper.
NAME_DEPTH = 4
MAX_SHARED_TEXT = 64
# The number of texts of a message that can be referenced by their number.
MAX_SHARED = 1 << 16
# The limit of bytes of colliding keys that may be read again: a factor of the received bytes, plus a
# constant.
MAX_WORK, FREE_WORK = 256, 16 << 20
# The limit of items in a short message. A longer message may have an item in each byte.
MAX_ITEMS = 8_000_000
# A deque, Counter or ordered mapping counts as this number of items, because even an empty one needs that
# much memory.
_LARGE_CONTAINER_ITEMS = 12
_MAX_PARTS = 7
# The comparison of two fractions runs in Python code, and counts as reading this number of bytes.
_FRACTION_WORK = 500
# Later operations on a fraction or decimal take quadratic time in its digits. Larger ones are refused by both
# processes.
EXACT_BITS = 30_000
# The limit of the parts of a range or date, because creating these divides.
MAX_PART_BITS = 1024

# Both alternatives create a fraction without reducing it. The first one exists since Python 3.12.
_unreduced: Callable[[int, int], Fraction] = getattr(Fraction, "_from_coprime_ints", None) or partial(
    cast("Any", Fraction), _normalize=False
)

SIZE = Layout("<Q")
FLOAT = Layout("<d")
INT = Layout("<q")
COMPLEX = Layout("<dd")
LITTLE = sys.byteorder == "little"

Importer = Callable[[object], object]
"""Returns the object for the plain value that was sent for it. Raises WireError if it is malformed."""


class WireError(Exception):
    """The bytes are not a valid encoding."""


class TooManyItems(WireError):
    """The bytes may be a valid encoding, but have more items than the reader accepts."""


class Reader:
    """Reads values from bytes. ``importer`` returns the objects for handles, where they are allowed."""

    def __init__(
        self,
        data: bytes,
        importer: Importer | None = None,
        readers: Sequence[ItemReader] | None = None,
        max_items: int | None = None,
    ) -> None:
        """``readers``: the reader of each tag.

        More than ``max_items`` items in all containers are refused.
        """
        self.data = data
        self.importer = importer
        self.readers = READERS if readers is None else readers
        self.max_items = max(len(data), MAX_ITEMS) if max_items is None else max_items
        self.position = 0
        self.items_read = 0
        self.work = 0
        self.texts: list[str] = []

    def value(self) -> Any:
        """Return the next complete value. Raises WireError."""
        try:
            return self.read(0)
        except (ValueError, TypeError, LookupError, OverflowError, ArithmeticError, LayoutError) as error:
            raise WireError(f"malformed: {type(error).__name__}") from None
        finally:
            self.texts.clear()

    def read(self, depth: int) -> Any:
        """Return one value at this depth."""
        if depth > MAX_DEPTH + NAME_DEPTH:
            raise WireError("nested too deep")
        position = self.position
        self.position = position + 1
        return self.readers[self.data[position]](self, depth)

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        position = self.position
        end = position + size
        if end > len(self.data):
            raise WireError("cut short")
        self.position = end
        return self.data[position:end]

    def size(self) -> int:
        """Return a length."""
        position = self.position
        self.position = position + 8
        return SIZE.unpack_from(self.data, position)[0]

    def byte(self) -> int:
        """Return a number of one byte."""
        position = self.position
        self.position = position + 1
        return self.data[position]

    def sized_bytes(self) -> bytes:
        """Return bytes that follow their length."""
        return self.take(self.size())

    def text(self, size: int) -> str:
        """Return text of ``size`` bytes, without surrogates."""
        return self.shared(str(self.take(size), "utf-8"))

    def shared(self, text: str) -> str:
        """Return the text. A short one gets a number, by which it can be referenced."""
        if len(text) <= MAX_SHARED_TEXT and len(self.texts) < MAX_SHARED:
            self.texts.append(text)
        return text

    def count_items(self, count: int) -> int:
        """Count ``count`` more items and return the number. Raises TooManyItems."""
        self.items_read += count
        if self.items_read > self.max_items:
            raise TooManyItems(f"more than {self.max_items} items")
        return count

    def items(self, depth: int, per_item: int = 1) -> list[Any]:
        """Return as many values as the next length says."""
        if depth > MAX_DEPTH + NAME_DEPTH:
            raise WireError("nested too deep")
        count = self.size() * per_item
        # Each item takes at least one byte. A larger count is false, and is refused before any work.
        if count > len(self.data) - self.position:
            raise WireError("cut short")
        self.count_items(count)
        data, readers, depth = self.data, self.readers, depth + 1
        items: list[Any] = []
        for _ in range(count):
            position = self.position
            self.position = position + 1
            items.append(readers[data[position]](self, depth))
        return items

    def keys(self, depth: int, paired: bool) -> tuple[list[Any], list[Any]]:
        """Return keys, and with ``paired`` their values. A hash table of the keys takes linear time."""
        if depth > MAX_DEPTH + NAME_DEPTH:
            raise WireError("nested too deep")
        count = self.size()
        if count > len(self.data) - self.position:
            raise WireError("cut short")
        self.count_items(2 * count if paired else count)
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
            self._count_collisions(hashes, costs)
        return keys, values

    def _count_collisions(self, hashes: list[int], costs: list[int]) -> None:
        """Count the work of comparing keys with equal hashes, including keys inside keys."""
        costs_by_hash: dict[int, list[int]] = {}
        for value, cost in zip(hashes, costs, strict=True):
            costs_by_hash.setdefault(value, []).append(cost)
        self.work += sum(len(group) * (len(group) - 1) // 2 * max(group) for group in costs_by_hash.values())
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
    """Return a reader of numbers of one type, or of references to texts, which are stored as an array."""

    def read(r: Reader, _depth: int) -> Any:
        code = chr(r.byte())
        data = r.take(r.byte() or r.size())
        is_text = code in "tT"
        if code in "Bt":
            r.count_items(len(data))
            return make(map(r.texts.__getitem__, data) if is_text else data)
        if code not in "iqdT":
            raise WireError("unknown kind of array")
        packed = array("H" if is_text else code)
        packed.frombytes(data)
        r.count_items(len(packed))
        if not LITTLE:
            packed.byteswap()
        return make(map(r.texts.__getitem__, packed) if is_text else packed)

    return read


def _read_pairs(make: Callable[[], dict[Any, Any]]) -> ItemReader:
    def read(r: Reader, depth: int) -> Any:
        if make is not dict:
            r.count_items(_LARGE_CONTAINER_ITEMS)
        result = make()
        for key, value in zip(*r.keys(depth, paired=True), strict=True):
            result[key] = value
        return result

    return read


def _read_deque(r: Reader, depth: int) -> Any:
    r.count_items(_LARGE_CONTAINER_ITEMS)
    return deque(r.items(depth))


def _read_fraction(r: Reader, depth: int) -> Any:
    numerator, denominator = r.read(depth + 1), r.read(depth + 1)
    if type(numerator) is not int or type(denominator) is not int:
        raise WireError("malformed fraction")
    if denominator <= 0 or max(numerator.bit_length(), denominator.bit_length()) > EXACT_BITS:
        raise WireError("a fraction with too large or invalid parts")
    r.work += _FRACTION_WORK
    # The encoder writes reduced fractions. One that is not reduced equals no other value.
    return _unreduced(numerator, denominator)


def _read_decimal(r: Reader, _depth: int) -> Any:
    text = r.sized_bytes()
    if len(text) > EXACT_BITS // 3:
        raise WireError("a decimal with too many digits")
    try:
        return Decimal(text.decode("ascii"))
    except InvalidOperation:
        raise WireError("malformed decimal") from None


def _read_ints(make: Callable[..., Any]) -> ItemReader:
    def read(r: Reader, depth: int) -> Any:
        parts = r.read(depth + 1)
        if type(parts) is not tuple or len(cast("tuple[object, ...]", parts)) > _MAX_PARTS:
            raise WireError("malformed parts")
        for part in cast("tuple[object, ...]", parts):
            if type(part) is not int or part.bit_length() > MAX_PART_BITS:
                raise WireError("malformed parts")
        return make(*parts)

    return read


def _read_aware(make: Callable[..., Any], count: int) -> ItemReader:
    """Return a reader of times with a time zone. ``count``: the number of parts of the time itself."""

    def read(r: Reader, depth: int) -> Any:
        parts = cast("tuple[Any, ...]", r.read(depth + 1))
        if type(parts) is not tuple or len(parts) != count + 6:
            raise WireError("malformed parts")
        time_parts, key = parts[: count + 1], parts[-1]
        if not all(type(part) is int and part.bit_length() <= 32 for part in time_parts):
            raise WireError("malformed parts")
        zone: object = None
        if r.importer is not None and type(key) is str:
            zone = r.importer(["zone", key])
        if not isinstance(zone, tzinfo):
            zone = read_timezone(parts[count + 1 : -1])
        return make(*time_parts[:-1], tzinfo=zone, fold=time_parts[-1])

    return read


def _read_timezone(r: Reader, depth: int) -> Any:
    parts = r.read(depth + 1)
    if type(parts) is not tuple:
        raise WireError("malformed parts")
    return read_timezone(cast("tuple[Any, ...]", parts))


def _read_code_points(data: bytes) -> str:
    """Return text with surrogates. Decoding these from UTF-8 would take twenty times as long."""
    points = array("I")
    points.frombytes(data)
    if not LITTLE:
        points.byteswap()
    return "".join(map(chr, points))


def _read_handle(r: Reader, depth: int) -> Any:
    name = r.read(depth + 1)
    if r.importer is None:
        raise WireError("a handle in the place of a plain value")
    return r.importer(name)


TAGS: dict[bytes, ItemReader] = {
    b"N": lambda r, d: None,
    b"e": lambda r, d: Ellipsis,
    b"T": lambda r, d: True,
    b"F": lambda r, d: False,
    b"i": _read_int,
    b"j": lambda r, d: r.byte(),
    b"I": lambda r, d: int.from_bytes(r.sized_bytes(), "little", signed=True),
    b"f": lambda r, d: FLOAT.unpack(r.take(8))[0],
    b"c": lambda r, d: complex(*COMPLEX.unpack(r.take(16))),
    b"x": lambda r, d: r.shared(_read_code_points(r.sized_bytes())),
    b"s": lambda r, d: r.text(r.size()),
    b"u": lambda r, d: r.text(r.byte()),
    b"v": lambda r, d: r.texts[r.byte()],
    b"w": lambda r, d: r.texts[int.from_bytes(r.take(2), "little")],
    b"b": lambda r, d: r.sized_bytes(),
    b"B": lambda r, d: bytearray(r.sized_bytes()),
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
    b"5": _read_aware(datetime, 7),
    b"6": _read_aware(time, 4),
    b"7": _read_timezone,
    b"R": _read_ints(range),
}


def table(tags: dict[bytes, ItemReader]) -> list[ItemReader]:
    """Return a table with the reader for each byte with which a value can begin."""
    return [tags.get(bytes([byte]), _unknown) for byte in range(256)]


READERS = table(TAGS)
