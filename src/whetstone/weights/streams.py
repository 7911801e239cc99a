"""Streams of numbers and compressed arrays of bytes, of which the parts of versions consist."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

Elements = NDArray[Any]
"""One-dimensional array of unsigned integers of 1, 2, 4 or 8 bytes."""

Bytes = bytes | bytearray | memoryview

# An array follows this number if it is stored as it is. Otherwise it follows the size of its zstd frame.
_RAW = 0
# The most bits of a number before its last group of 7.
_NUMBER_BITS = 28


class CorruptData(ValueError):
    """Bytes that no encoder wrote."""


class StreamWriter:
    """Collects numbers and arrays. ``data`` is the stream, which starts with the bytes ``head``."""

    def __init__(self, *head: int) -> None:
        self.data = bytearray(head)

    def put_number(self, number: int) -> None:
        """Append a number of at most 35 bits, in groups of 7 bits, lowest first (LEB128)."""
        while number > 127:
            self.data.append(number & 127 | 128)
            number >>= 7
        self.data.append(number)

    def put_bytes(self, array: Elements) -> None:
        """Append an array of bytes. The reader must know its size."""
        packed = _compressor().compress(array.data)
        if len(packed) < len(array):
            self.put_number(len(packed))
            self.data += packed
        else:
            self.put_number(_RAW)
            self.data += array.data


class StreamReader:
    """Reads what a StreamWriter wrote. All methods raise CorruptData for other bytes.

    The caller says how large each number and array can be, which bounds the memory.
    """

    def __init__(self, data: Bytes) -> None:
        self._data, self._at = memoryview(data), 0

    def take(self, size: int) -> memoryview:
        """Return the next ``size`` bytes."""
        self._at += size
        if self._at > len(self._data):
            raise CorruptData("a part that ends early")
        return self._data[self._at - size : self._at]

    def take_number(self, most: int) -> int:
        """Return the next number, which is at most ``most``."""
        number = shift = 0
        while (byte := self.take(1)[0]) > 127 and shift < _NUMBER_BITS:
            number |= (byte & 127) << shift
            shift += 7
        number |= byte << shift
        if number > most:
            raise CorruptData(f"a number that is larger than {most}")
        return number

    def take_bytes(self, size: int) -> Elements:
        """Return the next array, of ``size`` bytes."""
        length = self.take_number(size)
        if length == _RAW:
            return np.frombuffer(self.take(size), np.uint8)
        frame = self.take(length)
        try:
            # The size that the frame claims is checked before memory is allocated for it.
            if zstandard.get_frame_parameters(frame).content_size != size:
                raise CorruptData("an array of another size")
            data = zstandard.ZstdDecompressor().decompress(
                frame, max_output_size=size, allow_extra_data=False
            )
        except zstandard.ZstdError as error:
            raise CorruptData(f"an array that zstd cannot read: {error}") from None
        if len(data) != size:
            raise CorruptData("an array of another size")
        return np.frombuffer(data, np.uint8)

    def close(self) -> None:
        """Check that nothing is left."""
        if self._at != len(self._data):
            raise CorruptData("more bytes than a part has")


# Arrays are mostly random numbers. Huffman codes compress them, and short matches cost more than they save.
# Long matches, which a small table finds, are runs. A target length above 0 would disable the Huffman codes.
_PARAMETERS = zstandard.ZstdCompressionParameters(
    strategy=zstandard.STRATEGY_FAST,
    window_log=17,
    chain_log=6,
    hash_log=6,
    search_log=1,
    min_match=7,
    target_length=0,
)
_thread_state = threading.local()


def _compressor() -> zstandard.ZstdCompressor:
    """Return this thread's compressor. Creating one takes longer than compressing a small array."""
    found: zstandard.ZstdCompressor | None = getattr(_thread_state, "compressor", None)
    if found is None:
        found = _thread_state.compressor = zstandard.ZstdCompressor(compression_params=_PARAMETERS)
    return found
