"""Run pytest with fewer rights than one has: ``python lesser_rights.py NAMESPACES PYTEST-ARGUMENTS...``.

Root becomes a user without any right, who reaches the interpreter and this checkout even if they lie in
root's home. NAMESPACES is ``allowed`` or ``refused`` (the kernel then answers as it does in many containers).
A folder of that user's own is the home, and for temporary files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from stat import S_IXOTH

from whetstone.sandbox.zygote import kernel
from whetstone.sandbox.zygote.seccomp import Filter
from whetstone.sandbox.zygote.syscall_numbers import number

REPOSITORY = Path(__file__).parents[2]
EXPECTED_TIER = "WHETSTONE_TESTS_EXPECT_TIER"
_ORDINARY_UID = 54321
_ANY_NAMESPACE = 0x7E020000
_NAMESPACE_CALLS = (272, 308) if os.uname().machine == "x86_64" else (97, 268)  # unshare, setns
_CLONE3 = 435
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _FIRST_ARGUMENT_AT = 0, 16


def open_to_all(path: Path) -> bool:
    """Whether any user can walk to a folder."""
    return all(folder.stat().st_mode & S_IXOTH for folder in (path, *path.parents))


def show(paths: list[Path]) -> None:
    """In a mount namespace of our own, put these folders into readable ones where theirs are closed."""
    hidden = [path for path in paths if not open_to_all(path)]
    if not hidden:
        return
    kernel.unshare(kernel.CLONE_NEWNS, "mount namespace")
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kept = {path: os.open(path, os.O_PATH) for path in hidden}
    closed = {next(p for p in reversed(path.parents) if not p.stat().st_mode & S_IXOTH) for path in hidden}
    for folder in closed:
        kernel.mount("tmpfs", str(folder), "tmpfs", 0, "size=1m,mode=0755")
    for path, fd in kept.items():
        path.mkdir(parents=True, exist_ok=True)
        kernel.mount(f"/proc/self/fd/{fd}", str(path), None, kernel.MS_BIND | kernel.MS_REC)


def become_ordinary() -> None:
    """Give up root and every group."""
    os.setgroups([])
    os.setresgid(_ORDINARY_UID, _ORDINARY_UID, _ORDINARY_UID)
    os.setresuid(_ORDINARY_UID, _ORDINARY_UID, _ORDINARY_UID)


def refuse_namespaces() -> None:
    """From here on nobody below makes or enters a namespace, as under the filter of many containers."""
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    code = [(_LOAD, 0, 0, _NUMBER_AT)]
    for call in _NAMESPACE_CALLS:
        code += [(_EQUAL, 0, 1, call), refuse]
    # A structure in memory cannot be looked into: as if there was no such call, and programs use the other.
    code += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    code += [(_EQUAL, 0, 3, number("clone") or 0), (_LOAD, 0, 0, _FIRST_ARGUMENT_AT)]
    code += [(_ANY_BIT, 0, 1, _ANY_NAMESPACE), refuse, (_RETURN, 0, 0, _ALLOW)]
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, "no new privileges")
    Filter(code).install("outer filter")


def main(namespaces: str, arguments: list[str]) -> int:
    """Run pytest; its exit code."""
    home = Path(tempfile.mkdtemp(prefix="lesser-"))
    environment = {
        **{
            name: os.environ[name]
            for name in ("PATH", "LANG", "PYTHONPATH", EXPECTED_TIER)
            if name in os.environ
        },
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(home / "hypothesis"),
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    pid = os.fork()
    if pid == 0:
        status = 70
        with contextlib.suppress(KeyboardInterrupt):
            if os.geteuid() == 0:
                os.chown(home, _ORDINARY_UID, _ORDINARY_UID)
                show([Path(os.path.realpath(sys.base_prefix)), Path(sys.prefix), REPOSITORY])
                become_ordinary()
            if namespaces == "refused":
                refuse_namespaces()
            status = subprocess.run(command, cwd=REPOSITORY, env=environment, check=False).returncode
        os._exit(status)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
