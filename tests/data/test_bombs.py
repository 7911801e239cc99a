"""Packed files that grow beyond reason when they are opened: refused, and cheaply."""

from __future__ import annotations

import base64
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from whetstone.core.errors import UserError
from whetstone.data.files import read_problems
from whetstone.data.sources.packed import unpack
from whetstone.data.sources.rows import read_rows
from whetstone.data.sources.source import Skip

BOMB = 64 << 20
MOST = 1 << 20
"""What is allowed here: the real limits are hundreds of megabytes, and the bombs of a test would be slow."""


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whetstone.data.sources.packed.MOST_UNPACKED_BYTES", MOST)
    monkeypatch.setattr("whetstone.data.sources.packed._PIECE", MOST)
    monkeypatch.setattr("whetstone.data.files.LONGEST_ROW", MOST)
    monkeypatch.setattr("whetstone.data.sources.rows.LONGEST_ROW", MOST)


def peak(action: Callable[[], object]) -> int:
    """Bytes that Python held at most because of ``action``, which ends by itself."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("filling", [b"[", b" "])
def test_compressed_tests_are_measured_before_they_are_kept(filling: bytes) -> None:
    text = base64.b64encode(zlib.compress(filling * BOMB)).decode()

    def refused() -> None:
        with pytest.raises(Skip, match="MB when decompressed"):
            unpack(text, "private_test_cases")

    assert peak(refused) < BOMB / 4


def test_compressed_tests_of_the_largest_size_are_read_and_truncated_ones_are_not() -> None:
    value = ["x" * (MOST - 4)]
    packed = zlib.compress(json.dumps(value).encode())
    assert unpack(base64.b64encode(packed).decode(), "tests") == value
    with pytest.raises(Skip, match="neither JSON nor Python data"):
        unpack(base64.b64encode(packed[:-8]).decode(), "tests")


@pytest.mark.parametrize("ending", ["jsonl.gz", "json.gz"])
@pytest.mark.parametrize("head", [b'{"a": "', b'[{"a": "'])
def test_a_compressed_line_that_never_ends_is_refused(tmp_path: Path, ending: str, head: bytes) -> None:
    file = tmp_path / f"rows.{ending}"
    file.write_bytes(gzip.compress(head + b"x" * BOMB))

    def refused() -> None:
        with pytest.raises(UserError, match=r"longer than 1 MB, which no row is|is the file complete"):
            list(read_rows([file]))

    assert peak(refused) < BOMB / 4


def test_a_problem_file_with_such_a_line_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "problems.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"id": "' + b"x" * BOMB))

    def refused() -> None:
        with pytest.raises(UserError, match=r"line 1: longer than 1 MB"):
            list(read_problems(file))

    assert peak(refused) < BOMB / 4
