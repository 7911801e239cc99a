"""Programs import the packages of their environment, on every tier, and nothing else that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import assert_problem, python, stdin_problem
from tests.tiers import ALL_TIERS, skip_unless_offered
from whetstone.core.errors import UserError
from whetstone.core.verdict import Verdict
from whetstone.judge import Judge
from whetstone.judge.environments.environment import default_environment, environment_named
from whetstone.judge.environments.installed import InstalledDistribution, extras_of, installed_in, version_of
from whetstone.judge.environments.made import create_environment, remove_environment

DATA = data_beside(__file__)

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
OWN = DATA["own"]
PROBLEM = stdin_problem(("", "42"))


@contextmanager
def environment_folder(packages: Mapping[str, str], *, python: str = PYTHON) -> Generator[Path]:
    """The folder of one whose packages are these: the source of a package by its name."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)  # a tier that sheds root has to reach it
        folder = Path(name) / "venv"
        site = folder / "lib" / python / "site-packages"
        site.mkdir(parents=True)
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
        for package, source in packages.items():
            (site / package).mkdir()
            (site / package / "__init__.py").write_text(source)
            about = site / f"{package}-1.0.dist-info"
            about.mkdir()
            (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            (about / "RECORD").write_text(f"{package}/__init__.py,,\n{about.name}/METADATA,,\n")
        yield folder


def packages_of(folder: Path) -> Path:
    """Where its packages lie."""
    return folder / "lib" / PYTHON / "site-packages"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with environment_folder(OWN) as folder:
        site = packages_of(folder)
        secret = folder.parent / "secret"
        secret.mkdir()
        (secret / "__init__.py").write_text("VALUE = 42\n")
        (site / "linked").symlink_to(secret)
        (site / "added.pth").write_text(f"{folder.parent}\nimport os; os.environ['PTH'] = '1'\n")
        (site / "sitecustomize.py").write_text("import os\nos.environ['SITE'] = '1'\n")
        yield folder


@pytest.fixture(scope="module", params=ALL_TIERS)
def own(request: pytest.FixtureRequest, folder: Path) -> Iterator[Judge]:
    skip_unless_offered(request.param)
    with Judge(workers=1, tier=request.param.label, environment=folder) as judge:
        yield judge


@pytest.mark.process
@pytest.mark.parametrize(
    "source",
    DATA["imports"],
)
def test_a_program_imports_the_packages_of_its_environment(own: Judge, source: str) -> None:
    judgement = own.judge(PROBLEM, python(source))
    assert judgement.accepted, judgement
    assert judgement.environment.startswith("venv:")


@pytest.mark.process
@pytest.mark.parametrize("name", ["numpy", "pytest", "msgspec", "whetstone", "linked", "secret"])
def test_packages_of_other_environments_are_hidden(own: Judge, name: str) -> None:
    source = f"try:\n    import {name}\nexcept ModuleNotFoundError:\n    print(42)"
    if name == "linked":  # found, and not to be read
        source = source.replace("ModuleNotFoundError", "(ImportError, OSError, AttributeError)")
        source = source.replace("import linked", "import linked; linked.VALUE")
    judgement = own.judge(PROBLEM, python(source))
    assert judgement.accepted, judgement


@pytest.mark.process
def test_nothing_of_an_environment_runs_by_itself(own: Judge) -> None:
    judgement = own.judge(
        PROBLEM, python("import os\nprint(0 if {'PTH', 'SITE'} & os.environ.keys() else 42)")
    )
    assert judgement.accepted, judgement


@pytest.mark.process
def test_test_code_imports_them_too(own: Judge) -> None:
    problem = assert_problem(asserts=["import shown\nassert f() == shown.VALUE"])
    assert own.judge(problem, python("def f(): return 42")).accepted


@pytest.mark.process
@pytest.mark.parametrize("name", ["ends", "leaves"])
def test_a_package_that_ends_the_process_costs_its_own_program_the_verdict(own: Judge, name: str) -> None:
    judgement = own.judge(PROBLEM, python(f"import {name}\nprint(42)"))
    assert judgement.verdict is Verdict.RUNTIME_ERROR, judgement
    assert own.judge(PROBLEM, python("import shown\nprint(shown.VALUE)")).accepted


@pytest.mark.process
def test_an_environment_cannot_be_written_to(own: Judge) -> None:
    source = DATA["writes"]
    judgement = own.judge(PROBLEM, python(source))
    assert judgement.accepted, judgement


@pytest.mark.process
@pytest.mark.parametrize("module", ["wikipedia", "cv2"])
def test_a_verdict_names_the_package_that_is_missing_and_the_way_out(own: Judge, module: str) -> None:
    judgement = own.judge(PROBLEM, python(f"import {module}\nprint(42)"))
    assert judgement.verdict is Verdict.RUNTIME_ERROR
    assert "the environment `venv` lacks: whetstone judge environment create" in judgement.reason
    assert judgement.cases[0].reason == judgement.reason


@pytest.mark.process
def test_an_unknown_module_is_the_programs_own_fault(own: Judge) -> None:
    judgement = own.judge(PROBLEM, python("import my_helper\nprint(42)"))
    assert judgement.reason.endswith("ModuleNotFoundError: No module named 'my_helper'")


def test_the_label_changes_with_the_packages() -> None:
    with environment_folder({"one": ""}) as first, environment_folder({"two": ""}) as second:
        assert environment_named(first).label != environment_named(second).label
        assert environment_named(first).label == environment_named(first).label


def test_whetstone_itself_is_shown_to_no_program() -> None:
    with pytest.raises(UserError, match="problem sets with their answers"):
        environment_named(sys.prefix)
    refused = pytest.raises(UserError, match="problem sets with their answers")
    with environment_folder({"whetstone": ""}) as folder, refused:
        environment_named(folder)
    with environment_folder({}) as folder:
        (packages_of(folder) / "whetstone_rl-1.0.dist-info").mkdir()
        (packages_of(folder) / "whetstone_rl-1.0.dist-info" / "METADATA").write_text("Name: whetstone-rl\n")
        with pytest.raises(UserError, match="problem sets with their answers"):
            environment_named(folder)


@pytest.mark.process
def test_a_folder_without_an_environment_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a virtual environment; make one"):
        environment_named(tmp_path)
    with pytest.raises(UserError, match=r"there is no environment `nothing`.*environment create nothing"):
        environment_named("nothing")
    refused = pytest.raises(UserError, match=r"made for Python 3\.4, whose interpreter is needed")
    with environment_folder({}, python="python3.4") as folder, refused:
        environment_named(folder)


def test_the_default_environment_has_the_competition_packages_and_nothing_of_ours() -> None:
    found = default_environment()
    names = {Path(path).name.partition("-")[0] for path in found.reads}
    assert not names & {"whetstone", "whetstone_rl", "torch", "pytest", "pip"}
    assert {"numpy", "pandas", "scipy", "sympy", "networkx", "sortedcontainers"} <= set(found.modules)


def wheel(folder: Path, name: str, source: str) -> str:
    """A wheel of one module."""
    import zipfile

    path = folder / f"{name}-2.0-py3-none-any.whl"
    about = f"{name}-2.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", source)
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(
            f"{about}/RECORD", f"{name}.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n"
        )
    return str(path)


