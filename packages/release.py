"""Builds all distributions, checks them in clean environments, and dates the section of the changelog.

    python packages/release.py --repository ADDRESS --out dist --pythons 3.11 3.12 3.13 3.14 [--no-date]

Each sdist and wheel is installed without torch into a fresh environment of every Python that exists. There
the judge is imported, two programs are judged, and shipped recipes and problems are read. The section of
``CHANGELOG.md`` gets today's date if every check passed. The package ``build`` must be installed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (ROOT, *sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml")))

_CHECK = """
import sys
import whetstone.judge
assert "torch" not in sys.modules, "import whetstone.judge loads torch"
from whetstone import Judge, Program, __version__
from whetstone.core.shipped_recipes import shipped_names
from whetstone.data.builtin import shipped_problems
assert __version__ == VERSION, __version__
assert "quickstart" in shipped_names(), shipped_names()
problem = next(iter(shipped_problems("heldout")))
with Judge(workers=1) as judge:
    right = judge.judge(problem, problem.references[0])
    wrong = judge.judge(problem, Program("python", "raise SystemExit"))
assert right.accepted and not wrong.accepted, (right, wrong)
"""


class ReleaseError(Exception):
    """Something that must be repaired before a release; the message says how."""


def main() -> None:
    """Build, check, and write the changelog."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the built files")
    parser.add_argument(
        "--pythons", nargs="+", default=["3.11", "3.12", "3.13", "3.14"], metavar="VERSION | PATH"
    )
    parser.add_argument("--repository", help="address of the repository, for the links of the description")
    parser.add_argument("--no-date", action="store_true", help="leave the changelog as it is")
    args = parser.parse_args()
    try:
        version = common_version(ROOT)
        changelog = ROOT / "CHANGELOG.md"
        dated = with_date(changelog.read_text(encoding="utf-8"), version, f"{datetime.now(UTC):%Y-%m-%d}")
        pythons = [found for name in args.pythons if (found := _python(name))]
        if not pythons:
            raise ReleaseError("none of these Pythons exists; name one with --pythons PATH")
        files = _build(args.out, args.repository or "")
        check_description(next(file for file in files if file.match("whetstone_rl-*.whl")))
        for python in pythons:
            for kind in (".whl", ".tar.gz"):
                _check(python, [file for file in files if file.name.endswith(kind)], version)
    except ReleaseError as error:
        raise SystemExit(f"release: {error}") from None
    if not args.no_date:
        changelog.write_text(dated, encoding="utf-8")
    print(f"version {version} is in {args.out}: {', '.join(file.name for file in files)}")


def common_version(root: Path) -> str:
    """Return the version that all files name. Raises ReleaseError if they differ."""
    module = (root / "src/whetstone/__init__.py").read_text(encoding="utf-8")
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    found = {
        "src/whetstone/__init__.py": _match(r'^__version__ = "([^"]+)"$', module),
        "CITATION.cff": _match(r"^version: (\S+)$", citation),
    }
    for project in sorted(root.glob("packages/*/pyproject.toml")):
        content = tomllib.loads(project.read_text(encoding="utf-8"))
        found[str(project.relative_to(root))] = content["project"]["version"]
    if len({*found.values()}) != 1:
        listed = ", ".join(f"{version} in {file}" for file, version in found.items())
        raise ReleaseError(f"the versions differ: {listed}; write the same one into each file")
    return found["CITATION.cff"]


def with_date(changelog: str, version: str, date: str) -> str:
    """Return the changelog with the date of this version's section, which must be the first.

    A section that has a date keeps it. Raises ReleaseError if the first section is of another version.
    """
    first = _match(r"^## (.+)$", changelog)
    if not first.startswith(f"{version} ("):
        raise ReleaseError(f"CHANGELOG.md begins with {first}; add the section `## {version} (unreleased)`")
    return changelog.replace(f"## {version} (unreleased)", f"## {version} ({date})", 1)


def _match(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else ""


def _python(name: str) -> str | None:
    """Return the interpreter of a version or path. A missing one is reported and left out."""
    found = shutil.which(name if "/" in name else f"python{name}")
    if found is None:
        print(f"Python {name} is not on this machine: not checked", flush=True)
    return found


def check_description(wheel: Path) -> None:
    """Raise ReleaseError if the long description of a wheel has a link that leads nowhere on an index."""
    with zipfile.ZipFile(wheel) as content:
        [name] = [each for each in content.namelist() if each.endswith(".dist-info/METADATA")]
        text = content.read(name).decode()
    if relative := re.findall(r"\]\((?![a-z]+:|#)([^)]+)\)", text):
        raise ReleaseError(f"the long description has relative links: {', '.join(relative)}")
    if "](http" in text and "Project-URL: Repository, " not in text:
        raise ReleaseError("the long description has links, but the metadata has no addresses of the project")


def _build(out: Path, repository: str) -> list[Path]:
    """Return the sdist and the wheel of each distribution, in an empty folder."""
    os.environ["WHETSTONE_REPOSITORY"] = repository
    shutil.rmtree(out, ignore_errors=True)
    for package in PACKAGES:
        _run([sys.executable, "-m", "build", "--outdir", str(out), str(package)])
    return sorted(out.iterdir())


def _check(python: str, files: list[Path], version: str) -> None:
    """Install files into a fresh environment and use them. Raises ReleaseError."""
    kind = "wheel" if files[0].suffix == ".whl" else "sdist"
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "bin" / "python"
        _run([python, "-m", "venv", folder])
        _run([str(own), "-m", "pip", "install", "-q", "--disable-pip-version-check", *map(str, files)])
        _run([str(own), "-c", f"VERSION = {version!r}\n{_CHECK}"], cwd=folder)
        _run([str(own.with_name("whetstone")), "--version"], cwd=folder)
    print(f"{kind} works with {python}", flush=True)


def _run(command: list[str], cwd: str | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, errors="replace")
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise ReleaseError(f"{' '.join(command)[:200]} ended with status {done.returncode}:\n{said}")


if __name__ == "__main__":
    main()
