"""Parts of words as bytes: bit for bit whatever the words are, and nothing but an error for other bytes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whetstone.weights.codec import (
    CorruptData,
    decode_delta,
    decode_full,
    encode_delta,
    encode_full,
    max_part_bytes,
    shift_elements,
)

# Zeros, infinities, NaNs, the smallest and the largest of bf16, with both signs.
SPECIAL = [0x0000, 0x8000, 0x0001, 0x8001, 0x7F80, 0xFF80, 0x7FC0, 0xFFFF, 0x7FFF, 0x7F7F, 0xFF7F, 0x3F80]


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[Any, Any]]:
    """Blocks of one width before and after: a share of the words moved a little, or became anything."""
    width = draw(st.sampled_from([1, 2, 4, 8]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    blocks: list[tuple[Any, Any]] = []
    for size in draw(st.lists(st.sampled_from([1, 3, 4, 7, 64, 1000, 70_000]), min_size=1, max_size=4)):
        old = rng.integers(0, 256, size * width, dtype=np.uint8).view(f"<u{width}")
        if width == 2:
            spots = rng.integers(0, size, len(SPECIAL))
            old[spots] = SPECIAL
        new = old.copy()
        share = draw(st.sampled_from([0.0, 0.001, 0.02, 0.5, 1.0]))
        at = np.flatnonzero(rng.random(size) < share)
        if draw(st.booleans()):
            new[at] += rng.integers(0, 3, len(at), dtype=new.dtype) - np.array(1, new.dtype)
        else:
            new[at] = rng.integers(0, 256, len(at) * width, dtype=np.uint8).view(new.dtype)
        blocks.append((old, new))
    return blocks


@given(changes())
@settings(max_examples=25)
def test_what_changed_comes_back_bit_for_bit(blocks: list[tuple[Any, Any]]) -> None:
    old, new = [o for o, _ in blocks], [n for _, n in blocks]
    width, count = new[0].dtype.itemsize, sum(map(len, new))
    data, changed = encode_delta(old, new)
    joined, wanted = np.concatenate(old), np.concatenate(new)
    positions, words = decode_delta(data, width, count, joined.__getitem__)
    joined[positions] = words
    assert joined.tobytes() == wanted.tobytes()
    assert changed == len(positions) == np.count_nonzero(np.concatenate(old) != wanted)
    assert len(data) <= max_part_bytes(width, count)
    full = encode_full(new)
    assert decode_full(full, width, count).tobytes() == wanted.tobytes()
    assert len(full) <= max_part_bytes(width, count)


def test_every_step_between_two_patterns_of_bf16_comes_back() -> None:
    old = np.repeat(np.array(SPECIAL, np.uint16), 1 << 16)
    new = np.tile(np.arange(1 << 16, dtype=np.uint16), len(SPECIAL))
    data, _ = encode_delta([old], [new])
    positions, words = decode_delta(data, 2, len(old), old.__getitem__)
    result = old.copy()
    result[positions] = words
    assert result.tobytes() == new.tobytes()


def test_a_step_of_one_unit_in_the_last_place_costs_a_quarter_of_index_and_value() -> None:
    rng = np.random.default_rng(0)
    old = rng.integers(0, 1 << 16, 1 << 21).astype(np.uint16)
    for share in (0.003, 0.01, 0.04):
        at = np.flatnonzero(rng.random(len(old)) < share)
        new = old.copy()
        new[at] = shift_elements(new[at], rng.choice(np.array([1, 0xFFFF], np.uint16), len(at)))
        assert len(encode_delta([old], [new])[0]) < len(at) * 6 / 4


HELD = np.random.default_rng(1).integers(0, 1 << 16, 5000).astype(np.uint16)


def part() -> tuple[bytes, bytes]:
    old = HELD
    new = old.copy()
    new[::7] += 1
    new[3::9] *= 3
    return encode_delta([old], [new])[0], encode_full([new])


def test_bytes_that_no_encoder_made_are_damaged_or_words_in_bounds() -> None:
    rng = np.random.default_rng(2)
    for good, decode in zip(
        part(), (partial(decode_delta, read_old=HELD.__getitem__), decode_full), strict=True
    ):
        for _ in range(2000):
            bad = bytearray(good)
            for _ in range(rng.integers(0, 4)):
                bad[rng.integers(0, min(len(bad), 120))] = rng.integers(0, 256)
            if rng.random() < 0.3:
                bad = bad[: rng.integers(0, len(bad))]
            elif rng.random() < 0.1:
                bad += b"\0"
            try:
                found = decode(bytes(bad), 2, 5000)
            except CorruptData:
                continue
            if isinstance(found, tuple):
                positions = found[0]
                assert not len(positions) or (positions[0] >= 0 and positions[-1] < 5000)
                assert (np.diff(positions) > 0).all()
            else:
                assert len(found) == 5000


def test_a_plane_that_claims_to_be_huge_is_not_made_room_for() -> None:
    import zstandard

    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 26))
    header = encode_full([np.zeros(5000, np.uint16)])[:8]
    data = header + len(bomb).to_bytes(4, "little") * 2 + bomb * 2
    with pytest.raises(CorruptData, match="another size"):
        decode_full(data, 2, 5000)
