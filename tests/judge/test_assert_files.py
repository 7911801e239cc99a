"""Assert tests that touch files: the two sides have the same ones, but for what the test kept to itself.

No problem here has a reference, so that nothing but the proxy can accept.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import assert_problem, python
from whetstone.judge import Judge, Judgement, Verdict
from whetstone.judge.rpc.files import MAX_FILE_BYTES, SharedFiles, check_database
from whetstone.judge.values import WireError

DATA = data_beside(__file__)
TEXTS: str = DATA["texts"]["texts"]
DATABASE: str = DATA["texts"]["database"]
OPEN = "def put(name, text):\n    with open(name, 'w') as file:\n        file.write(text)\n"
TEXT_TESTS: dict[str, str] = DATA["text_tests"]


def judged(judge: Judge, source: str, asserts: list[str], setup: str = OPEN) -> Judgement:
    problem = assert_problem(setup=setup, asserts=asserts)
    return judge.judge({**problem, "statement": "`def __init__(self, path='notes.txt')`"}, python(source))


@pytest.mark.process
def test_both_sides_have_the_same_files(tier_judge: Judge) -> None:
    judgement = judged(tier_judge, TEXTS, list(TEXT_TESTS.values()))
    failed = {n: c.reason for n, c in zip(TEXT_TESTS, judgement.cases, strict=True) if c.reason}
    assert judgement.accepted, failed


def test_a_database_is_open_on_both_sides(judge: Judge) -> None:
    code = DATA["files_test"]
    judgement = judged(judge, DATABASE, [code])
    assert judgement.accepted, judgement.reason


LOOK: str = DATA["texts"]["look"]


def test_a_file_that_the_test_did_not_name_is_not_shown(judge: Judge) -> None:
    code = "put('in.txt', 'a')\nput('expected.txt', 'SECRET')\nassert Texts('in.txt').guess() == {}"
    assert judged(judge, LOOK, [code.format("'a'")]).accepted
    assert judged(judge, LOOK, [code.format("open('expected.txt').read()")]).verdict is Verdict.WRONG_ANSWER


def test_a_file_of_the_test_is_not_replaced(judge: Judge) -> None:
    source = "def write(path):\n    for p in (path, 'expected.txt'):\n        open(p, 'w').write('mine')"
    code = "put('expected.txt', 'right')\nwrite('out.txt')\nassert open('out.txt').read() == {}"
    assert judged(judge, source, [code.format("'mine'")]).accepted
    forged = judged(judge, source, [code.format("open('expected.txt').read()")])
    assert forged.verdict is Verdict.WRONG_ANSWER


LYING: dict[str, str] = DATA["lying"]


def made_database(statements: str, path: Any) -> bytes:
    import sqlite3

    db = sqlite3.connect(path)
    db.executescript(statements)
    db.close()
    return path.read_bytes()


@pytest.mark.parametrize("statements", LYING.values(), ids=LYING.keys())
def test_a_database_with_code_or_views_is_refused(statements: str, tmp_path: Any) -> None:
    with pytest.raises(WireError):
        check_database(made_database(statements, tmp_path / "x.db"))


def test_plain_databases_are_let_through(tmp_path: Any) -> None:
    tables = (
        "CREATE TABLE books (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT UNIQUE CHECK (title <> ''),"
    )
    tables += " at TEXT DEFAULT CURRENT_TIMESTAMP); CREATE INDEX i ON books (title, at);"
    tables += 'CREATE TABLE "as view" (x, FOREIGN KEY (x) REFERENCES books (id)) WITHOUT ROWID;'.replace(
        "(x,", "(x PRIMARY KEY,"
    )
    check_database(
        made_database(tables + "INSERT INTO books (title) VALUES ('as'), ('b')", tmp_path / "x.db")
    )
    check_database(made_database(f"PRAGMA journal_mode = WAL; {tables}", tmp_path / "y.db"))


@pytest.mark.parametrize(
    "changes",
    [
        [[["../x", b""]], []],
        [[["/x", b""]], []],
        [[["a//x", b""]], []],
        [[["a/./x", b""]], []],
        [[["a\0x", b""]], []],
        [[["", b""]], []],
        [[["x", "text"]], []],
        [[["x" * 2000, b""]], []],
        [[], ["../x"]],
        [[["x", b"", 1]], []],
        [[], None],
        None,
    ],
)
def test_nonsense_about_files_is_refused(changes: Any, tmp_path: Any) -> None:
    with pytest.raises(WireError):
        SharedFiles(str(tmp_path), (), ()).apply(changes)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_followed_out_of_the_directory(tmp_path: Any) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "x").write_text("safe")
    (inside / "link").symlink_to(outside)
    (inside / "file").symlink_to(outside / "x")
    (inside / "own").write_text("own")
    files = SharedFiles(str(inside), (), ())
    files.apply([[["link/x", b"1"], ["link/y", b"1"], ["file", b"1"], ["own", b"1"], [".hidden", b"1"]], []])
    files.apply([[], ["own", "link/x"]])
    assert (outside / "x").read_text() == "safe"
    assert [p.name for p in outside.iterdir()] == ["x"]
    assert (inside / "own").read_text() == "own"
    assert not (inside / ".hidden").exists()
    files.apply([[["deep/er/x", b"1"], ["empty", None]], []])
    assert (inside / "deep" / "er" / "x").read_bytes() == b"1"
    assert (inside / "empty").is_dir()


def test_only_small_plain_files_go_over(tmp_path: Any) -> None:
    (tmp_path / "large").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    (tmp_path / "books.db-journal").write_text("3")
    files = SharedFiles(str(tmp_path), (), ("b",))
    assert files.changes() == [[["b", b"2"]], []]
    files.add_named_paths(["call", {"path": "./a"}, "large", "link", "books.db"])
    assert files.changes() == [[["a", b"1"]], []]
    assert files.changes() == [[], []]
    (tmp_path / "a").unlink()
    assert files.changes() == [[], ["a"]]
