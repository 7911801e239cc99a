"""What it costs to refuse a packed file that grows to a gigabyte: its peak memory and its CPU.

python benchmarks/data_bombs.py
"""

from __future__ import annotations

import base64
import gzip
import resource
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

GIGABYTE = 1 << 30
PIECE = 1 << 22


def pieces(head: bytes) -> Iterator[bytes]:
    yield head
    for _ in range(GIGABYTE // PIECE):
        yield b"[" * PIECE


def packed_tests(file: Path) -> None:
    packer = zlib.compressobj()
    data = b"".join(packer.compress(piece) for piece in pieces(b"")) + packer.flush()
    file.write_bytes(base64.b64encode(data))


def line(file: Path) -> None:
    with gzip.open(file, "wb", compresslevel=1) as sink:
        sink.writelines(pieces(b'{"a": "'))


BOMBS: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "tests.txt": (
        "LiveCodeBench's private tests",
        packed_tests,
        "from whetstone.data.sources.packed import unpack; unpack(open(path).read(), 'private_test_cases')",
    ),
    "rows.jsonl.gz": (
        "one line of a .jsonl.gz",
        line,
        "from whetstone.data.sources.rows import read_rows; from pathlib import Path; "
        "list(read_rows([Path(path)]))",
    ),
}


def refused(path: Path, code: str) -> None:
    """Run ``code`` over ``path``; it must be refused."""
    wrapped = (
        f"import sys; path = sys.argv[1]\ntry:\n    {code}\nexcept Exception as e:\n    print(str(e)[-90:])"
    )
    print("  ", end="", flush=True)
    subprocess.run([sys.executable, "-c", wrapped, str(path)], check=True)


def main() -> None:
    """Print what each costs."""
    with tempfile.TemporaryDirectory() as folder:
        for name, (what, write, code) in BOMBS.items():
            path = Path(folder, name)
            write(path)
            measure = [sys.executable, __file__, str(path), code]
            out = subprocess.run(measure, check=True, capture_output=True, text=True).stdout
            print(f"{what}: {path.stat().st_size / 1e6:.1f} MB\n{out}", end="", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        refused(Path(sys.argv[1]), sys.argv[2])
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = used.ru_utime + used.ru_stime
        print(f"  peak {used.ru_maxrss / 1024:.0f} MB, {cpu_s:.1f} s of CPU, start of Python included")
    else:
        main()
