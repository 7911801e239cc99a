"""The tools of the environment ``repository``: a shell, a viewer, an editor, and the end of the work."""

from __future__ import annotations

import shlex
from typing import Any, ClassVar

from whetstone.environments.repository_work import current_work
from whetstone.environments.tool import Tool, ToolError, ToolSession
from whetstone.sandbox import Workspace

_MOST_BYTES = 1 << 20
_NOTE_CHARS = 120
# Commands have limits of their own. This is for a machine that is overloaded.
_TIMEOUT_S = 7200.0


class EndOfWork(Exception):
    """The model has ended its work."""


def _schema(required: tuple[str, ...], **properties: tuple[str, str]) -> dict[str, Any]:
    described = {name: {"type": kind, "description": text} for name, (kind, text) in properties.items()}
    return {
        "type": "object",
        "properties": described,
        "required": list(required),
        "additionalProperties": False,
    }


class BashTool(Tool):
    """Runs a shell command."""

    name = "bash"
    description = (
        "Runs a shell command in the code base and returns what it prints. Files stay until the next call; "
        "processes, variables and the working directory do not. There is no network."
    )
    timeout_s = _TIMEOUT_S
    parameters: ClassVar[dict[str, Any]] = _schema(("command",), command=("string", "the shell command"))

    async def call(self, arguments: dict[str, Any], session: ToolSession) -> str:
        """See Tool."""
        return (await current_work().run(arguments["command"]))[0]


class ViewTool(Tool):
    """Shows a file or a folder."""

    name = "view"
    description = "Shows the lines of a file with their numbers, or the names in a folder."
    timeout_s = _TIMEOUT_S
    parameters: ClassVar[dict[str, Any]] = _schema(
        ("path",),
        path=("string", "a relative path; `.` is the code base"),
        start=("integer", "the first line, from 1"),
        end=("integer", "the last line"),
    )

    async def call(self, arguments: dict[str, Any], session: ToolSession) -> str:
        """See Tool."""
        work, path = current_work(), arguments["path"].removeprefix("./") or "."
        first, last = arguments.get("start", 1), arguments.get("end")
        if first < 1 or (last is not None and last < first):
            raise ToolError("lines begin at 1, and `end` is not before `start`")
        try:
            data = await work.use(lambda workspace: workspace.read(path, _MOST_BYTES + 1))
        except ToolError:
            # It may be a folder, which a workspace does not list.
            text, code = await work.run(f"cd -- {shlex.quote(path)} && ls -Ap", counted=False)
            if code:
                raise
            return text or "The folder is empty."
        work.files.add(path)
        return numbered_lines(as_text(path, data), first, last, work.shared.limits.output_chars)


class EditTool(Tool):
    """Replaces a text in a file, or makes a file."""

    name = "edit"
    description = (
        "Replaces a text in a file, which must occur exactly once. Without `search`, it makes a new file."
    )
    timeout_s = _TIMEOUT_S
    parameters: ClassVar[dict[str, Any]] = _schema(
        ("path", "replace"),
        path=("string", "a relative path"),
        search=("string", "the text to replace, with its indentation"),
        replace=("string", "the new text"),
    )

    async def call(self, arguments: dict[str, Any], session: ToolSession) -> str:
        """See Tool."""
        work, path = current_work(), arguments["path"].removeprefix("./")
        search, new = arguments.get("search", ""), arguments["replace"]
        if search:
            result = await work.use(lambda workspace: _edit(workspace, path, search, new))
        else:
            place = shlex.quote(path)
            if (await work.run(f"test -e {place} || test -L {place}", counted=False))[1] == 0:
                raise ToolError(f"`{path}` exists; give the text to replace as `search`")
            await work.use(lambda workspace: workspace.write(path, new.encode()))
            result = f"Created {path}."
        work.counts["edits"] += 1
        return result


class SubmitTool(Tool):
    """Ends the work."""

    name = "submit"
    description = "Ends the work. The code base as it is now is judged."
    parameters: ClassVar[dict[str, Any]] = _schema(())

    async def call(self, arguments: dict[str, Any], session: ToolSession) -> str:
        """See Tool."""
        raise EndOfWork


def as_text(path: str, data: bytes) -> str:
    """Return a file as text. Raises ToolError for other data and for a file that is too long."""
    if len(data) > _MOST_BYTES:
        raise ToolError(f"`{path}` has more than {_MOST_BYTES >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"`{path}` is no text in UTF-8") from None


def numbered_lines(text: str, first: int, last: int | None, most: int) -> str:
    """Return lines with their numbers; as many whole lines as have up to ``most`` characters."""
    lines = text.removesuffix("\n").split("\n")
    shown: list[str] = []
    room = most - _NOTE_CHARS
    for number, line in enumerate(lines[first - 1 : last], first):
        shown.append(f"{number}\t{line}")
        room -= len(shown[-1]) + 1
        if room < 0 and len(shown) > 1:
            shown.pop()
            break
    until = first + len(shown) - 1
    if not shown:
        raise ToolError(f"the file has {len(lines)} lines")
    if until < len(lines) and until != last:
        shown.append(f"[lines {first} to {until} of {len(lines)}; give `start` to see more]")
    return "\n".join(shown)


def edited(path: str, line: int) -> str:
    """Return the result of an edit."""
    return f"Edited {path}, line {line}."


def _edit(workspace: Workspace, path: str, search: str, new: str) -> str:
    """Edit a file, and return the result. Raises ToolError and WorkspaceError."""
    text = as_text(path, workspace.read(path, _MOST_BYTES + 1))
    at = text.find(search)
    if at < 0 or text.find(search, at + 1) >= 0:
        found = "not" if at < 0 else "more than once"
        raise ToolError(f"`search` occurs {found} in `{path}`; nothing is changed")
    whole = text[:at] + new + text[at + len(search) :]
    workspace.write(path, whole.encode())
    return edited(path, text.count("\n", 0, at) + 1)
