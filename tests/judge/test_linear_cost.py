"""What a worker spends on a hostile answer grows with its bytes, whatever values it holds.

The answers are written byte by byte, as a program can that forges what its process sends. CPU time is
measured, never wall time. The bounds are more than ten times what is seen on an ordinary core. One of three
attempts is enough, because other processes evict the caches of this one and so multiply its CPU time.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.beside import data_beside
from tests.judge.judged_answers import judged
from whetstone.core.problem import CallCase, CallTests, Limits, Problem, Program
from whetstone.judge import Judge, Verdict
from whetstone.judge.answers.equality import equal
from whetstone.judge.answers.inert import FREE_ITEMS, read_one
from whetstone.judge.value_reader import MAX_PART_BITS, WireError
from whetstone.judge.values import NotInert, decode, encode
from whetstone.sandbox.streams import Stream

DATA = data_beside(__file__)

SMALL, LARGE = 125_000, 500_000
# Seconds of CPU: of any answer, of each megabyte, and of each item besides.
FREE_S, S_PER_MB, S_PER_ITEM = 0.5, 1.0, 50e-6
LONGER, GROWTH = 16, 80
"""The factor of an answer's length, and the bound of that of its cost; 256 would be quadratic."""

_random = random.Random(27)


def sized(tag: bytes, data: bytes) -> bytes:
    return tag + pack("<Q", len(data)) + data


def several(tag: bytes, items: list[bytes]) -> bytes:
    return tag + pack("<Q", len(items)) + b"".join(items)


def integer(size: int) -> bytes:
    return sized(b"I", _random.randbytes(size - 1) + b"\1")


