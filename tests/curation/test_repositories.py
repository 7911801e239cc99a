"""Tasks made of a package with its own tests."""

from __future__ import annotations

import hashlib
import http.server
import json
import random
import re
import tarfile
import threading
from base64 import b64encode
from collections.abc import Callable, Generator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.beside import data_beside
from tests.judge.repository_tasks import pytest_environment
from whetstone.cli.main import main
from whetstone.core.errors import UserError
from whetstone.core.literal import read_literal
from whetstone.judge.repository.base import read_base
from whetstone.judge.repository.observations import ExpectedObservation, ExpectedTest
from whetstone.judge.repository.task import RepositoryTask, base_archive, read_tasks
from whetstone.judge.values import encode
from whetstone_curation.repositories.making import PackageRecord
from whetstone_curation.repositories.package_index import Unsuitable, configured_index, fetch_source
from whetstone_curation.repositories.source_tree import read_distribution, read_local
from whetstone_curation.repositories.statements import ExpectedValues
from whetstone_curation.repositories.task_set import Graders, MakePlan, make_set

DATA = data_beside(__file__)
# Python counts lines otherwise than `str.splitlines`.
FILES: dict[str, str] = {name: text.replace("# form feed", "\f") for name, text in DATA["files"].items()}


def written(folder: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.lstrip("\n"))
    return f"{folder}/"


@pytest.fixture(scope="module")
def environment() -> Generator[str]:
    with pytest_environment() as folder:
        yield str(folder)


def make(out: Path, environment: str, *packages: str) -> int:
    options = ["--environment", environment, "--repeats", "2", "--cpu-s", "9"]
    return main(["data", "repositories", "make", *packages, "--out", str(out), *options])


