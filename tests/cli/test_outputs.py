"""No command writes over what it reads or was not asked to replace, and a full disk cuts no file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.core.outputs import LineLog, check_outputs, write_file

PROBLEM = {
    "id": "demo/add",
    "statement": "Read two integers and print their sum.",
    "tests": {"kind": "stdin", "cases": [{"input": f"{n} 2\n", "output": f"{n + 2}\n"} for n in (1, 5)]},
    "references": [{"language": "python", "source": "print(sum(map(int, input().split())))"}],
}
LINE = {"problem_id": "demo/add", "source": "print(sum(map(int, input().split())))"}
COUNT = 300

VERBS = {
    "judge": "judge run --problems {read} --programs {programs} --workers 1 --out {out}",
    "convert": "data convert {read} {out}",
    "dedupe": "data dedupe {read} --out {out}",
    "decontaminate": "data decontaminate {read} --against mine=builtin:heldout --out {out}",
    "select": "data select {read} --out {out}",
    "validate": "data validate {read} --workers 1 --mutants 0 --out {out}",
}
ALIASES: dict[str, Callable[[Path, Path], object]] = {
    "itself": lambda read, out: None,
    "symbolic link": lambda read, out: out.symlink_to(read),
    "hard link": lambda read, out: os.link(read, out),
}


@pytest.fixture
def read(tmp_path: Path) -> Path:
    """A problem file, with a file of programs beside it."""
    (tmp_path / "read.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    (tmp_path / "programs.jsonl").write_text(json.dumps(LINE) + "\n")
    return tmp_path / "read.jsonl"


def words(verb: str, read: Path, out: Path) -> list[str]:
    places = {"read": read, "programs": read.with_name("programs.jsonl"), "out": out}
    return [word.format(**places) for word in VERBS[verb].split()]


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("verb", VERBS)
def test_an_input_is_never_the_output_by_whatever_name(
    verb: str, alias: str, read: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read.read_bytes()
    out = read if alias == "itself" else read.with_name("other.jsonl")
    ALIASES[alias](read, out)
    for given in (out, out.parent / ".." / out.parent.name / out.name):
        assert main([*words(verb, read, given), "--replace"]) == 2
        assert "which is read; name another output" in capsys.readouterr().err
    assert read.read_bytes() == before


@pytest.mark.drawn(3)
@pytest.mark.process
@pytest.mark.parametrize("verb", VERBS)
def test_what_is_there_is_replaced_only_where_that_was_asked_for(
    verb: str, read: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = read.with_name("out.jsonl")
    out.write_text("mine\n")
    assert main(words(verb, read, out)) == 2
    assert "give --replace to replace it" in capsys.readouterr().err
    assert out.read_text() == "mine\n"
    assert main([*words(verb, read, out), "--replace"]) == 0
    assert out.read_text() != "mine\n"


def test_programs_are_an_input_too(read: Path) -> None:
    programs = read.with_name("programs.jsonl")
    assert main([*words("judge", read, programs), "--replace"]) == 2
    assert json.loads(programs.read_text()) == LINE


def test_folders_and_files_in_each_other_are_one_place(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.parquet").write_text("x")
    for out, read in (("set/train.parquet", "set"), ("set", "set/train.parquet")):
        with pytest.raises(UserError, match="which is read"):
            check_outputs(tmp_path / out, inputs=[tmp_path / read], replace=True)
    check_outputs(tmp_path / "set" / "new.parquet", inputs=[tmp_path / "set"])
    with pytest.raises(UserError, match="two outputs at one place"):
        check_outputs(tmp_path / "a", tmp_path / "set" / ".." / "a")
    with pytest.raises(UserError, match="is written as a whole"):
        check_outputs(tmp_path / "a", tmp_path / "a" / "b.jsonl")


def test_a_pipe_is_written_to_as_it_stands(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_outputs(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_file(pipe, [b"whole"])
    assert os.read(end, 10) == b"whole"
    os.close(end)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_symbolic_link_keeps_its_target_and_a_failure_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(KeyError):
        write_file(tmp_path / "link", ({"a": b"half"}[name] for name in "ab"))
    assert (tmp_path / "file").read_text() == "old"
    write_file(tmp_path / "link", [b"new"])
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a file system is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no room, but for what a directory entry needs."""
    with (folder / "ballast").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                return


