"""Parts of words as bytes: bit for bit whatever the words are, and nothing but an error for other bytes."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from whetstone.weights.codec import decode_delta, decode_full, encode_delta, encode_full, max_part_bytes
from whetstone.weights.streams import CorruptData, StreamReader, StreamWriter

# Zeros, infinities, NaNs, the smallest and the largest of bf16, with both signs.
SPECIAL = [0x0000, 0x8000, 0x0001, 0x8001, 0x7F80, 0xFF80, 0x7FC0, 0xFFFF, 0x7FFF, 0x7F7F, 0xFF7F, 0x3F80]

Blocks = list[tuple[Any, Any]]


@st.composite
def few_words(draw: st.DrawFn) -> Blocks:
    """Blocks of one width before and after, of any words, and also without any."""
    width = draw(st.sampled_from([1, 2, 4, 8]))
    some = st.binary(min_size=width, max_size=width)
    if width == 2:
        some = st.sampled_from(SPECIAL).map(lambda word: word.to_bytes(2, "little")) | some
    pairs = st.tuples(some, some) | some.map(lambda word: (word, word))
    blocks = draw(st.lists(st.lists(pairs, max_size=40), min_size=1, max_size=3))
    return [
        (joined([old for old, _ in block], width), joined([new for _, new in block], width))
        for block in blocks
    ]


def joined(words: list[bytes], width: int) -> Any:
    return np.frombuffer(b"".join(words), f"<u{width}")


@st.composite
def many_words(draw: st.DrawFn) -> Blocks:
    """Longer blocks: a share of the words moved a little, or became anything."""
    width = draw(st.sampled_from([1, 2, 4, 8]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    alike = draw(st.booleans())
    blocks: Blocks = []
    for size in draw(st.lists(st.sampled_from([1, 7, 64, 1000, 20_000]), min_size=1, max_size=4)):
        old = rng.integers(0, 256, size * width, dtype=np.uint8).view(f"<u{width}")
        if alike:
            old[:] = old[0]
        new = old.copy()
        share = draw(st.sampled_from([0.0, 0.001, 0.02, 0.5, 0.98, 1.0]))
        at = np.flatnonzero(rng.random(size) < share)
        if draw(st.booleans()):
            new[at] += rng.integers(0, 3, len(at), dtype=new.dtype) - np.array(1, new.dtype)
        else:
            new[at] = rng.integers(0, 256, len(at) * width, dtype=np.uint8).view(new.dtype)
        blocks.append((old, new))
    return blocks


# Tiles end within blocks, at their ends and beyond. Bands have few changes or many, and are dense or large.
@st.composite
def choices(draw: st.DrawFn) -> tuple[int, dict[str, Any]]:
    tile = draw(st.sampled_from([8, 64, 1000, 4096, 1 << 19]))
    bands = {
        "_BAND_CHANGES": draw(st.sampled_from([1, 50, 1024])),
        "_BAND_BITS": draw(st.sampled_from([-1, 512])),
        "_DENSE": draw(st.sampled_from([0, 0.1, 2 / 3, 2])),
        "_SAMPLE": draw(st.sampled_from([1, 1024])),
    }
    return tile, bands


@given(few_words(), choices())
@settings(max_examples=200, deadline=None)
def test_any_words_come_back_bit_for_bit(blocks: Blocks, chosen: tuple[int, dict[str, Any]]) -> None:
    check_that_changes_come_back(blocks, *chosen)


@given(many_words(), choices())
@settings(max_examples=60, deadline=None)
def test_changed_elements_are_decoded_bit_for_bit(blocks: Blocks, chosen: tuple[int, dict[str, Any]]) -> None:
    check_that_changes_come_back(blocks, *chosen)


def test_bytes_of_which_only_the_sign_changes_come_back() -> None:
    old = np.full(1000, 5, np.uint8)
    check_that_changes_come_back([(old, old ^ 128)], 4096, {"_BAND_CHANGES": 1})


def check_that_changes_come_back(blocks: Blocks, tile: int, bands: dict[str, Any]) -> None:
    old, new = [o for o, _ in blocks], [n for _, n in blocks]
    width, count = new[0].dtype.itemsize, sum(map(len, new))
    before, wanted = np.concatenate(old), np.concatenate(new)
    with patch("whetstone.weights.codec.TILE", tile), patch.multiple("whetstone.weights.bands", **bands):
        data, changed = encode_delta(old, new)
    # The decoder does not depend on the choices of the encoder.
    positions, words = decode_delta(data, old)
    assert words.tobytes() == wanted.tobytes()
    assert np.array_equal(positions, np.flatnonzero(before != wanted))
    assert changed == len(positions)
    assert np.concatenate(old).tobytes() == before.tobytes()
    assert len(data) <= max_part_bytes(width, count)
    full = encode_full(new)
    assert decode_full(full, width, count).tobytes() == wanted.tobytes()
    assert len(full) <= max_part_bytes(width, count)


def test_every_step_between_two_patterns_of_bf16_comes_back() -> None:
    old = np.repeat(np.array(SPECIAL, np.uint16), 1 << 16)
    new = np.tile(np.arange(1 << 16, dtype=np.uint16), len(SPECIAL))
    data, _ = encode_delta([old], [new])
    assert decode_delta(data, [old])[1].tobytes() == new.tobytes()


@pytest.mark.parametrize("lr", [1e-6, 3e-6, 1e-5])
def test_steps_of_an_optimizer_cost_little_more_than_their_entropy(lr: float) -> None:
    draw = torch.Generator().manual_seed(0)
    masters = torch.randn(1 << 22, generator=draw) * 0.1
    moved = masters + lr * torch.randn(masters.shape, generator=draw)
    old, new = (tensor.bfloat16().view(torch.int16).numpy().view(np.uint16) for tensor in (masters, moved))
    data, changed = encode_delta([old], [new])
    assert decode_delta(data, [old])[1].tobytes() == new.tobytes()
    # Changes that are independent, given the exponent of the old word.
    bits = 0.0
    exponents = old >> 7 & 255
    for exponent in np.unique(exponents):
        here = exponents == exponent
        _, counts = np.unique((new - old)[here], return_counts=True)
        bits -= float((counts * np.log2(counts / here.sum())).sum())
    assert bits / 8 * 0.9 < len(data) < bits / 8 * 1.25
    assert len(data) < 0.18 * changed * 6


HELD = (np.random.default_rng(1).standard_normal(5000) * 0.1).astype(np.float32).view(np.uint32) >> 16
HELD = HELD.astype(np.uint16)


def part() -> tuple[bytes, bytes]:
    new = HELD.copy()
    new[::7] += 1
    new[3::90] *= 3
    new[np.argsort(HELD & 0x7FFF)[:60]] ^= 0x8123
    return encode_delta([HELD], [new])[0], encode_full([new])


def decode_or_refuse(data: bytes) -> None:
    """Decode bytes as a delta and as a full part: words in bounds, or CorruptData and no other error."""
    with contextlib.suppress(CorruptData):
        positions, words = decode_delta(data, [HELD])
        assert len(words) == 5000
        assert not len(positions) or (positions[0] >= 0 and positions[-1] < 5000)
        assert (np.diff(positions) > 0).all()
    with contextlib.suppress(CorruptData):
        assert len(decode_full(data, 2, 5000)) == 5000


@given(
    st.sampled_from(part()),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4),
    st.none() | st.floats(0, 1),
    st.binary(max_size=3),
)
@settings(max_examples=500, deadline=None)
def test_damaged_bytes_are_refused_or_give_words_in_bounds(
    good: bytes, edits: list[tuple[float, int]], cut: float | None, more: bytes
) -> None:
    bad = bytearray(good)
    for place, byte in edits:
        # Most numbers are at the front, so half of the edits are there.
        bad[int(place * 2 * len(bad)) if place < 0.5 else int((place - 0.5) * 2 * 100)] = byte
    decode_or_refuse(bytes(bad[: None if cut is None else int(cut * len(bad))] + more))


@given(st.sampled_from([b"", b"\3\2", b"\4\2", b"\4\2\0\0", b"\4\2\1\2\x7a\x7c"]), st.binary(max_size=200))
@settings(max_examples=500, deadline=None)
def test_bytes_that_no_encoder_made_are_refused_or_give_words_in_bounds(head: bytes, more: bytes) -> None:
    decode_or_refuse(head + more)


def test_damaged_bytes_need_no_more_memory_than_a_part() -> None:
    rng = np.random.default_rng(2)
    for good in part():
        tracemalloc.start()
        for _ in range(300):
            bad = bytearray(good)
            for _ in range(rng.integers(0, 4)):
                bad[rng.integers(0, min(len(bad), 400))] = rng.integers(0, 256)
            decode_or_refuse(bytes(bad))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # The words have 10 KB, their positions 40 KB.
        assert peak < 1 << 20


def test_a_part_that_was_cut_anywhere_is_damaged() -> None:
    delta, full = part()
    for length in range(len(delta)):
        # The first two bytes alone are a part without changes.
        if length != 2:
            with pytest.raises(CorruptData):
                decode_delta(delta[:length], [HELD])
    for length in range(0, len(full), 7):
        with pytest.raises(CorruptData):
            decode_full(full[:length], 2, 5000)


def test_other_old_words_are_damage_or_give_other_words() -> None:
    delta, _ = part()
    good = decode_delta(delta, [HELD])[1]
    rng = np.random.default_rng(3)
    for _ in range(300):
        other = HELD.copy()
        other[rng.integers(0, 5000, 20)] ^= rng.integers(1, 1 << 16, 20).astype(np.uint16)
        try:
            words = decode_delta(delta, [other])[1]
        except CorruptData:
            continue
        assert words.tobytes() != good.tobytes()


def delta(*numbers: int) -> StreamWriter:
    """A delta of 5000 words in one band, as these numbers."""
    stream = StreamWriter(4, 2, 0, 0)
    for number in numbers:
        stream.put_number(number)
    return stream


def gaps(symbols: bytes, count: int) -> bytes:
    """A delta with ``count`` positions as gaps without low bits."""
    stream = delta(count << 1, 1, 0, len(symbols) - count, 0)
    stream.put_bytes(np.frombuffer(symbols, np.uint8))
    return bytes(stream.data)


def nested() -> bytes:
    """Gaps in a sparse plane, whose positions are gaps in a sparse plane, and so on, none of them smaller."""
    return bytes(delta(*(1250 << 1, 1, 0, 0, 1) * 5000).data)


def deep() -> bytes:
    """A change whose distance is in a plane of 1 byte that is not 0, minus 1 in such a plane, and so on."""
    return gaps(b"\5", 1) + b"\0" + b"\0\0" + b"\0\0" + b"\1\1" * 5000


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "ends early"),
        (b"\2\2", "another kind"),
        (b"\3\2", "another kind"),
        (b"\4\4", "another kind"),
        (b"\4\2\0\0\xff\xff\xff\xff\xff\xff", "larger than 10001"),
        (b"\4\2\0\0\xff\xff\xff", "ends early"),
        (b"\4\2\xff\x7f", "larger than 256"),
        (b"\4\2\1\2\x7c\x7a", "not ascending"),
        (b"\4\2\1\1\0", "not ascending"),
        (b"\4\2\3\1\x7a", "impossible number of bands"),
        (b"\4\2\0\x08" + bytes(range(1, 9)), "impossible number of bands"),
        (b"\4\2\0\0\2\2", "larger than 1"),
        (b"\4\2\0\0\xc6\x13\1", "positions of another form"),
        (b"\4\2\0\0\2\0\0" + bytes(625), "another number of changes"),
        (gaps(b"\xff" * 19 + b"\xfe" + b"\xfe" * 99, 100), "beyond the last"),
        (gaps(b"\1" * 101, 100), "another number of numbers"),
        (gaps(b"\1" * 100 + b"\xff", 100), "another number of numbers"),
        (gaps(b"\xff" * 130 + b"\1" * 100, 100), "larger than 100"),
        (bytes(delta(2, 1, 14).data), "larger than 13"),
        (nested(), "positions of another form"),
        (deep(), "a plane of another form"),
    ],
)
def test_false_parts_are_damaged(data: bytes, said: str) -> None:
    with pytest.raises(CorruptData, match=said):
        decode_delta(data, [HELD])


def test_a_part_may_say_of_each_band_that_nothing_changes() -> None:
    positions, words = decode_delta(bytes(delta(0, 0, 0).data), [HELD])
    assert len(positions) == 0
    assert words.tobytes() == HELD.tobytes()


def test_distances_of_any_size_need_no_more_memory_than_a_part() -> None:
    old = np.ones(40_000, np.uint64)
    new = old + np.uint64(1)
    new[::10] = 1 << 63
    tracemalloc.start()
    data, _ = encode_delta([old], [new])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * len(old)
    assert decode_delta(data, [old])[1].tobytes() == new.tobytes()


def test_an_array_that_claims_to_be_huge_is_not_made_room_for() -> None:
    honest = zstandard.ZstdCompressor().compress(bytes(1 << 26))
    # A frame that does not state its size.
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 26))
    for bomb in (honest, silent):
        stream = StreamWriter(3, 2)
        for _ in range(2):
            stream.put_number(0)
            stream.put_number(len(bomb))
            stream.data += bomb
        tracemalloc.start()
        with pytest.raises(CorruptData, match="another size"):
            decode_full(bytes(stream.data), 2, 50_000)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()


@given(st.integers(0, (1 << 35) - 1))
def test_numbers_come_back_and_larger_ones_are_damaged(number: int) -> None:
    stream = StreamWriter()
    stream.put_number(number)
    reader = StreamReader(stream.data)
    assert reader.take_number(number) == number
    reader.close()
    with pytest.raises(CorruptData, match="larger than"):
        StreamReader(stream.data).take_number(number - 1)
