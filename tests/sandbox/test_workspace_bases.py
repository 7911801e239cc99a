"""Bases of workspaces: their names, their sources, what they refuse, and what is left after a crash."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandbox.workspaces import LIMITS, folder_for_workspaces, make_base
from tests.tiers import skip_unless_offered
from whetstone.core.errors import SandboxUnavailable
from whetstone.sandbox import (
    RunResult,
    SandboxFault,
    SandboxJob,
    Tier,
    WorkspaceBase,
    WorkspaceError,
    WorkspaceLimits,
    Workspaces,
)
from whetstone.sandbox.workspace import base as base_module
from whetstone.sandbox.workspace.servers import Place, ServerPool, WayRefused
from whetstone.sandbox.workspace.store import OwnFolder, Store
from whetstone.sandbox.workspace.tree import Usage

FILES = {"a.py": b"print(1)\n", "p/run": b"#!/bin/sh\n", "p/empty": b""}
OWNER = """
import sys, os
from pathlib import Path
from whetstone.sandbox import WorkspaceBase, Workspaces
root = Path(sys.argv[1])
workspaces = Workspaces(root)
workspace = workspaces.open(WorkspaceBase.from_folder(root, Path(sys.argv[2])))
workspace.write("mine", b"mine")
print("ready", flush=True)
if sys.argv[3] == "crash":
    os.kill(os.getpid(), 9)
