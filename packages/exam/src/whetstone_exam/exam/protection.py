"""Isolation of the process that runs another project's grader, which may execute hostile programs in itself.

The process gets namespaces of its own for processes, mounts, the network and shared memory. Every file system
is read-only except an empty temporary folder, and the process has no capabilities. All processes end with it.
This protects the machine of the user from the programs of an exam. It is no judge's sandbox: the grader and
the programs still share everything inside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from whetstone.core.errors import UserError

PROTECTION = "own namespaces of processes, mounts, network and IPC; read-only files; no capabilities"
NO_PROTECTION = "none (--unprotected)"

_TOOLS = ("unshare", "setpriv", "mount", "sh")

# $1: the temporary folder. $2: `hide` makes /tmp an empty folder as well. A file system that cannot be made
# read-only ends the script. Mounts below /proc and /sys are of the kernel, and the fresh /proc covers those
# that name processes.
_SCRIPT = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
while read -r _ point kind options _; do
  case "$point" in /proc|/proc/*|/sys|/sys/*) continue;; esac
  point=$(printf '%b' "$point")
  keep=$(printf '%s' "$options" | tr ',' '\\n' | grep -E '^(nosuid|nodev|noexec)$' | tr '\\n' ',' || true)
  mount -o "remount,bind,ro,${keep%,}" "$point"
done < /proc/self/mounts
if [ "$2" = hide ]; then mount -t tmpfs -o size=256m,mode=1777 tmpfs /tmp; mkdir -p "$1"; fi
mount -t tmpfs -o size=256m,mode=1777 tmpfs "$1"
mount -t tmpfs -o size=64m,mode=1777 tmpfs /dev/shm
cd "$1"
export TMPDIR="$1" HOME="$1"
shift 2
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
"""


def protected(command: list[str], folder: str, needed: Sequence[str] = ()) -> list[str]:
    """Return the command that runs ``command`` with protection, with ``folder`` as its temporary folder.

    Some graders write to /tmp whatever TMPDIR says, so /tmp is an empty folder as well, unless a path of
    ``needed`` lies in it.
    """
    tmp = "keep" if any(Path(path).absolute().is_relative_to("/tmp") for path in needed) else "hide"
    return [*_unshare(), "sh", "-c", _SCRIPT, "sh", folder, tmp, *command]


def _unshare() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--pid", "--fork", "--kill-child", "--mount", "--net", "--ipc"]


@cache
def check_protection(folder: str) -> None:
    """Raise UserError if this machine cannot protect, with the reason and the remedy."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        reason = f"{', '.join(missing)} is missing (install util-linux)"
    else:
        done = subprocess.run(
            protected(["sh", "-c", "! touch /exam-test 2>/dev/null && touch here"], folder),
            capture_output=True,
            text=True,
            timeout=60,
        )
        reason = "" if done.returncode == 0 else (done.stderr.strip() or f"exit status {done.returncode}")
    if reason:
        raise UserError(
            f"this machine cannot protect itself from the programs of the exam: {reason}. Run the exam as "
            "root, in a container that allows namespaces, or on a machine without data of value with "
            "--unprotected"
        )
