"""``prepare``: sources into one dataset that does not depend on interruptions or on its other sources."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from pydantic import ValidationError
from rich.console import Console

from tests.data.hub_server import COMMIT, serving
from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, StdinCase, StdinTests
from whetstone.core.progress import Progress, Work
from whetstone.data.card import read_card
from whetstone.data.dataset import open_problems
from whetstone.data.decisions import read_decisions
from whetstone.data.prepare import ImportSettings, PreparationPlan, SourceRequest, prepare, split_of
from whetstone.data.sources.source import DatasetSource, Skip

FIXTURE = Path(__file__).parent / "fixtures" / "apps.jsonl"


def numbers(name: str) -> DatasetSource:
    """Rows {"n": 3}: a problem to print 3; every seventh is none."""

    def convert(source: DatasetSource, row: dict[str, int], row_id: str) -> Problem:
        if row["n"] % 7 == 0:
            raise Skip("seventh", f"{row['n']} <script>")
        return Problem(f"{name}/{row_id}", f"Print {row['n']}.", StdinTests([StdinCase("", f"{row['n']}\n")]))

    return DatasetSource(
        name=name,
        title="Numbers",
        files={"train": "train*.jsonl", "test": "test*.jsonl"},
        columns={"n": "a number"},
        licence="MIT",
        convert=convert,
        id_columns=("n",),
    )


class Shown(Progress):
    """Notes how much of a source was read."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True))
        self.sizes: list[float] = []

    def begin(self, name: str, total: float | None = None, done: float = 0, *, counted: bool = True) -> Work:
        work = super().begin(name, total, done, counted=counted)
        work.update = lambda done, note="": self.sizes.append(done)
        return work


