"""The dearest answers that a search finds: what they cost the judge for each byte it received.

    python benchmarks/judge_worst_cases.py [--seconds 60] [--seed 1]

An evolution over shapes of returned values and of printed texts, not a list of known attacks. A value is a
tree of containers; its leaves come from families of numbers and texts, some chosen for the hashes that Python
makes of them. A text is a few pieces, repeated. Each round changes one of the best and keeps what is dearer
for each byte. Only the trusted side is measured, in a fork of its own: from the bytes to the verdict and its
reason (decode, compare, show), in CPU seconds, and how far its memory grows. With PYTHONPATH on another
commit's ``src`` it measures that: the bytes are made here, in the part of the format that all have.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from struct import pack
from typing import Any

from whetstone.core.problem import Compare
from whetstone.judge.answers.comparisons import add_comparisons, value_rule
from whetstone.judge.answers.equality import equal
from whetstone.judge.answers.standard_checkers import CHECKERS, check_standard
from whetstone.judge.answers.text import compare
from whetstone.judge.values import WireError, decode, decode_each
from whetstone_graders import COMPARISONS

try:
    from whetstone.judge.answers.inert import read_each, show
except ImportError:  # a commit before these
    from whetstone.judge.answers.equality import show  # type: ignore[no-redef]

    def read_each(data: bytes, expected: Callable[[], Any]) -> list[Any]:
        return decode_each(data)


add_comparisons(COMPARISONS)
SMALL, LARGE = 32 << 10, 1 << 20
"""Bytes of the answers that are searched, and of the worst one again, to see whether cost is linear."""
PRIME = (1 << 61) - 1
LIMIT_S = 30
VALUE_MODES = ("ours", "grader:lcb", "grader:evalplus")
MODES = (
    "tokens",
    "exact",
    "lines",
    "floats",
    "ignore_case",
    "unordered_lines",
    "grader:lcb",
    "grader:scalebox",
    "kattis",
)


def _sized(tag: bytes, data: bytes) -> bytes:
    return tag + pack("<Q", len(data)) + data


def _int(n: int) -> bytes:
    if -(1 << 63) <= n < 1 << 63:
        return b"i" + pack("<q", n)
    return _sized(b"I", n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True))


def _items(tag: bytes, items: list[bytes], per_item: int = 1) -> bytes:
    return tag + pack("<Q", len(items) // per_item) + b"".join(items)


LEAVES: dict[str, Callable[[int], bytes]] = {
    "int": _int,
    "int of one hash": lambda i: _int(i * PRIME),
    "-1 or -2": lambda i: _int(-1 - (i & 1)),
    "int of one slot": lambda i: _int(i << 40 | 1),
    "huge int": lambda i: _int((i + 1) << 4000),
    "float": lambda i: b"f" + pack("<d", i / 7),
    "nan": lambda i: b"f" + pack("<d", float("nan")),
    "complex": lambda i: b"c" + pack("<dd", i, i & 1),
    "none": lambda i: b"N",
    "fraction": lambda i: b"Q" + _int(i + 1) + _int(3),
    "fraction of one hash": lambda i: b"Q" + _int(i * PRIME + 1) + _int(3),
    "wide fraction": lambda i: b"Q" + _int(3 ** (i % 999)) + _int(2 ** (i % 1999)),
    "decimal": lambda i: _sized(b"D", b"%d.5" % i),
    "decimal of one hash": lambda i: _sized(b"D", b"%d" % (i * PRIME)),
    "far decimal": lambda i: _sized(b"D", b"1E+%d" % (i * 9999)),
    "text": lambda i: _sized(b"s", b"t%d" % i),
    "one text": lambda i: _sized(b"s", b"same" * 16),
    "wide text": lambda i: _sized(b"s", "\U00010400€".encode()),
    "bytes": lambda i: _sized(b"b", b"%d" % i),
    "bytearray": lambda i: _sized(b"B", b""),
    "range": lambda i: b"R" + _items(b"t", [_int(i), _int(i + 9), _int(1)]),
    "date": lambda i: b"1" + _items(b"t", [_int(1 + i % 9000), _int(1), _int(1)]),
    "timedelta": lambda i: b"4" + _items(b"t", [_int(i), _int(0), _int(0)]),
}
TAGS = {
    "list": b"l", "tuple": b"t", "set": b"S", "frozenset": b"Z", "deque": b"E",
    "dict": b"d", "ordered": b"O", "counter": b"C",
}  # fmt: skip
Shape = tuple[Any, ...]
"""(leaf,) or (container, count, whether its items differ from those of its like, inner shape, …)."""


def written(shape: Shape, i: int) -> bytes:
    """The bytes of a value; ``i`` makes it another one."""
    if len(shape) == 1:
        return LEAVES[shape[0]](i)
    kind, count, apart, *inner = shape
    per_item = 2 if TAGS[kind] in (b"d", b"O", b"C") else 1
    if apart == "bits":  # as many items as bits of i: they differ at the end
        items = [written(inner[0], i >> n & 1) for n in range(count)]
    elif apart == "all but one":
        items = [written(inner[n % len(inner)], n) for n in range(count + 1) if n != i % (count + 1)]
    else:
        base = i * count if apart == "apart" else 0
        items = [written(inner[n % len(inner)], base + n) for n in range(count)]
    return _items(TAGS[kind], items * per_item if per_item == 2 else items, per_item)


def leaves(shape: Shape) -> int:
    """About how many leaves it has."""
    return 1 if len(shape) == 1 else 1 + (shape[1] + 1) * max(map(leaves, shape[3:]))


def answer(shape: Shape, size: int) -> bytes:
    """A case's answer of about ``size`` bytes: as many of the shape as fit, in the outermost container."""
    kind, _, apart, *inner = shape if len(shape) > 1 else ("list", 0, "apart", shape)
    each = max(1, len(written(inner[0], 3))) * (2 if kind in ("dict", "ordered", "counter") else 1)
    count = max(1, size // each)
    # Its items differ from each other, else the outermost sets would hold one.
    value = written((kind, count, "all but one" if apart == "all but one" else "apart", *inner), 0)
    return _items(b"l", [_sized(b"s", b"value"), value])


def new_shape(pick: random.Random, depth: int = 0) -> Shape:
    if depth > 3 or pick.random() < 0.3:
        return (pick.choice(list(LEAVES)),)
    count = pick.choice((0, 1, 2, 4, 8, 16, 64, 300))
    apart = pick.choice(("apart", "alike", "bits", "all but one"))
    inner = [new_shape(pick, depth + 1) for _ in range(pick.choice((1, 1, 2)))]
    found = (pick.choice(list(TAGS)), count, apart, *inner)
    return found if leaves(found) < 500 else inner[0]


def changed_shape(shape: Shape, pick: random.Random) -> Shape:
    if len(shape) == 1 or pick.random() < 0.2:
        return new_shape(pick, 2)
    kind, count, apart, *inner = shape
    match pick.randrange(5):
        case 0:
            kind = pick.choice(list(TAGS))
        case 1:
            count = min(1000, max(0, int(count * pick.choice((0.5, 2, 1.4)))))
        case 2:
            apart = pick.choice(("apart", "alike", "bits", "all but one"))
        case 3:
            inner = [shape]
        case _:
            place = pick.randrange(len(inner))
            inner[place] = changed_shape(inner[place], pick)
    found = (kind, count, apart, *inner)
    return found if leaves(found) < 500 else shape


PIECES = (
    "1", "9", "19", "1e5", "1.5", "-0", "0" * 30, "e", "a", "É", "\u0390", "ß", "\U00010400", " ", "\n", "\r",
    "\t", "\v", "Case 1:", "YES", "nan", "0x1p-3", "_", "\xa0", "é" * 20, ".",
)  # fmt: skip


def new_text(pick: random.Random) -> tuple[str, ...]:
    return tuple(pick.choice(PIECES) for _ in range(pick.randrange(1, 7)))


def changed_text(text: tuple[str, ...], pick: random.Random) -> tuple[str, ...]:
    place = pick.randrange(len(text))
    return text[:place] + new_text(pick)[: pick.randrange(3)] + text[place + pick.randrange(2) :] or ("1",)


def printed(text: tuple[str, ...], size: int) -> bytes:
    """An output of about ``size`` bytes: the pieces, again and again."""
    pattern = "".join(text).encode()
    return pattern * (size // len(pattern) + 1)


def judge_value(data: bytes, expected: Any, mode: str) -> None:
    with suppress(WireError):
        for found in read_each(data, lambda: [expected]):
            value = found[1] if type(found) is list and len(found) == 2 else found
            if mode == "ours":
                equal(value, expected)
            else:
                value_rule(Compare(mode, abs=1e-6 if mode == "grader:evalplus" else None))(
                    value, expected, []
                )  # type: ignore[arg-type]
            show(value)


def judge_text(data: bytes, expected: str, mode: str) -> None:
    if mode in CHECKERS:
        check_standard(mode, data, expected.encode())
    else:
        compare(data, expected, Compare(mode))


def measured(prepare: Callable[[], Any], work: Callable[[Any], None]) -> tuple[float, int]:
    """CPU seconds and bytes of memory beyond what there was, in a fork; 0 where preparing takes seconds."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(3)
        prepared = prepare()
        signal.alarm(0)
        os.write(theirs, b"prepared")
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        work(prepared)
        cost = (
            time.process_time() - began,
            (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10,
        )
        os.write(theirs, pickle.dumps(cost))
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    if said == b"prepared":
        return float(LIMIT_S), 0
    return pickle.loads(said[8:]) if said else (0.0, 0)


class Kind:
    """What is searched: how an answer is made, changed and judged."""

    def __init__(
        self, name: str, new: Any, change: Any, make: Any, work: Any, modes: tuple[str, ...]
    ) -> None:
        self.name, self.new, self.change, self.make, self.work, self.modes = (
            name,
            new,
            change,
            make,
            work,
            modes,
        )

    def cost(self, found: tuple[Any, str, bool], size: int) -> tuple[float, float, int]:
        """Seconds per MiB, memory per byte, and the bytes of the answer."""
        what, mode, itself = found
        data = self.make(what, size)
        seconds, memory = measured(
            lambda: self.expected(data, itself), lambda expected: self.work(data, expected, mode)
        )
        return seconds / len(data) * (1 << 20), memory / len(data), len(data)

    def expected(self, data: bytes, itself: bool) -> Any:
        """What the answer is held against: something small, or nearly itself."""
        if self.work is judge_text:
            return data.decode()[:-1] + "!" if itself else "19 20\n"
        with suppress(WireError):
            return decode(data)[1] if itself else [1, 2, 3]

    def search(
        self, seconds: float, pick: random.Random, by_memory: bool
    ) -> tuple[tuple[Any, str, bool], int]:
        best: list[tuple[float, Any]] = []
        ended, tried = time.monotonic() + seconds, 0
        while time.monotonic() < ended:
            if len(best) < 8 or pick.random() < 0.25:
                found = (self.new(pick), pick.choice(self.modes), pick.random() < 0.3)
            else:
                _, (what, mode, itself) = pick.choice(best)
                found = (self.change(what, pick), pick.choice((mode, pick.choice(self.modes))), itself)
            tried += 1
            cost = self.cost(found, SMALL)[by_memory]
            best = sorted([*best, (cost, found)], key=lambda entry: -entry[0])[:8]
        return best[0][1], tried


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of the search for each of the four worst"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    pick = random.Random(args.seed)
    kinds = (
        Kind(
            "value", new_shape, changed_shape, answer, judge_value, ("ours", "grader:lcb", "grader:evalplus")
        ),
        Kind("text", new_text, changed_text, printed, judge_text, (*MODES, *CHECKERS)),
    )
    for kind in kinds:
        for by_memory in (False, True):
            found, tried = kind.search(args.seconds, pick, by_memory)
            print(f"{kind.name}, worst in {'memory' if by_memory else 'time'} of {tried}: {found}")
            for size in (SMALL, LARGE):
                seconds, memory, length = kind.cost(found, size)
                print(
                    f"    {length >> 10} KiB: {seconds:.3f} s and {memory:.1f} MiB for each MiB", flush=True
                )


if __name__ == "__main__":
    main()