sys.stdin.read()
print(workspace.read("mine", 10).decode(), flush=True)
workspaces.close()
"""


def folder_with(files: dict[str, bytes], folder: Path) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o750 if name.endswith("run") else 0o640)
    return folder


def archive_of(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownVariableType]
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, mode
    return made


@pytest.mark.process
def test_equal_trees_are_one_base_whatever_they_come_from(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    source = folder_with(FILES, tmp_path / "source")
    base = WorkspaceBase.from_folder(root, source)
    packed = archive_of(
        (member("p", tarfile.DIRTYPE, mode=0o700), b""),
        (member("p/run", mode=0o777), FILES["p/run"]),
        (member("a.py", mode=0o600), FILES["a.py"]),
        (member("p/empty"), b""),
    )
    (tmp_path / "packed.tar.gz").write_bytes(packed)
    assert WorkspaceBase.from_archive(root, packed) == base
    assert WorkspaceBase.from_archive(root, tmp_path / "packed.tar.gz") == base
    git = ["git", "-C", str(source), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True, timeout=60)
    (source / "a.py").write_text("not committed")
    assert WorkspaceBase.from_commit(root, source, "HEAD") == base
    assert sorted(os.listdir(base.path)) == ["a.py", "p"]
    assert (base.path / "p/run").stat().st_mode & 0o777 == 0o755
    assert list((root / "v1" / "bases").iterdir()) == [base.path]
    assert not list((root / "v1" / "owners").iterdir())


@pytest.mark.parametrize("change", ["rename", "bytes", "executable", "link", "folder"])
def test_any_difference_makes_another_base(tmp_path: Path, change: str) -> None:
    source = folder_with(FILES, tmp_path / "source")
    before = WorkspaceBase.from_folder(tmp_path / "cache", source)
    changes: dict[str, Callable[[], object]] = {
        "rename": lambda: (source / "a.py").rename(source / "b.py"),
        "bytes": lambda: (source / "a.py").write_bytes(b"print(2)\n"),
        "executable": lambda: (source / "a.py").chmod(0o755),
        "link": lambda: (source / "new").symlink_to("a.py"),
        "folder": lambda: (source / "new").mkdir(),
    }
    changes[change]()
    assert WorkspaceBase.from_folder(tmp_path / "cache", source) != before


HOSTILE = {
    "a path out of it": [member("../out")],
    "an absolute link": [member("link", tarfile.SYMTYPE, "/etc")],
    "a link out of it": [member("p/link", tarfile.SYMTYPE, "../../etc")],
    "a hard link out of it": [member("link", tarfile.LNKTYPE, "../out")],
    "a device": [member("null", tarfile.CHRTYPE)],
    "a pipe": [member("pipe", tarfile.FIFOTYPE)],
    "a path through a link": [member("link", tarfile.SYMTYPE, "p/../.."), member("link/out")],
    "too deep": [member("/".join("d" * 150))],
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE)
def test_an_archive_that_leads_out_of_it_is_refused(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    with pytest.raises(WorkspaceError):
        WorkspaceBase.from_archive(tmp_path / "cache", archive_of(*((each, b"") for each in members)))
    assert not list((tmp_path / "cache/v1/bases").iterdir())
    assert not list((tmp_path / "cache/v1/owners").iterdir())
    assert not (tmp_path / "out").exists()


def test_a_base_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_module, "MOST_BASE", Usage(1 << 20, 20))
    bomb = archive_of((member("zeros"), bytes(4 << 20)))
    assert len(bomb) < 10_000
    many = archive_of(*((member(f"f{number}"), b"") for number in range(30)))
    for archive in (bomb, many):
        with pytest.raises(WorkspaceError, match="more than"):
            WorkspaceBase.from_archive(tmp_path / "cache", archive)
    source = tmp_path / "source"
    source.mkdir()
    with (source / "holes").open("wb") as file:
        file.truncate(2 << 20)
    with pytest.raises(WorkspaceError, match="more than"):
        WorkspaceBase.from_folder(tmp_path / "cache", source)
    cut = archive_of((member("noise"), os.urandom(50_000)))[:1000]
    for wrong in (b"", b"no archive" * 100, cut):
        with pytest.raises(WorkspaceError, match="cannot be extracted"):
            WorkspaceBase.from_archive(tmp_path / "cache", wrong)


@pytest.mark.process
def test_a_commit_that_does_not_exist_is_named(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "source")], check=True, timeout=60)
    for commit in ("nothing", "--output=/tmp/x"):
        with pytest.raises(WorkspaceError, match=commit):
            WorkspaceBase.from_commit(tmp_path / "cache", tmp_path / "source", commit)


@pytest.mark.process
def test_a_crash_leaves_nothing_behind_and_the_living_keep_theirs() -> None:
    with folder_for_workspaces() as root:
        source = folder_with(FILES, root / "source")
        command = [sys.executable, "-c", OWNER, str(root), str(source)]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen([*command, "live"], **streams) as living:  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownVariableType]
            assert living.stdout is not None
            assert living.stdout.readline() == "ready\n"
            subprocess.run([*command, "crash"], check=False, timeout=120, capture_output=True)
            owners = root / "v1" / "owners"
            assert len(list(owners.glob("*/*/tree/mine"))) == 2
            with Workspaces(root) as workspaces:
                assert len(list(owners.glob("*.lock"))) == 2
                assert len(list(owners.glob("*/*/tree/mine"))) == 1
                workspaces.open(WorkspaceBase.from_folder(root, source)).close()
            assert living.communicate(timeout=120)[0] == "mine\n"
        assert not list(owners.iterdir())


@pytest.mark.process
def test_bad_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`overlay` or `copy`"):
        Workspaces(tmp_path, way="links")
    with pytest.raises(ValueError, match="disk_bytes of a workspace is 0"):
        WorkspaceLimits(disk_bytes=0)
    with folder_for_workspaces() as root, pytest.raises(SandboxUnavailable, match="needs mounts"):
        Workspaces(root, tier=Tier.RESTRICTED, way="overlay")
    if os.geteuid() == 0:
        tmp_path.chmod(0o700)
        with pytest.raises(SandboxUnavailable, match="closed to other users"):
            Workspaces(tmp_path, tier=Tier.RESTRICTED)
    workspaces = Workspaces(tmp_path)
    with pytest.raises(ValueError, match="is not stored below"):
        workspaces.open(make_base(tmp_path / "elsewhere"))
    workspaces.close()
    workspaces.close()
    with pytest.raises(RuntimeError, match="closed"):
        workspaces.open(make_base(tmp_path))


MakeJob = Callable[[str], SandboxJob]
REFUSAL = "a workspace could not be mounted: mount on /w/workspace: {}"


@pytest.mark.process
@pytest.mark.parametrize(
    ("failures", "way"),
    [
        ([WayRefused(REFUSAL.format("Invalid argument"))], "copy"),
        ([SandboxFault("the fork-server was killed")], "overlay"),
        ([SandboxFault("the fork-server was killed"), SandboxFault("it took too long")], ""),
    ],
    ids=["the kernel refuses", "one trial fails", "two trials fail"],
)
def test_only_a_refusal_of_the_kernel_chooses_copies(
    failures: list[SandboxFault], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_offered(Tier.USERNS)
    run_in = ServerPool.run_in

    def failing(
        pool: ServerPool, place: Place, make_job: Callable[[str], SandboxJob], most: Usage
    ) -> RunResult:
        if failures and place.base is not None:
            raise failures.pop(0)
        return run_in(pool, place, make_job, most)

    monkeypatch.setattr(ServerPool, "run_in", failing)
    with folder_for_workspaces() as root:
        if way:
            with Workspaces(root, tier=Tier.USERNS) as workspaces:
                assert workspaces.way == way
        else:
            with pytest.raises(SandboxUnavailable, match=r"it took too long\)\. Try again when the machine"):
                Workspaces(root, tier=Tier.USERNS)
        assert not list((root / "v1" / "owners").iterdir())


@pytest.mark.process
def test_a_mount_that_fails_for_another_reason_is_no_refusal() -> None:
    skip_unless_offered(Tier.USERNS)
    with folder_for_workspaces() as root, Workspaces(root, tier=Tier.USERNS, way="overlay") as workspaces:
        workspace = workspaces.open(make_base(root))
        shutil.rmtree(workspace.base.path)
        with pytest.raises(SandboxFault) as fault:
            workspace.run(["true"], limits=LIMITS)
        assert not isinstance(fault.value, WayRefused)


@pytest.mark.process
def test_ext4_spreads_workspaces_over_the_disk() -> None:
    with folder_for_workspaces() as root, OwnFolder(Store(root)) as own:
        shown = subprocess.run(
            ["lsattr", "-d", own.path], capture_output=True, text=True, check=False, timeout=60
        )
        if shown.returncode:
            pytest.skip("this file system has no flags")
        assert "T" in shown.stdout.split()[0]