@pytest.mark.process
def test_an_environment_is_made_used_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    made = create_environment("mine", [wheel(tmp_path, "handmade", "VALUE = 42\n")])
    assert made.versions == {"handmade": "2.0"}
    with Judge(workers=1, environment="mine") as judge:
        judgement = judge.judge(PROBLEM, python("import handmade\nprint(handmade.VALUE)"))
    assert judgement.accepted, judgement
    assert judgement.environment == made.label
    with pytest.raises(UserError, match=r"there is an environment `mine`.*environment remove mine"):
        create_environment("mine", ["handmade"])
    remove_environment("mine")
    with pytest.raises(UserError, match=r"there is no environment `mine`"):
        environment_named("mine")


@pytest.mark.process
def test_a_failed_creation_leaves_nothing_and_gives_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UserError, match="with that name or version does not exist"):
        create_environment("mine", ["no-such-package"])
    for name, packages in (("../up", ["numpy"]), ("default", ["numpy"]), ("x", []), ("x", ["-r"])):
        with pytest.raises(UserError):
            create_environment(name, packages)
    assert not list(tmp_path.glob("whetstone/environments/*"))


@pytest.mark.process
@pytest.mark.skipif(find_spec("setuptools") is None, reason="setuptools is not installed")
def test_setuptools_can_be_imported_after_an_environment_was_created(tmp_path: Path) -> None:
    """The creation looks for pip, and `torch.compile` imports setuptools later in the same process."""
    code = DATA["creation"]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


METADATA = """\
Metadata-Version: 2.1
Name: Shown_Package
Version: 1.0
Requires-Dist: numpy >=1.26
Requires-Dist: Some.Other[fast] ; python_version > "3"
Requires-Dist: torch>=2 ; extra == 'train'
Requires-Dist: ray ; python_version > "3" and extra == "ray"

Name: not a header
Requires-Dist: nor-this
"""
RECORD = """\
shown/__init__.py,sha256=abc,10
"shown/with, comma.py",sha256=abc,10
shown_single.py,sha256=abc,10
../../../bin/shown,sha256=abc,10
/etc/shown.conf,sha256=abc,10
__pycache__/shown_single.cpython-311.pyc,,
Shown_Package-1.0.dist-info/RECORD,,
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    info = tmp_path / "Shown_Package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "RECORD").write_text(RECORD)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_distribution_is_read_from_its_headers_and_its_record(site: Path) -> None:
    names = ["Shown_Package-1.0.dist-info", "shown", "shown_single.py"]
    folder = str(site.resolve())
    expected = InstalledDistribution("Shown_Package", "1.0", folder, ["numpy", "some-other"], names)
    assert installed_in(str(site)) == [expected]


def test_an_egg_is_read_as_well(tmp_path: Path) -> None:
    egg = tmp_path / "shown.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Name: shown\nVersion: 2\n")
    (egg / "requires.txt").write_text("numpy\n\n[fast]\ntorch\n")
    (egg / "SOURCES.txt").write_text("shown/__init__.py\n")
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "__init__.py").touch()  # from Python 3.12 on, only files that exist are listed
    [found] = installed_in(str(tmp_path))
    assert (found.name, found.version, found.requires, found.names) == ("shown", "2", ["numpy"], ["shown"])


@pytest.mark.usefixtures("site")
def test_the_requirements_of_an_extra_are_found_by_its_marker() -> None:
    assert extras_of("shown-package") == {"train": ["torch"], "ray": ["ray"]}
    assert version_of("shown-package") == "1.0"
    assert extras_of("is-not-installed-here") == {}
    assert version_of("is-not-installed-here") is None
