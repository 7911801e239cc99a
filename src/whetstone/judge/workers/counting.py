"""How many values a MessagePack message holds, counted without making any of them."""

from __future__ import annotations

# Of each first byte: how long a value is with it, and how many bytes after it are a further length.
_LENGTHS = [1] * 256
_FURTHER = [0] * 256
for _byte in range(0xA0, 0xC0):  # short text
    _LENGTHS[_byte] = 1 + _byte - 0xA0
for _byte, _size in {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}.items():  # floats, integers
    _LENGTHS[_byte] = _size
for _byte, _size in {0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9, 0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}.items():
    _LENGTHS[_byte] = _size  # integers; the heads of lists and mappings
for _power, _byte in enumerate(range(0xD4, 0xD9)):  # extensions of a fixed length
    _LENGTHS[_byte] = 2 + (1 << _power)
for _byte, _size in {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}.items():  # bytes, text
    _LENGTHS[_byte], _FURTHER[_byte] = 1 + _size, _size
for _byte, _size in {0xC7: 1, 0xC8: 2, 0xC9: 4}.items():  # extensions
    _LENGTHS[_byte], _FURTHER[_byte] = 2 + _size, _size


def count_values(data: memoryview, most: int) -> int:
    """The number of values in ``data``; more than ``most`` are not counted to the end.

    Of a malformed message it is the number up to its fault at least.
    """
    if len(data) <= most:
        return len(data)  # a value takes a byte at least
    at, found, end = 0, 0, len(data)
    while at < end and found <= most:
        found += 1
        first = data[at]
        if further := _FURTHER[first]:
            at += int.from_bytes(data[at + 1 : at + 1 + further], "big")
        at += _LENGTHS[first]
    return found
