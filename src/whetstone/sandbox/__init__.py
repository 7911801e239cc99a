"""Runs one untrusted program within limits and reports what happened. Knows no tests and no rewards.

Names are imported on first use, so that ``Tier`` is available without loading the fork-server.
"""

from typing import TYPE_CHECKING

from whetstone.core.lazy import lazy_names

if TYPE_CHECKING:
    from whetstone.sandbox.client import Sandbox
    from whetstone.sandbox.cpu_starvation import LostTime
    from whetstone.sandbox.job import (
        EndReason,
        RunLimits,
        RunResult,
        SandboxFault,
        SandboxJob,
        SandboxStopped,
        Tier,
    )
    from whetstone.sandbox.run import SandboxRun
    from whetstone.sandbox.session import PythonSession, PythonSessions
    from whetstone.sandbox.session_run import CallEnd, SessionLimits, SessionResult
    from whetstone.sandbox.supervision import supervise
    from whetstone.sandbox.workspace.base import WorkspaceBase
    from whetstone.sandbox.workspace.changes import (
        Change,
        PathChange,
        RefusedPath,
        TreeEntry,
        WorkspaceDiff,
        WorkspaceLimits,
    )
    from whetstone.sandbox.workspace.tree import WorkspaceError
    from whetstone.sandbox.workspace.workspaces import WORKSPACE_PROFILE, Workspace, Workspaces
    from whetstone.sandbox.zygote.lockdown import MAX_OPEN_FILES, MAX_TASKS
    from whetstone.sandbox.zygote.profile import TMP_BYTES, Profile

__all__ = [
    "MAX_OPEN_FILES",
    "MAX_TASKS",
    "TMP_BYTES",
    "WORKSPACE_PROFILE",
    "CallEnd",
    "Change",
    "EndReason",
    "LostTime",
    "PathChange",
    "Profile",
    "PythonSession",
    "PythonSessions",
    "RefusedPath",
    "RunLimits",
    "RunResult",
    "Sandbox",
    "SandboxFault",
    "SandboxJob",
    "SandboxRun",
    "SandboxStopped",
    "SessionLimits",
    "SessionResult",
    "Tier",
    "TreeEntry",
    "Workspace",
    "WorkspaceBase",
    "WorkspaceDiff",
    "WorkspaceError",
    "WorkspaceLimits",
    "Workspaces",
    "supervise",
]

__getattr__ = lazy_names(
    __name__,
    {
        "whetstone.sandbox.client": ["Sandbox"],
        "whetstone.sandbox.job": [
            "EndReason",
            "SandboxJob",
            "RunLimits",
            "RunResult",
            "SandboxFault",
            "SandboxStopped",
            "Tier",
        ],
        "whetstone.sandbox.run": ["SandboxRun"],
        "whetstone.sandbox.session": ["PythonSession", "PythonSessions"],
        "whetstone.sandbox.session_run": ["CallEnd", "SessionLimits", "SessionResult"],
        "whetstone.sandbox.cpu_starvation": ["LostTime"],
        "whetstone.sandbox.supervision": ["supervise"],
        "whetstone.sandbox.zygote.lockdown": ["MAX_OPEN_FILES", "MAX_TASKS"],
        "whetstone.sandbox.workspace.base": ["WorkspaceBase"],
        "whetstone.sandbox.workspace.changes": [
            "Change",
            "TreeEntry",
            "PathChange",
            "RefusedPath",
            "WorkspaceDiff",
            "WorkspaceLimits",
        ],
        "whetstone.sandbox.workspace.tree": ["WorkspaceError"],
        "whetstone.sandbox.workspace.workspaces": ["WORKSPACE_PROFILE", "Workspace", "Workspaces"],
        "whetstone.sandbox.zygote.profile": ["TMP_BYTES", "Profile"],
    },
)
