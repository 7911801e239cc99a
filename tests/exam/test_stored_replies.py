"""Stored replies of types that other trainers, or broken files, may have."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, StdinCase, StdinTests
from whetstone.data.files import write_problems
from whetstone.report.rollouts import RolloutWriter, StoredRollout, rollout_columns
from whetstone_exam.rejudge.stored_replies import ProblemIndex, read_replies, stored_steps

ADD = Problem("t/add", "Print the sum of two numbers.", StdinTests([StdinCase("1 2\n", "3\n")]))
TEXT = msgspec.json.encode(ADD).decode()
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
ROW: dict[str, Any] = {"input": ADD.statement, "output": RIGHT, "gts": "", "score": 1.0, "step": 1}
HUGE = "9" * 5000


def replies_of(folder: Path, problems: list[Problem] | None = None) -> list[Any]:
    index = ProblemIndex([ADD] if problems is None else problems)
    return [
        reply
        for step, path in stored_steps(folder).items()
        for reply in read_replies(folder, step, path, index, "")
    ]


def read_or_named(folder: Path) -> int | str:
    """The number of replies in a folder, or the error of a user."""
    try:
        return len(replies_of(folder))
    except UserError as error:
        return str(error)


def test_every_field_of_a_verl_row_with_every_type_is_read_or_named(tmp_path: Path) -> None:
    """No row ends the command with an internal error."""
    read = refused = 0
    for text in json_texts():
        for name in ROW:
            line = json.dumps({**ROW, name: "@"}).replace('"@"', text)
            (tmp_path / "1.jsonl").write_text(json.dumps(ROW) + "\n" + line + "\n")
            answer = read_or_named(tmp_path)
            assert answer == 2 or "line 2" in str(answer), answer
            read += answer == 2
            refused += answer != 2
    assert read > 60
    assert refused > 30


def json_texts() -> Iterator[str]:
    """JSON of every type, and of unusual sizes."""
    yield from ("null", "true", "0", "-1", "1.5", "1e400", "-1e400", "NaN", "Infinity", HUGE, "9" * 400)
    yield from ('""', '"a"', '"\\ud800"', '"1.0"', "[]", "{}", '["a"]', "[1]", "[null]", "[[]]", "[{}]")
    yield from ('[{"role":"assistant","content":"a"}]', '[{"content":5}]', '[{"content":[5]}]', '{"a":1}')
    yield from ("[" * 100_000 + "]" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000, "9" * 200_000)
    yield json.dumps(TEXT)
    yield json.dumps('{"tests": ' + "[" * 10_000)


@pytest.mark.parametrize("column", ["prompt", "completion", "code"])
def test_every_column_of_a_trl_dump_with_every_type_is_read_or_named(tmp_path: Path, column: str) -> None:
    (tmp_path / "completions").mkdir()
    right = {"prompt": [ADD.statement] * 2, "completion": [RIGHT] * 2, "code": [1.0, 0.0]}
    for values in arrow_columns():
        table = pa.table({**right, column: values})
        pq.write_table(table, tmp_path / "completions" / "completions_00001.parquet")
        answer = read_or_named(tmp_path)
        assert answer == 2 or "cannot be read as stored replies" in str(answer), answer


def arrow_columns() -> Iterator[pa.Array]:
    yield pa.array([None, None])
    yield pa.array([None, "a"])
    yield pa.array([1, 2])
    yield pa.array([float("nan"), 1.0])
    yield pa.array([float("inf"), float("-inf")])
    yield pa.array([True, False])
    yield pa.array([b"\xff", b"a"])
    yield pa.array([b"\xff", b"a"]).view(pa.string())
    yield pa.array(["a", "b"], pa.large_string())
    yield pa.array(["a", "b"]).dictionary_encode()
    yield pa.array([["a"], [None]])
    yield pa.array([[[1]], None])
    yield pa.array([{"a": 1}, {"a": None}])
    yield pa.array([[{"role": "assistant", "content": None}], []])
    yield pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))
    yield pa.array([10**17] * 2, pa.timestamp("us"))
    yield pa.array([1, 2]).cast(pa.decimal128(25, 2))
    yield pa.array([1.0, 2.0]).cast(pa.float16())


def test_every_column_of_a_run_with_every_type_is_read_or_named(tmp_path: Path) -> None:
    rollout = StoredRollout(1, "t/add", "p", "r", None, None, "", 1.0, "stop", 5, 0, 0, [])
    path = RolloutWriter(tmp_path).write(1, [rollout, rollout])
    right = pq.read_table(path)
    for place, name in enumerate(right.column_names):
        for values in (*arrow_columns(), pa.array(["[" * 100_000] * 2), pa.array(["[5]"] * 2)):
            pq.write_table(right.set_column(place, name, values), path)
            answer = read_or_named(tmp_path)
            assert answer == 2 or "cannot be read as rollouts" in str(answer), answer
            rollout_columns(path, [name])  # for the pages: None if it cannot be read


def test_folders_on_the_way_to_a_trl_dump_are_no_columns(tmp_path: Path) -> None:
    folder = tmp_path / "step=5" / "code=x" / "completions"
    folder.mkdir(parents=True)
    table = pa.table({"step": [1.0], "prompt": [ADD.statement], "completion": [RIGHT], "code": [1.0]})
    pq.write_table(table, folder / "completions_00001.parquet")
    assert [reply.reward for reply in replies_of(folder.parent)] == [1.0]


def test_a_verl_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps(ROW).encode())
    assert [reply.reward for reply in replies_of(tmp_path)] == [1.0]


@pytest.mark.parametrize("data", [json.dumps(ROW).encode("utf-16"), b'{"input": "s\xfcm"}', b'{"input": "a'])
def test_a_verl_file_in_another_encoding_or_cut_off_is_a_user_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "1.jsonl").write_bytes(data)
    with pytest.raises(UserError, match="cannot be read as stored replies"):
        replies_of(tmp_path)


def test_names_that_are_not_plain_numbers_are_no_steps(tmp_path: Path) -> None:
    for name in ("\u00b2", "\u0663", "x", "1_0", "-1", " 1"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(ROW))
    with pytest.raises(UserError, match="no stored replies"):
        stored_steps(tmp_path)
    (tmp_path / "7.jsonl").write_text(json.dumps(ROW))
    assert list(stored_steps(tmp_path)) == [7]


def test_two_files_of_one_step_are_a_user_error(tmp_path: Path) -> None:
    for name in ("1", "01"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(ROW))
    with pytest.raises(UserError, match="are both step 1"):
        stored_steps(tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "folder", "dangling", "circle"])
def test_a_pipe_folder_or_broken_link_in_a_dump_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "1.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "gone" if kind == "dangling" else path)
    with pytest.raises(UserError, match="cannot be read as stored replies"):
        replies_of(tmp_path)


def test_two_problems_of_one_id_or_one_statement_are_not_mixed_up(tmp_path: Path) -> None:
    other = msgspec.structs.replace(ADD, tests=StdinTests([StdinCase("1 2\n", "4\n")]))
    rows = [{**ROW, "gts": msgspec.json.encode(problem).decode()} for problem in (ADD, other)]
    (tmp_path / "1.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match="two different problems have the id 't/add'"):
        replies_of(tmp_path)
    (tmp_path / "1.jsonl").write_text(json.dumps(ROW))
    twin = msgspec.structs.replace(other, id="t/twin")
    assert [reply.problem for reply in replies_of(tmp_path, [ADD, twin])] == [None]
    assert [reply.problem for reply in replies_of(tmp_path, [twin])] == [twin]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--steps", HUGE],
        ["--steps", f"1:{HUGE}"],
        ["--steps", "\u0661"],
        [f"judge.workers={HUGE}"],
        ["environment.extraction=" + "[" * 50_000],
        ["environment.extraction=2024-02-30"],
        ["environment.extraction=!!timestamp 1-99-99"],
    ],
)
def test_impossible_options_of_rejudge_are_invalid_input(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "1.jsonl").write_text(json.dumps(ROW))
    write_problems(tmp_path / "set.jsonl", [ADD])
    command = ["rejudge", str(tmp_path / "dump"), "--problems", str(tmp_path / "set.jsonl"), *arguments]
    assert main(command) == 2
    assert capsys.readouterr().err.startswith("whetstone: ")