@pytest.mark.process
@pytest.mark.extended
def test_tasks_of_a_package_have_a_failing_base_and_a_passing_reference(
    tmp_path: Path, environment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    package, sets = written(tmp_path / "package", FILES), [tmp_path / "first", tmp_path / "second"]

    def interrupt(record: PackageRecord) -> None:
        raise KeyboardInterrupt

    plan = MakePlan(packages=(package,), out=str(sets[1]), cpu_s=9.0)
    with pytest.raises(KeyboardInterrupt):
        make_set(plan, Graders(environment=environment, repeats=2), interrupt)
    assert not (sets[1] / "tasks.jsonl").exists()
    for out in sets:
        assert make(out, environment, package) == 0
    assert not list(tmp_path.glob("*.journal.jsonl"))
    first, second = (
        {path.name: path.read_bytes() for path in out.rglob("*") if path.suffix in (".jsonl", ".gz")}
        for out in sets
    )
    assert first == second
    tasks = {task.meta["function"]: task for task in read_tasks(sets[0])}
    assert sorted(tasks) == ["read", "shorten", "title"]
    for name, task in tasks.items():
        check_task(task, read_base(base_archive(sets[0], task)), name)
    card: dict[str, Any] = json.loads((sets[0] / "card.json").read_bytes())
    [record] = card["packages"]
    assert (record["version"], record["licence"], record["tests"], record["tasks"]) == ("1.2", "MIT", 6, 3)
    assert record["dropped_tests"].pop("an assertion differs from its expected value: a truth value") == 1
    [needed] = record["dropped_tests"]
    assert "needs `not_installed_anywhere`" in needed
    assert "whetstone judge environment create NAME pytest not_installed_anywhere" in needed
    assert record["dropped_functions"] == {
        "no test module names it": 1,
        "no change of it makes a test fail that compares a value with a known one": 1,
    }
    capsys.readouterr()
    check = ["data", "repositories", "check", str(sets[0]), "--environment", environment, "--repeats", "2"]
    assert main(check) == 0
    broken = [msgspec.structs.replace(tasks["title"], reference={}), tasks["read"]]
    (sets[0] / "tasks.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, broken)))
    assert main(check) == 1
    shown = capsys.readouterr().out
    assert "src/small_words/text.py/title: the reference is judged" in shown
    assert "1 of 2 tasks" in shown
    passing, failing = tasks["title"].pass_to_pass, tasks["title"].fail_to_pass
    for lists, reason in (
        ({"fail_to_pass": [*failing, *passing]}, f"the base passes {passing[0].id} of fail_to_pass"),
        ({"fail_to_pass": failing[:1], "pass_to_pass": failing[1:]}, f"the base fails {failing[1].id} of"),
    ):
        wrong = msgspec.structs.replace(tasks["title"], **lists)
        (sets[0] / "tasks.jsonl").write_bytes(msgspec.json.encode(wrong))
        assert main(check) == 1
        assert reason in capsys.readouterr().out


def check_task(task: RepositoryTask, base: Mapping[str, bytes], name: str) -> None:
    """A task hides the tests that fail, and every other copy of the function."""
    hidden = "tests/test_version.py" if name == "read" else "tests/test_text.py"
    assert [*task.tests] == [hidden]
    assert hidden not in base
    assert "tests/test_other.py" in base
    assert {name.split("/")[0] for name in base} == {"src", "tests", "setup.cfg"}
    assert not any(path.endswith(".orig") for path in base)
    assert task.sealed
    assert task.may_be_changed(*task.reference)
    assert not task.may_be_changed("tests/test_other.py")
    assert f"`{name}` in `{next(iter(task.reference))}`" in task.statement
    # A failing test whose report can be forged decides as well, after those that are sealed.
    forgeable = ["text"] if name == "title" else []
    assert [test.id.rpartition("_")[2] for test in task.fail_to_pass] == [name, *forgeable]
    assert "test_fails" not in {test.id for test in task.pass_to_pass}
    everything = b"".join(base.values()).decode()
    for value in {"title": ("Snow White", "The and of"), "shorten": ("a long...",), "read": ("1.2.4.5",)}[
        name
    ]:
        assert value not in task.statement
        assert value not in everything


@pytest.mark.process
@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({path: text for path, text in FILES.items() if "tests/" not in path}, "has no tests"),
        ({"tests/test_x.py": "", "notes/a.py": ""}, "no package or module is found"),
        (
            {**FILES, "PKG-INFO": "Name: small-words\nRequires-Dist: absent>=2\n\n"},
            r"it needs absent; .*environment create NAME pytest absent",
        ),
        ({**FILES, "PKG-INFO": "Name: Pluggy\n\n"}, "has this package, from which a program could copy"),
        ({"src/iniconfig/__init__.py": "", "tests/test_x.py": ""}, "has this package, from which"),
        (
            {"a/__init__.py": "", "tests/test_a.py": "def test_a():\n    assert 0\n"},
            "no test passes every time: an assertion differs from its expected value",
        ),
        (
            {"a/__init__.py": "", "tests/test_a.py": "def test_a():\n    while True:\n        pass\n"},
            "no test passes every time: a test module: the tests are ended by a limit: used its CPU time",
        ),
        (
            {
                "a/__init__.py": "",
                "tests/test_a.py": "import os\n\ndef test_a():\n    os._exit(3)\n",
            },
            "no test passes every time: a test module: the process of the tests ends before their end",
        ),
    ],
)
def test_a_package_without_tasks_is_refused_with_the_reason(
    files: dict[str, str], reason: str, tmp_path: Path, environment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (Path(environment) / "lib/python3.11/site-packages/pluggy-1.0.dist-info").mkdir(exist_ok=True)
    (Path(environment) / "lib/python3.11/site-packages/pluggy-1.0.dist-info/METADATA").write_text(
        "Name: pluggy\nVersion: 1.0\n\n"
    )
    status = make(tmp_path / "out", environment, written(tmp_path / "package", files))
    assert status == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "nothing gives a task" in error
    assert re.search(reason, error), error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", DATA["examples"])
def test_examples_of_a_docstring_that_show_an_expected_value_are_left_out(name: str) -> None:
    lines, value, shown = DATA["examples"][name]
    kept = values_of(read_literal(value)).without(['"""Title.\n', *lines, '"""\n'])
    assert kept == ['"""Title.\n', *shown, '"""\n']


def values_of(*values: object) -> ExpectedValues:
    seen = [ExpectedObservation(0, b64encode(encode(value)).decode(), is_telling=True) for value in values]
    return ExpectedValues([ExpectedTest("t", seen)])


def test_no_form_of_an_expected_value_stays_in_a_docstring() -> None:
    """A search: values of all kinds, written in several forms at drawn places of a docstring."""
    draw = random.Random(5)

    def text() -> str:
        return "".join(draw.choice("abcXYZ 019_-.\n'\"") for _ in range(draw.randint(2, 14)))

    makers: list[Callable[[], object]] = [
        text,
        lambda: draw.randint(3, 10**6) * draw.choice((1, -1)),
        lambda: draw.uniform(3, 99),
        lambda: [draw.randint(0, 99), text(), None],
        lambda: (text(), {"key": draw.randint(0, 9)}),
        lambda: text().encode(),
    ]
    for _ in range(3000):
        value = draw.choice(makers)()
        if isinstance(value, str | bytes) and not value.strip():
            continue
        forms = [repr(value), json.dumps(value)] if isinstance(value, str | int | list) else [repr(value)]
        form = draw.choice(forms)
        lines = [
            '"""Summary.\n',
            *(f"    {draw.choice(('Word.', '>>> f(x)', ''))}\n" for _ in range(draw.randint(0, 3))),
        ]
        shape = draw.choice(
            (">>> f()\n    {}\n", "It returns {}, always.\n", "``{}``\n", ">>> f() == {}\n    True\n")
        )
        lines += [f"{line}\n" for line in ("    " + shape.format(form)).splitlines()]
        lines += ['    """\n']
        kept = "".join(values_of(value).without(lines))
        assert form not in kept, (value, form, lines)


@pytest.fixture
def index(tmp_path: Path) -> Generator[tuple[str, dict[str, tuple[str, bytes]]]]:
    """An index on loopback: the type and the contents of each path."""
    pages: dict[str, tuple[str, bytes]] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, data = pages.get(self.path, ("", b""))
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", pages
        server.shutdown()
        thread.join()


@pytest.fixture
def fetched(
    index: tuple[str, dict[str, tuple[str, bytes]]], monkeypatch: pytest.MonkeyPatch
) -> Generator[Callable[[str], tuple[str, str, bytes]]]:
    """A function that fetches from the index."""
    monkeypatch.setenv("PIP_INDEX_URL", f"{index[0]}/simple/")
    configured_index.cache_clear()

    def fetch(requirement: str) -> tuple[str, str, bytes]:
        name, version, data = fetch_source(requirement)
        return name, str(version), data

    yield fetch
    configured_index.cache_clear()


@pytest.mark.process
def test_the_newest_allowed_source_distribution_is_fetched_and_verified(
    index: tuple[str, dict[str, tuple[str, bytes]]], fetched: Callable[[str], tuple[str, str, bytes]]
) -> None:
    url, pages = index
    one, two = ({"sha256": hashlib.sha256(data).hexdigest()} for data in (b"one", b"two"))
    links = [
        {"filename": "a_b-1.0.tar.gz", "url": "../../f/1", "hashes": one},
        {"filename": "a_b-2.0.tar.gz", "url": f"{url}/f/2", "hashes": two, "yanked": False},
        {"filename": "a_b-3.0.tar.gz", "url": "../../f/2", "hashes": {}, "yanked": "broken"},
        {"filename": "a_b-4.0.tar.gz", "url": "../../f/2", "hashes": {}, "requires-python": "<3"},
        {"filename": "a_b-5.0-py3-none-any.whl", "url": "../../f/2", "hashes": {}},
        {"filename": "a_b-6.0rc1.tar.gz", "url": "../../f/2", "hashes": {}},
    ]
    kind = "application/vnd.pypi.simple.v1+json"
    pages["/simple/a-b/"] = (kind, json.dumps({"files": links}).encode())
    pages["/simple/old/"] = ("text/html", b"<a href='old-1.0.tar.gz'>old</a>")
    pages |= dict.fromkeys(("/f/1", "/f/2"), ("application/gzip", b"two"))
    assert fetched("A.b") == ("a-b", "2.0", b"two")
    assert fetched("a_b>=6rc0") == ("a-b", "6.0rc1", b"two")
    with pytest.raises(UserError, match="differs from the digest"):
        fetched("a_b==1.0")
    for requirement in ("a_b>6.1", "missing"):
        with pytest.raises(Unsuitable, match="the index has no matching source distribution"):
            fetched(requirement)
    for requirement, reason in (("no such name", "name a package as for pip"), ("old", "not a JSON page")):
        with pytest.raises(UserError, match=reason):
            fetched(requirement)


@pytest.mark.process
def test_an_index_that_cannot_be_reached_is_an_error_with_a_remedy(
    fetched: Callable[[str], tuple[str, str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    with pytest.raises(UserError, match=r"cannot be read: .*; get the archive with a browser"):
        fetched("a_b")


@pytest.mark.parametrize(
    ("text", "name", "requires"),
    [
        (
            "[project]\nname = 'Words'\ndependencies = ['A_b>1', '???', \"c; extra == 'x'\"]\n",
            "words",
            ["a-b"],
        ),
        ("[project]\nname = 'words'\nlicense = {file = 'LICENSE'}\n", "words", []),
        ("project = 1\n", "folder", []),
        ("[project]\ndependencies = 3\n", "folder", []),
        ("[project\n", "folder", []),
        ("\udcff", "folder", []),
    ],
)
def test_a_folder_without_metadata_is_described_by_its_project_file(
    text: str, name: str, requires: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    written(folder, {"words.py": "", "test_words.py": ""})
    (folder / "pyproject.toml").write_text(text, errors="surrogateescape")
    (folder / "link.py").symlink_to("/etc/hostname")
    tree = read_local(folder)
    assert (tree.name, tree.requires) == (name, requires)
    assert "link.py" not in tree.files


def test_an_archive_is_read_without_links_and_without_paths_that_leave_it(tmp_path: Path) -> None:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in (
            "p-1/p.py",
            "p-1/test_p.py",
            "p-1/../../x.py",
            "/abs/y.py",
            "p-1/a.pyc",
            "p-1/docs/z.py",
        ):
            tar.addfile(tarfile.TarInfo(name), BytesIO())
        link = tarfile.TarInfo("p-1/link.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    tree = read_distribution(buffer.getvalue(), "p", "1")
    assert sorted(tree.files) == ["abs/y.py", "p.egg-info/PKG-INFO", "p.py", "test_p.py"]
    assert (tree.roots, tree.tests, tree.python_path) == (["p.py"], ["test_p.py"], ["."])
    with pytest.raises(Unsuitable, match="not a readable archive"):
        read_distribution(b"no archive")
    with pytest.raises(UserError, match="not there"):
        read_local(tmp_path / "missing")