class Balanced(HTMLParser):
    """Refuses a page whose elements do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def files_of(tmp_path: Path, name: str, count: int = 300) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    for part in range(2):
        lines = (json.dumps({"n": n}) + "\n" for n in range(part * count // 2, (part + 1) * count // 2))
        (folder / f"train-{part}.jsonl").write_text("".join(lines))
    (folder / "test.jsonl").write_text(json.dumps({"n": 10_001}) + "\n")
    return folder


def plan_for(
    tmp_path: Path, names: str = "ab", **options: float
) -> tuple[list[SourceRequest], ImportSettings]:
    wanted = [SourceRequest(numbers(name), tmp_path / name) for name in names]
    return wanted, ImportSettings.model_validate({"validation": 0.3, **options})


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_every_row_is_a_problem_or_a_decision_and_the_card_says_so(tmp_path: Path) -> None:
    for name in "ab":
        files_of(tmp_path, name)
    watcher = Shown()
    records = prepare(*plan_for(tmp_path), tmp_path / "out", watcher)
    assert [(r.rows, r.problems, r.commit) for r in records] == [(300, 257, None)] * 2
    assert len(list(open_problems(tmp_path / "out"))) == 2 * 257
    decisions = list(read_decisions(tmp_path / "out" / "decisions.jsonl"))
    assert {(d.step, d.action, d.reason) for d in decisions} == {("import", "drop", "seventh")}
    assert decisions[0].detail == "train-0.jsonl, row 1: 0 <script>"
    card = read_card(tmp_path / "out")
    assert card is not None
    assert [(s.read, s.dropped, s.kept) for s in card.drop_report] == [(600, 86, 514)]
    assert card.sources == records
    page = (tmp_path / "out" / "card.html").read_text()
    assert "0 &lt;script&gt;" in page
    assert "<script" not in page
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert str(tmp_path) not in "".join(
        text.decode(errors="replace") for text in content(tmp_path / "out").values()
    )
    assert watcher.sizes == sorted(watcher.sizes[:15]) * 2


def test_a_source_that_cannot_be_read_leaves_the_earlier_dataset(tmp_path: Path) -> None:
    for name in "ab":
        files_of(tmp_path, name)
    prepare(*plan_for(tmp_path, "a"), tmp_path / "out", Progress())
    before = content(tmp_path / "out")
    for file in (tmp_path / "b").glob("*.jsonl"):
        file.write_text('{"m": 1}\n')
    with pytest.raises(UserError, match="column `n` is missing"):
        prepare(*plan_for(tmp_path), tmp_path / "out", Progress())
    assert content(tmp_path / "out") == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "out"]


def test_a_problem_keeps_its_split_when_sources_are_added(tmp_path: Path) -> None:
    for name in "ab":
        files_of(tmp_path, name)
    prepare(*plan_for(tmp_path, "a"), tmp_path / "one", Shown())
    prepare(*plan_for(tmp_path, "ba"), tmp_path / "two", Shown())
    one, two = ({p.id for p in open_problems(f"{tmp_path / name}:validation")} for name in ("one", "two"))
    assert one == {name for name in two if name.startswith("a/")}
    assert 0.2 < len(two) / 514 < 0.4
    prepare(*plan_for(tmp_path, "a", seed=1), tmp_path / "three", Shown())
    assert {p.id for p in open_problems(f"{tmp_path / 'three'}:validation")} != one
    assert {split_of(f"x/{n}", 0.0, 0) for n in range(100)} == {"train"}


def test_problems_name_the_environment_of_their_source_or_of_the_plan(tmp_path: Path) -> None:
    sources = {
        "apps": {"path": str(FIXTURE), "environment": "py312"},
        "taco": {"path": str(FIXTURE)},
        "deepcoder-taco": {"revision": "abc"},
    }
    for given, expected in (({}, ["py312", "", ""]), ({"environment": "py313"}, ["py312", "py313", "py313"])):
        plan = PreparationPlan.model_validate({"sources": sources, **given})
        assert [request.environment for request in plan.requests()] == expected
        assert [request.revision for request in plan.requests()] == [None, None, "abc"]
    for wrong in ({"environment": "/tmp"}, {"sources": {"apps": {"environment": "../up"}}}):
        with pytest.raises(ValidationError, match="environment"):
            PreparationPlan.model_validate({"sources": sources, **wrong})
    wanted = [SourceRequest(numbers(name), files_of(tmp_path, name, 20)) for name in "ab"]
    wanted[0] = replace(wanted[0], environment="py312")
    prepare(wanted, ImportSettings(validation=0), tmp_path / "out", Shown())
    found = {(p.id[:2], p.environment) for p in open_problems(tmp_path / "out")}
    assert found == {("a/", "py312"), ("b/", UNSET)}


def test_splits_and_a_first_part_of_a_source_can_be_asked_for(tmp_path: Path) -> None:
    folder = files_of(tmp_path, "a")
    wanted = [SourceRequest(numbers("a"), folder)]
    prepare(wanted, ImportSettings(splits=("test",), validation=0), tmp_path / "out", Shown())
    problems = list(open_problems(tmp_path / "out"))
    assert [(p.id, p.meta["split"]) for p in problems] == [("a/10001", "test")]
    prepare(wanted, ImportSettings(max_problems=5, validation=0), tmp_path / "out", Shown())
    assert [p.id for p in open_problems(tmp_path / "out")] == ["a/1", "a/2", "a/3", "a/4", "a/5"]
    shutil.copy(folder / "test.jsonl", tmp_path / "any.jsonl")
    prepare(
        [SourceRequest(numbers("a"), tmp_path / "any.jsonl")],
        ImportSettings(validation=0),
        tmp_path / "out",
        Shown(),
    )
    assert [p.id for p in open_problems(tmp_path / "out")] == ["a/10001"]


def test_invalid_requests_are_refused_with_the_remedy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "files").mkdir()
    shutil.copy(FIXTURE, tmp_path / "files" / "test.jsonl")
    for words, message in (
        ("app", r"no source `app`; did you mean `apps`\? \(list them: whetstone data show sources\)"),
        ("apps=", "apps=: give a file or folder after the =, or apps alone for the hub"),
        ("apps=absent.jsonl", "absent.jsonl: no such file or folder"),
        ("apps apps", "source apps is given twice"),
        (f"apps@main={FIXTURE}", "apps: a revision is of the hub, and the files are from"),
        ("apps --split dev", r"apps has no split dev \(it has: train, test\)"),
        ("apps --validation 1", "--validation: Input should be less than 1"),
        (f"apps={tmp_path / 'files'}", "contains no file of train, only of test"),
    ):
        assert main(["data", "prepare", *words.split(), "--out", str(tmp_path / "out")]) == 2
        error = capfd.readouterr().err
        assert re.search(message, error), error
        assert [path.name for path in tmp_path.iterdir()] == ["files"]


@pytest.mark.process
def test_the_command_reads_the_hub_and_the_card_names_the_commit(tmp_path: Path) -> None:
    environment = os.environ | {"HF_HOME": str(tmp_path / "hf"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with serving({"train.jsonl": FIXTURE.read_bytes(), "apps.py": b""}, "codeparrot/apps") as server:
        command = f"data prepare apps@main --out {tmp_path / 'out'}"
        done = subprocess.run(
            [sys.executable, "-m", "whetstone", *command.split()],
            env=environment | {"HF_ENDPOINT": server.url},
            capture_output=True,
            text=True,
            timeout=1200,
        )
    assert done.returncode == 0, done.stderr
    assert "codeparrot/apps at " + COMMIT[:12] in done.stdout
    card = read_card(tmp_path / "out")
    assert card is not None
    assert [(s.hub_id, s.commit, s.files) for s in card.sources] == [
        ("codeparrot/apps", COMMIT, ["train.jsonl"])
    ]
    assert len(list(open_problems(tmp_path / "out"))) == 3


def test_sources_are_listed_with_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "sources"]) == 0
    assert "codeparrot/apps 21e74ddf8de1: problem_id or id, question" in capsys.readouterr().out
    assert main(["data", "show", "sources", "--id", "apps"]) == 0
    page = capsys.readouterr().out
    for words in ("21e74ddf8de1a21436da12e3e653065c5213e9d1", "train.jsonl", "column question", "MIT"):
        assert words in page
