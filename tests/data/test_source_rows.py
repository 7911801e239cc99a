"""Rows of local files: every format gives the same rows, streamed, and a broken file is named."""

from __future__ import annotations

import csv
import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whetstone.core.errors import UserError
from whetstone.data.sources.rows import local_files, read_rows

ROWS: list[dict[str, Any]] = [
    {"id": "a", "number": 1, "tests": [{"in": "1\r\n", "out": "é"}], "none": None},
    {"id": "b", "number": 2**40, "tests": [], "none": None},
]


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    name = file.name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif name.endswith((".stream.arrow", ".file.arrow")):
        table = pa.Table.from_pylist(rows)
        new = pa.ipc.new_stream if "stream" in name else pa.ipc.new_file
        with pa.OSFile(str(file), "wb") as sink, new(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        text = json.dumps(rows, indent=1) if name.startswith("array") else lines
        file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return file


FORMATS = ("r.parquet", "r.stream.arrow", "r.file.arrow", "r.jsonl", "r.jsonl.gz")
JSON_FORMATS = ("array.json", "array.json.gz", "lines.json")


def test_every_format_gives_the_same_rows_with_their_places(tmp_path: Path) -> None:
    for name in FORMATS + JSON_FORMATS:
        file = write(tmp_path / name, ROWS)
        assert list(read_rows([file])) == [(f"{file}, row 1", ROWS[0]), (f"{file}, row 2", ROWS[1])]


def test_csv_gives_text(tmp_path: Path) -> None:
    with (tmp_path / "r.csv").open("w", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerows([["id", "code"], ["a", "x\n" * 100_000], ["b", 'say "hi", twice']])
    rows = [row for _, row in read_rows([tmp_path / "r.csv"])]
    assert rows == [{"id": "a", "code": "x\n" * 100_000}, {"id": "b", "code": 'say "hi", twice'}]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.dictionaries(st.text(), values, max_size=3), max_size=5),
    indent=st.sampled_from([None, 2]),
    ascii_only=st.booleans(),
    chunk=st.integers(1, 64),
)
def test_a_json_array_read_in_pieces_is_the_array(
    rows: list[dict[str, Any]],
    indent: int | None,
    ascii_only: bool,
    chunk: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("whetstone.data.sources.rows._CHUNK", chunk)
    (tmp_path / "r.json").write_text(json.dumps(rows, indent=indent, ensure_ascii=ascii_only), "utf-8")
    assert [row for _, row in read_rows([tmp_path / "r.json"])] == rows


@pytest.mark.parametrize("name", ["r.parquet", "r.stream.arrow", "r.jsonl", "array.json"])
def test_memory_holds_some_rows_and_never_the_file(name: str, tmp_path: Path) -> None:
    rows = [{"id": str(n), "text": f"{n:07}" * 30_000} for n in range(60)]
    file = write(tmp_path / name, rows)
    del rows
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_rows([file]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 60
    assert peak < 8e6  # of 12.6 MB


BROKEN_FILES = [
    ("r.jsonl", b'{"a": 1}\n{"a": \n', r"r\.jsonl, line 2: not JSON in UTF-8"),
    ("r.jsonl", b"[1]\n", r"r\.jsonl, line 1: a list; a row is an object of columns"),
    ("r.json", b'[{"a": 1}, {"a": ', r"r\.json, row 2: not JSON: .*is the file complete\?"),
    ("r.json", b'[{"a": 1}', r"r\.json: the JSON array does not end"),
    ("r.json", b'[{"a": 1} {"a": 2}]', r"r\.json: not a JSON array: `,` expected, `{` found"),
    ("r.parquet", b"PAR1....", r"r\.parquet: cannot be read as Parquet"),
    ("r.arrow", b"ARROW1..", r"r\.arrow: cannot be read as Arrow"),
    ("r.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 99, mtime=0)[:-9], r"r\.jsonl\.gz: cannot be .* complete\?"),
    ("r.csv", b'a,b\n"\xff",1\n', r"r\.csv: cannot be read"),
    ("r.xml", b"<a/>", r"r\.xml: unknown kind of file; names of files with rows end in \.parquet"),
]


def test_a_broken_file_is_named_with_the_place(tmp_path: Path) -> None:
    for name, content, words in BROKEN_FILES:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=words):
            list(read_rows([tmp_path / name]))


def test_a_folder_gives_the_files_that_the_source_names_or_all_with_rows(tmp_path: Path) -> None:
    found = ("data/train-0.jsonl", "data/train-1.jsonl", "data/test.jsonl", ".cache/x.jsonl", "README.md")
    for name in found:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    (tmp_path / "dataset_info.json").write_text("{}")

    def names(*globs: str) -> list[str]:
        return [file.name for file in local_files(tmp_path, globs)]

    assert names("data/train-*") == ["train-0.jsonl", "train-1.jsonl"]
    assert names("other/*") == ["test.jsonl", "train-0.jsonl", "train-1.jsonl"]
    with pytest.raises(UserError, match="no such file or folder"):
        local_files(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="contains no file with rows"):
        local_files(tmp_path / "empty")
