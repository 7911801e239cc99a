"""Workspaces: what commands see and change, what a diff holds, and what no program reaches."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.workspaces import LIMITS, apply, folder_for_workspaces, make_base, sh, told, workspaces_at
from whetstone.sandbox import (
    EndReason,
    RunLimits,
    Tier,
    Workspace,
    WorkspaceBase,
    WorkspaceError,
    Workspaces,
)

pytestmark = [pytest.mark.isolation, pytest.mark.process]


@pytest.fixture(scope="module", params=["overlay", "copy"])
def workspaces(request: pytest.FixtureRequest, tier: Tier) -> Iterator[Workspaces]:
    with folder_for_workspaces() as root, workspaces_at(root, tier, request.param) as opened:
        yield opened


@pytest.fixture(scope="module")
def base(workspaces: Workspaces) -> WorkspaceBase:
    return make_base(workspaces.root)


@pytest.fixture
def workspace(workspaces: Workspaces, base: WorkspaceBase) -> Iterator[Workspace]:
    with workspaces.open(base) as opened:
        yield opened


CHANGES = [
    ("true", []),
    ("echo 42 > package/code.py", ["~ file package/code.py = b'42\\n'"]),
    ("cat readme > copy; cat copy > readme", ["+ file copy = b'read me\\n'"]),
    ("rm readme", ["- file readme"]),
    ("rm readme; echo 'read me' > readme", []),
    (
        "rm -r package",
        [
            *("- folder package", "- file package/code.py", "- folder package/inner"),
            "- file package/inner/deep.txt",
        ],
    ),
    (
        "rm -r package; mkdir package; echo n > package/new",
        [
            *("- file package/code.py", "- folder package/inner", "- file package/inner/deep.txt"),
            "+ file package/new = b'n\\n'",
        ],
    ),
    (
        "rm -r package; mkdir -p package/inner/deep.txt",
        ["- file package/code.py", "~ folder package/inner/deep.txt"],
    ),
    ("rm readme; mkdir readme; : > readme/x", ["~ folder readme", "+ file readme/x"]),
    (
        "rm -r package/inner; echo f > package/inner",
        ["~ file package/inner = b'f\\n'", "- file package/inner/deep.txt"],
    ),
    ("ln -sf ../../etc/passwd link", ["~ link link -> ../../etc/passwd"]),
    ("rm link; cp readme link", ["~ file link = b'read me\\n'"]),
    ("rm folder-link; mkdir folder-link", ["~ folder folder-link"]),
    (
        "cp tool new; cat tool > plain",
        ["+x file new = b'#!/bin/sh\\necho tool\\n'", "+ file plain = b'#!/bin/sh\\necho tool\\n'"],
    ),
    ("rmdir empty; mkdir -p a/b", ["+ folder a", "+ folder a/b", "- folder empty"]),
    (
        "mv package moved && mv moved package; ln readme hard; echo more >> hard",
        ["+ file hard = b'read me\\nmore\\n'", "~ file readme = b'read me\\nmore\\n'"],
    ),
    (
        "echo x > 'b c'; echo y > 'é'; echo z > -n",
        ["+ file -n = b'z\\n'", "+ file b c = b'x\\n'", "+ file é = b'y\\n'"],
    ),
]


@pytest.mark.parametrize(("script", "expected"), CHANGES, ids=[script for script, _ in CHANGES])
def test_a_diff_has_the_changes_of_a_command_and_makes_the_same_tree(
    workspaces: Workspaces, base: WorkspaceBase, workspace: Workspace, script: str, expected: list[str]
) -> None:
    sh(workspace, script)
    assert told(workspace) == expected
    with workspaces.open(base) as other, workspace.fork() as fork:
        apply(other, workspace.diff())
        listing = "find . | sort; find . -type f -exec cat {} +; ls -l tool new 2>/dev/null | cut -c1-10"
        assert sh(other, listing) == sh(workspace, listing) == sh(fork, listing)
        assert told(other) == told(fork) == expected
        assert other.snapshot() == workspace.snapshot()


def test_commands_share_the_tree_and_no_private_directory(workspace: Workspace) -> None:
    assert sh(workspace, "pwd > where; echo kept > ../tmp/mine || echo kept > /tmp/mine; echo $WORD") == "\n"
    assert sh(workspace, "cat where; pwd; ls /tmp 2>/dev/null; true").split()[0].endswith("/workspace")
    result = workspace.run(
        ["sh", "-c", "cat; echo $WORD $PWD >&2; ls ../tmp; exit 3"],
        limits=LIMITS,
        environment={"WORD": "word"},
        stdin=b"given",
    )
    assert (result.exit_code, result.stdout, result.stderr) == (
        3,
        b"given",
        b"word " + sh(workspace, "pwd").encode(),
    )
    missing = workspace.run(["no-such-command"], limits=LIMITS)
    assert (missing.exit_code, missing.stderr[:15]) == (127, b"no-such-command")


def test_every_workspace_of_a_jail_has_the_same_path(workspaces: Workspaces, base: WorkspaceBase) -> None:
    if workspaces.tier is Tier.RESTRICTED:
        pytest.skip("without mounts, a path belongs to one fork-server")
    with workspaces.open(base) as first, workspaces.open(base) as second:
        assert sh(first, "pwd") == sh(second, "pwd") == "/w/workspace\n"


def test_reading_and_writing_lead_nowhere_else(workspace: Workspace, workspaces: Workspaces) -> None:
    secret = workspaces.root / "secret"
    secret.write_text("secret")
    sh(workspace, f"ln -s {workspaces.root} out; ln -s {secret} file; mkfifo pipe; echo 0123456789 > text")
    assert workspace.read("text", 4) == b"0123"
    assert workspace.read("package/inner/deep.txt", 1 << 20) == b"deep\n"
    refused = {
        "out/secret": "out/secret",
        "file": "there is no such file|Permission denied",
        "pipe": "it is no file",
        "package": "it is no file",
        "none/x": "there is no such file",
        "text/x": "there is no such file",
        "../secret": "inside the workspace",
        "/etc/passwd": "inside the workspace",
        "": "inside the workspace",
        "a\0b": "inside the workspace",
        "\ud800": "inside the workspace",
        "n" * 300: "there is no such file",
    }
    for path, why in refused.items():
        with pytest.raises(WorkspaceError, match=why):
            workspace.read(path, 10)
        with pytest.raises(WorkspaceError):
            workspace.write(path if path != "none/x" else "pipe/x", b"no")
    workspace.write("package/inner/more/new", b"new\n")
    workspace.write("folder-link/code.py", b"answer = 42\n")
    workspace.write("-n $x;'\"", bytes(range(256)) * 4000)
    workspace.write("tool", b"#!/bin/sh\necho other\n")
    assert sh(workspace, "cat package/code.py package/inner/more/new; ./tool") == "answer = 42\nnew\nother\n"
    assert workspace.read("-n $x;'\"", 1 << 20) == bytes(range(256)) * 4000
    assert secret.read_text() == "secret"
    assert not (workspaces.root / "new").exists()


def test_a_hostile_tree_is_read_without_leaving_it(
    workspaces: Workspaces, base: WorkspaceBase, workspace: Workspace
) -> None:
    sh(
        workspace,
        r"""
        ln -s / root; ln -s /etc/shadow shadow; mkfifo pipe; mkdir shut; echo in > shut/in; chmod 000 shut
        echo closed > closed; chmod 000 closed; cp tool suid; chmod 4755 suid
        printf x > "$(printf 'bad\377name')"; ln -s "$(printf 'bad\377')" badlink
        truncate -s 500K sparse 2>/dev/null || dd if=/dev/zero of=sparse bs=1 count=1 seek=511999 2>/dev/null
        mknod whiteout c 0 0; mknod null c 1 3
        rm -r package; ln -s /etc package; rm -r empty; mkfifo empty
        true
        """,
    )
    changes = {change.path: change for change in workspace.diff().changes}
    assert changes["root"].target == "/"
    assert changes["package"].target == "/etc"
    assert changes["shut/in"].data == b"in\n"
    assert changes["closed"].data == b"closed\n"
    assert changes["sparse"].data == bytes(512_000)
    assert not {"whiteout", "null"} & changes.keys()
    refused = {path.path: path.reason for path in workspace.diff().refused}
    assert refused == {
        "pipe": "it is a pipe",
        "empty": "it is a pipe",
        "bad\\xffname": "its name is not UTF-8",
        "badlink": "the target of the link is not UTF-8",
    }
    with workspace.fork() as fork, workspaces.open(base) as other:
        assert fork.diff() == workspace.diff()
        apply(other, workspace.diff())
        assert other.diff().changes == workspace.diff().changes
        assert sh(other, "test -u suid || cat shut/in") == "in\n"
        with pytest.raises(WorkspaceError, match="no base has one"):
            workspace.snapshot()


def test_no_command_reaches_another_workspace_a_base_or_the_host(
    workspaces: Workspaces, base: WorkspaceBase, workspace: Workspace
) -> None:
    """Even if it knows every name."""
    hidden = workspaces.root / "hidden_tests.py"
    hidden.write_text("hidden")
    hidden.chmod(0o644)
    with workspaces.open(base) as other:
        sh(other, "echo other > other")
        [found] = [path for path in workspaces.root.rglob("other") if path.is_file()]
        store = workspaces.root / "v1"
        names = [str(path.relative_to(store)) for path in (found, base.path / "readme", found.parent)]
        places = [str(store), "/workspaces", "/proc/1/root", "/proc/self/root", "/proc/1/cwd", "..", "../.."]
        targets = [f"{place}/{name}" for place in places for name in names] + [str(hidden), *places[:-2]]
        targets += [f"/workspaces/{name}" for name in ("", "..", "v1")]
        script = "".join(
            f"cat '{target}' 2>/dev/null; ls '{target}/' 2>/dev/null; echo evil 2>/dev/null > '{target}';"
            f"ln '{target}' got 2>/dev/null; mv '{target}' got 2>/dev/null; rm -rf '{target}' 2>/dev/null;"
            for target in targets
        )
        assert sh(workspace, f"{script} find .. -name other 2>/dev/null; true") == ""
        # At most an empty folder or a link, which mv has made.
        assert not any(change.data for change in workspace.diff().changes)
        assert other.read("other", 100) == b"other\n"
    assert hidden.read_text() == "hidden"
    assert (base.path / "readme").read_text() == "read me\n"


def test_a_layer_cannot_be_forged_from_inside(workspace: Workspace) -> None:
    """No program makes a mark of overlayfs, by an attribute or by a device."""
    script = (
        "mknod package/code.py.hidden c 0 0; mkdir made; setfattr -n user.overlay.opaque -v y package made;"
        "setfattr -n trusted.overlay.opaque -v y made; rmdir made; true"
    )
    sh(workspace, f"({script}) 2>/dev/null")
    assert told(workspace) == []


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ("i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > f$i; done", EndReason.OUTPUT_LIMIT),
        ("i=0; while :; do i=$((i+1)); : > f$i; done", EndReason.OUTPUT_LIMIT),
        ("head -c 9000000 /dev/zero > f", EndReason.OUTPUT_LIMIT),
        ("i=0; while [ $i -lt 150 ]; do i=$((i+1)); mkdir d; cd d; done", EndReason.OUTPUT_LIMIT),
        ("head -c 3000000 /dev/zero", EndReason.OUTPUT_LIMIT),
        ("head -c 7000000 /dev/zero > f; rm f; head -c 7000000 /dev/zero > g", EndReason.EXITED),
    ],
)
def test_a_command_that_fills_the_workspace_is_ended(
    workspace: Workspace, script: str, ended: EndReason
) -> None:
    assert workspace.run(["sh", "-c", script], limits=LIMITS).ended is ended
    if ended is EndReason.OUTPUT_LIMIT and "mkdir" in script:
        with pytest.raises(WorkspaceError, match="folders inside each other"):
            workspace.diff()
        with pytest.raises(WorkspaceError, match="folders inside each other"):
            workspace.run(["true"], limits=LIMITS)


def test_a_full_workspace_can_be_emptied_and_not_filled_further(workspace: Workspace) -> None:
    fill = ["sh", "-c", "head -c 12000000 /dev/zero > f"]
    assert workspace.run(fill, limits=LIMITS).ended is EndReason.OUTPUT_LIMIT
    with pytest.raises(WorkspaceError, match="beyond its limits"):
        workspace.write("more", b"x")
    with pytest.raises(WorkspaceError, match="bytes"):
        workspace.diff()
    more = ["sh", "-c", "echo more > g"]
    assert workspace.run(more, limits=LIMITS).ended is EndReason.OUTPUT_LIMIT
    sh(workspace, "rm f g")
    workspace.write("more", b"x")
    assert told(workspace) == ["+ file more = b'x'"]


def test_no_process_of_a_command_outlives_it(workspace: Workspace) -> None:
    spin = "while :; do echo late >> late; sleep 0.01; done"
    sh(
        workspace,
        f"({spin}) & (trap '' TERM HUP; {spin}) > /dev/null 2>&1 & setsid sh -c '{spin}' & sleep 0.1",
    )
    sh(workspace, "rm late")
    time.sleep(0.2)
    assert told(workspace) == []
    limits = RunLimits(20.0, 512 << 20, 1 << 20, wall_s=0.3)
    ended = workspace.run(["sh", "-c", f"({spin}) & sleep 60"], limits=limits).ended
    assert ended in {EndReason.WALL_LIMIT, EndReason.STARVED}
    sh(workspace, "rm late")
    time.sleep(0.2)
    assert told(workspace) == []


def test_a_fork_and_its_parent_are_independent(workspace: Workspace, base: WorkspaceBase) -> None:
    sh(workspace, "echo one > one; rm readme; ln one two")
    with workspace.fork() as fork:
        sh(fork, "echo changed > one; rm -r package")
        sh(workspace, "echo parent > mine")
        assert sh(workspace, "cat one two mine; ls package") == "one\none\nparent\ncode.py\ninner\n"
        assert sh(fork, "cat one two; ls") == "changed\none\nempty\nfolder-link\nlink\none\ntool\ntwo\n"
    assert (base.path / "package" / "code.py").read_text() == "answer = 41\n"


def test_a_snapshot_is_a_base(workspaces: Workspaces, workspace: Workspace, base: WorkspaceBase) -> None:
    assert workspace.snapshot() == base
    sh(workspace, "rm -r package/inner; echo now > package/inner; cp tool package/tool; rm link")
    with workspaces.open(workspace.snapshot()) as next_one:
        assert told(next_one) == []
        assert (
            sh(next_one, "cat package/inner; package/tool; ls")
            == "now\ntool\nempty\nfolder-link\npackage\nreadme\ntool\n"
        )


def test_closed_workspaces_leave_nothing(workspaces: Workspaces, base: WorkspaceBase) -> None:
    def count() -> int:
        return sum(1 for _ in (workspaces.root / "v1" / "owners").rglob("*"))

    before = count()
    opened = [workspaces.open(base) for _ in range(3)]
    sh(opened[0], "mkdir -p a/b; echo x > a/b/c; chmod 000 a/b a 2>/dev/null; mkfifo p; true")
    for workspace in opened:
        workspace.close()
        workspace.close()
    assert count() == before
    with pytest.raises(RuntimeError, match="closed"):
        opened[0].diff()


def test_threads_use_workspaces_at_the_same_time(workspaces: Workspaces, base: WorkspaceBase) -> None:
    def work(number: int) -> None:
        with workspaces.open(base) as workspace:
            for _ in range(3):
                sh(workspace, f"echo {number} >> mine")
            seen[number] = workspace.read("mine", 100)

    seen: dict[int, bytes] = {}
    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {number: b"%d\n" % number * 3 for number in range(5)}


def test_files_without_a_name_count(workspace: Workspace) -> None:
    """As long as a process has them open."""
    script = (
        "i=0; while [ $i -lt 30 ]; do i=$((i+1)); "
        "(exec 3> f; rm f; head -c 1000000 /dev/zero >&3; sleep 60)& sleep 0.02; done; wait"
    )
    assert workspace.run(["sh", "-c", script], limits=LIMITS).ended is EndReason.OUTPUT_LIMIT
    assert {change.path for change in workspace.diff().changes} <= {"f"}  # the last one had a name


def test_a_folder_that_is_closed_to_its_owner_counts(workspace: Workspace) -> None:
    script = "mkdir -m 333 shut; i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > shut/f$i; done"
    assert workspace.run(["sh", "-c", script], limits=LIMITS).ended is EndReason.OUTPUT_LIMIT
    with pytest.raises(WorkspaceError, match="beyond its limits"):
        workspace.fork()
    with pytest.raises(WorkspaceError, match="beyond its limits"):
        workspace.snapshot()
    sh(workspace, "rm -rf shut; chmod 000 . 2>/dev/null; true")
    assert sh(workspace, "ls readme") == "readme\n"


def test_a_fork_server_that_has_ended_is_replaced(workspaces: Workspaces, workspace: Workspace) -> None:
    sh(workspace, "echo before > before")
    children = f"/proc/self/task/{threading.get_native_id()}/children"
    for child in Path(children).read_text().split():
        if b"boot.py" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(int(child), signal.SIGKILL)
    time.sleep(0.2)
    assert sh(workspace, "cat before; pwd > after; cat after").startswith("before\n/")
    assert workspace.read("after", 1000).endswith(b"workspace\n")