@pytest.mark.drawn(3)
@pytest.mark.process
@pytest.mark.parametrize("verb", VERBS)
def test_a_full_disk_ends_with_a_message_and_keeps_the_old_file(
    verb: str, read: Path, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(small_disk)
    assert main(words(verb, read, small_disk / "out.jsonl")) == 2
    said = capsys.readouterr().err
    assert "No space left on device; free some space" in said
    left = {path.name for path in small_disk.iterdir()}
    assert left <= {"ballast", "out.jsonl.validating.jsonl"}, left


APPS = Path(__file__).parents[1] / "data" / "fixtures" / "apps.jsonl"


@pytest.mark.process
def test_a_dataset_that_finds_no_room_is_a_message(
    tmp_path: Path, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "files").mkdir()
    shutil.copy(APPS, tmp_path / "files" / "test.jsonl")
    fill(small_disk)
    command = f"data prepare apps={tmp_path}/files --split test --out {small_disk}/out"
    assert main(command.split()) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert [path.name for path in small_disk.rglob("*") if path.is_file()] == ["ballast"]


@pytest.mark.drawn(1)
@pytest.mark.process
@pytest.mark.parametrize("out", ["out", "out.jsonl", "out.jsonl.gz", "out.parquet"])
def test_a_set_that_outgrows_the_disk_leaves_nothing(
    out: str, tmp_path: Path, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "read.jsonl").open("w") as file:
        for number in range(COUNT):
            noise = os.urandom(400).hex()
            file.write(json.dumps({**PROBLEM, "id": f"demo/{number}", "statement": noise}) + "\n")
    assert main(["data", "select", str(tmp_path / "read.jsonl"), "--out", str(small_disk / out)]) == 2
    assert f"{small_disk / out}: cannot be written: " in capsys.readouterr().err
    assert list(small_disk.iterdir()) == []


def append_for_ever(log: LineLog) -> None:
    while True:
        log.append(b"a line of some length\n")


@pytest.mark.process
def test_a_log_on_a_full_disk_says_so_and_keeps_whole_lines(small_disk: Path) -> None:
    log = LineLog(small_disk / "log", way_out="do this")
    with pytest.raises(UserError, match="do this"):
        append_for_ever(log)
    log.close()
    with LineLog(small_disk / "log"):
        lines = (small_disk / "log").read_bytes().splitlines(keepends=True)
    assert set(lines) == {b"a line of some length\n"}


def limited(kilobytes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command whose files must not become longer: like a full disk, and no right is needed."""
    shell = ["bash", "-c", f'ulimit -f {kilobytes}; exec "$@"', "bash", sys.executable, "-m", "whetstone"]
    return subprocess.run([*shell, *arguments], capture_output=True, text=True, timeout=600)


@pytest.mark.process
def test_a_page_that_does_not_fit_leaves_no_part_of_itself(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("name: demo\ntrainer: {steps: 1}\n")
    (tmp_path / "metrics.jsonl").write_text('{"kind": "train", "step": 1, "reward/mean": 0.5, "time": {}}\n')
    done = limited(8, "report", str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert "report.html: cannot be written: File too large; free some space" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "recipe.yaml"]


def test_a_report_does_not_replace_files_of_its_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.yaml").write_text("name: demo\ntrainer: {steps: 1}\n")
    (tmp_path / "metrics.jsonl").write_text('{"kind": "train", "step": 1, "reward/mean": 0.5, "time": {}}\n')
    page, metrics = str(tmp_path / "report.html"), str(tmp_path / "metrics.jsonl")
    assert main(["report", str(tmp_path), "--out", metrics, "--replace"]) == 2
    assert main(["report", str(tmp_path)]) == main(["report", str(tmp_path)]) == 0
    assert main(["report", str(tmp_path), "--out", page]) == 2
    assert main(["report", str(tmp_path), "--out", page, "--replace"]) == 0


@pytest.mark.extended
@pytest.mark.process
def test_a_model_that_does_not_fit_leaves_no_part_of_itself(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from whetstone.engine.loading import save_model
    from whetstone.engine.scratch import build_scratch
    from whetstone.engine.settings import ScratchModel

    settings = ScratchModel(
        hidden_size=64, layers=1, heads=2, kv_heads=2, intermediate_size=64, vocab_size=300
    )
    save_model(*build_scratch(settings, ["def f():\n    return 1\n"] * 4, 0), tmp_path / "model")
    done = limited(40, "export", str(tmp_path / "model"), str(tmp_path / "out"))
    assert done.returncode == 2, done.stderr
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