def fraction(size: int) -> bytes:
    return b"Q" + integer(size // 2 - 9) + integer(size // 2 - 9)


def decimal(size: int, number: int, exponent: str = "") -> bytes:
    digits = f"1{number:07d}"
    return sized(b"D", (digits + "7" * (size - len(digits) - len(exponent)) + exponent).encode())


def many(kind: bytes, item: Callable[[int], bytes], size: int) -> Callable[[int], tuple[bytes, int]]:
    """A container of items of about ``size`` bytes, and how many there are."""

    def make(length: int) -> tuple[bytes, int]:
        count = length // size
        return several(kind, [item(number) for number in range(count)]), count

    return make


def one(value: Callable[[int], bytes]) -> Callable[[int], tuple[bytes, int]]:
    return lambda length: (value(length), 1)


def nested(number: int) -> bytes:
    return (b"t" + pack("<Q", 1)) * 90 + b"N"


_LIST, _SET, _DICT = b"l", b"S", b"d"
ANSWERS: dict[str, Callable[[int], tuple[bytes, int]]] = {
    "fractions": many(_LIST, lambda n: fraction(7400), 7400),
    "small fractions": many(_LIST, lambda n: fraction(100), 100),
    "a set of fractions": many(_SET, lambda n: fraction(7400), 7400),
    "fractions as keys": many(_DICT, lambda n: fraction(7400) + b"N", 7400),
    "decimals": many(_LIST, lambda n: decimal(9000, n), 9000),
    "decimals with exponents": many(_LIST, lambda n: decimal(9000, n, "E-9000"), 9000),
    "a set of decimals": many(_SET, lambda n: decimal(9000, n), 9000),
    "a set of decimals with exponents": many(_SET, lambda n: decimal(9000, n, "E-8000"), 9000),
    "a set of vast decimals": many(_SET, lambda n: decimal(30, n, "E+999999"), 30),
    "decimals as keys": many(_DICT, lambda n: decimal(9000, n) + b"N", 9000),
    "decimals in tuples": many(_SET, lambda n: several(b"t", [decimal(9000, n)]), 9000),
    "an integer": one(integer),
    "integers": many(_LIST, lambda n: integer(9000), 9000),
    "a set of integers": many(_SET, lambda n: integer(9000), 9000),
    "a range": one(lambda n: b"R" + several(b"t", [b"j\0", integer(n * 2 // 3), integer(n // 3)])),
    "ranges": many(_LIST, lambda n: b"R" + several(b"t", [b"j\0", integer(120), integer(60)]), 210),
    "a date": one(lambda n: b"1" + several(b"t", [integer(n // 3)] * 3)),
    "a duration": one(lambda n: b"4" + several(b"t", [integer(n // 3)] * 3)),
    "dates": many(_LIST, lambda n: b"1" + several(b"t", [b"i" + pack("<q", 2024), b"j\2", b"j\3"]), 23),
    "a date of many parts": one(lambda n: b"1" + several(b"t", [b"j\1"] * (n // 2))),
    "bytes": one(lambda n: sized(b"b", b"x" * n)),
    "text": one(lambda n: sized(b"s", b"x" * n)),
    "surrogates": one(lambda n: sized(b"x", pack("<I", 0xD800) * (n // 4))),
    "short surrogates": many(_LIST, lambda n: sized(b"x", pack("<I", 0xD800) * 60), 249),
    "surrogates in UTF-8": one(lambda n: sized(b"s", b"\xed\xa0\x80" * (n // 3))),
    "texts of one beginning": many(_SET, lambda n: sized(b"s", b"x" * 3980 + b"%010d" % n), 4000),
    "floats": one(lambda n: b"Pd\0" + pack("<Q", n // 8 * 8) + pack("<d", 0.1) * (n // 8)),
    "long floats": many(_LIST, lambda n: b"f" + pack("<d", 1e-300 / 3), 9),
    "complex numbers": many(_LIST, lambda n: b"c" + pack("<dd", 0.1, 0.2), 17),
    "a set of floats": many(_SET, lambda n: b"f" + pack("<d", n / 7), 9),
    "nothing": many(_LIST, lambda n: b"N", 4),
    "empty sets": many(_LIST, lambda n: several(b"S", []), 9),
    "deep tuples": many(_LIST, nested, 811),
    "a set of deep tuples": many(_SET, nested, 811),
    "the same text again": one(lambda n: several(b"l", [b"u\x40" + b"y" * 64, *[b"v\0"] * (n // 8)])),
}
EXPECTED: dict[str, Callable[[int], Any]] = {
    "one number": lambda count: 7,
    "numbers": lambda count: [*range(count)],
    "floats": lambda count: [n + 0.5 for n in range(count)],
    "a set of numbers": lambda count: set(range(count)),
    "a set of floats": lambda count: {n + 0.5 for n in range(count)},
    "a set of texts": lambda count: {f"{n}" for n in range(count)},
    "numbers as keys": lambda count: dict.fromkeys(range(count)),
    "texts as keys": lambda count: {f"{n}": n for n in range(count)},
    "a text": lambda count: "x",
}


def cpu_s(work: Callable[[], object]) -> float:
    """Seconds of CPU that ``work`` takes."""
    gc.freeze()  # a worker has no test suite on its heap for the collector to look through
    try:
        began = time.process_time()
        work()
        return time.process_time() - began
    finally:
        gc.unfreeze()


def costs_at_most(work: Callable[[], object], bound: float) -> bool:
    return any(cpu_s(work) < bound for _ in range(3))


@pytest.mark.cost
@pytest.mark.drawn(20)
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("expected", EXPECTED)
def test_the_cost_of_an_answer_is_bounded_by_its_bytes(answer: str, expected: str) -> None:
    """Relative to 1 MB, and to the cost of a shorter answer; against every kind of expected value."""

    def work(length: int) -> tuple[Callable[[], object], float]:
        data, count = ANSWERS[answer](length)
        wanted = EXPECTED[expected](min(count, FREE_ITEMS))
        return lambda: judged(data, wanted), FREE_S + S_PER_MB * len(data) / 1e6 + S_PER_ITEM * count

    for length in (SMALL, 2 * SMALL, LARGE):
        assert costs_at_most(*work(length)), length
    if cpu_s(work(LARGE)[0]) > 0.05:  # what is less is not measured well
        short = min(cpu_s(work(SMALL)[0]) for _ in range(3))
        assert costs_at_most(work(LONGER * SMALL)[0], GROWTH * short), short


_leaves = (
    st.integers(20, 9000).map(integer)
    | st.integers(40, 7000).map(fraction)
    | st.tuples(st.integers(20, 9000), st.integers(0, 9), st.sampled_from(["", "E+900", "E-900"])).map(
        lambda made: decimal(*made)
    )
    | st.integers(1, 300).map(lambda size: sized(b"x", pack("<I", 0xDFFF) * size))
    | st.integers(1, 3).map(
        lambda size: b"R" + several(b"t", [b"j\0", integer(size * 100), integer(size * 50)])
    )
    | st.sampled_from([b"N", b"f" + pack("<d", 1e-310), b"c" + pack("<dd", 1e300, -1e300), nested(0)])
)
_trees = st.recursive(
    _leaves,
    lambda inner: st.tuples(st.sampled_from([b"l", b"t", b"S", b"Z", b"E"]), st.lists(inner, max_size=6)).map(
        lambda made: several(*made)
    ),
    max_leaves=12,
)


@pytest.mark.cost
@settings(max_examples=150)
@given(_trees, st.sampled_from(sorted(EXPECTED)), st.sampled_from([_LIST, _SET]))
def test_no_mixture_of_hostile_values_costs_more_than_its_bytes(
    tree: bytes, expected: str, kind: bytes
) -> None:
    count = max(200_000 // len(tree), 1)
    data = several(kind, [tree] * count)
    wanted = EXPECTED[expected](min(count, FREE_ITEMS))
    items = count + data.count(b"\0" * 7)
    bound = FREE_S + S_PER_MB * len(data) / 1e6 + S_PER_ITEM * items
    assert costs_at_most(lambda: judged(data, wanted), bound)


def test_numbers_come_back_as_they_were() -> None:
    values = [
        Fraction(22, 7),
        Fraction(-1, 3**9000),
        range(-(1 << 900), 1 << 1000, 1 << 800),
        "a\ud800\udfffb",
    ]
    values += ["\ud800" * 100, Decimal("1E+999999"), {Fraction(1, 2): "\udc80"}]
    assert decode(encode(values)) == values
    assert hash(decode(encode(Fraction(22, 7)))) == hash(Fraction(22, 7))
    assert decode(encode(["\ud800", "\ud800", "b", "b"])) == ["\ud800", "\ud800", "b", "b"]
    assert read_one(encode([Fraction(1, 2)]), [0.5]) == [0.5]


@pytest.mark.parametrize("parts", [(2, 4), (1, 0), (1, -2), (-2, 4)])
def test_a_fraction_that_is_not_reduced_equals_nothing(parts: tuple[int, int]) -> None:
    data = b"Q" + encode(parts[0]) + encode(parts[1])
    try:
        value = read_one(data, 0.5)
    except WireError:
        assert parts[1] <= 0
    else:
        assert not equal(value, Fraction(1, 2))


def test_a_range_of_vast_numbers_has_no_plain_form() -> None:
    with pytest.raises(NotInert, match="very large"):
        encode(range(0, 1 << (MAX_PART_BITS + 1)))
    with pytest.raises(WireError):
        decode(b"R" + several(b"t", [b"j\0", integer(MAX_PART_BITS), b"j\1"]))


@pytest.mark.cost
@pytest.mark.parametrize("keep_last", [None, 64 << 10])
def test_output_in_small_pieces_costs_no_more_than_in_large_ones(keep_last: int | None) -> None:
    """A program can wait until each piece was read. What is kept must not be gone through for every one."""

    def takes(pieces: int) -> float:
        read, write = os.pipe()
        os.set_blocking(read, False)
        stream = Stream(read, 16 << 20, keep_last=keep_last)
        stream._kept = type(stream._kept)(b"x" * (100 << 10))
        stream._total = 100 << 10
        began = time.process_time()
        for _ in range(pieces):
            os.write(write, b"ab")
            stream.read()
        used = time.process_time() - began
        assert stream.bytes().endswith(b"ab")
        os.close(write)
        stream.close()
        return used

    takes(1000)
    assert any(takes(40_000) < 5.0 for _ in range(3))


@pytest.mark.drawn(2)
@pytest.mark.process
@pytest.mark.skipif(sys.byteorder != "little", reason="the answer is written by hand")
@pytest.mark.parametrize(
    "made",
    DATA["costly_values"],
)
def test_an_answer_costs_its_worker_less_than_its_program(made: str) -> None:
    """Measured at the worker's process, without those of programs."""
    source = f"""
import random
from decimal import Decimal
from fractions import Fraction
class Raw(Fraction):
    def __new__(cls, top, bottom):
        self = object.__new__(Fraction)
        self._numerator, self._denominator = top, bottom
        return self
def random_fraction(bits):
    return Raw(random.getrandbits(bits) | 1, random.getrandbits(bits) | 1)
def random_decimal(digits, point=0):
    return Decimal("".join(random.choices("123456789", k=digits))).scaleb(-point)
def f(n):
    return {made}
"""
    problem = Problem(
        "t/cost", "", CallTests([CallCase(expected={n + 0.5 for n in range(1500)}, args=[1])], function="f"),
        limits=Limits(cpu_s=10.0, memory_mb=512.0, output_mb=64.0),
    )  # fmt: skip
    with Judge(workers=1) as judge:
        judge.judge(problem, Program("python", "def f(n): return 1"))
        [worker] = judge.worker_pids()
        before = _used_s(worker)
        judgement = judge.judge(problem, Program("python", source))
        used = _used_s(worker) - before
    assert judgement.verdict in (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR)
    assert used < 2.0


def _used_s(pid: int) -> float:
    """Seconds of CPU of a process, without those of its children."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
