"""The optional packages of Whetstone, which it finds through entry points and never imports by name.

``importlib.metadata`` takes 20 ms to import, and judge workers import this module. So it is imported on use.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from whetstone.core.errors import UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

# The commands of packages: a verb, or a verb and its action. Each is an entry point of the group
# `whetstone.commands`: a function that declares the command, as `add_command` of `whetstone.cli.flags` does.
PACKAGE_OF_COMMAND = {
    "exam": "whetstone-exam",
    "rejudge": "whetstone-exam",
    "eval.rejudge": "whetstone-graders",
    "eval.rating": "whetstone-graders",
    "data.audit": "whetstone-curation",
    "data.repositories": "whetstone-curation",
    "data.strengthen": "whetstone-curation",
}


DISTRIBUTION = "whetstone-rl"


def install_command(extra: str = "", package: str = DISTRIBUTION) -> str:
    """Return the command that adds an extra, or an optional package of this repository, to this installation.

    In a clone it is for the folder of the clone, and asks no index for a name of ours. An installed wheel has
    its own name.
    """
    root = Path(__file__).parents[3]
    if not ((root / "pyproject.toml").is_file() and (root / "packages").is_dir()):
        return f"pip install '{package}[{extra}]'" if extra else f"pip install {package}"
    if package == DISTRIBUTION:
        return f"pip install -c constraints.txt -e '.[{extra}]'"
    return f"pip install -c constraints.txt ./packages/{package.removeprefix('whetstone-')}"


def missing_package(subject: str, package: str) -> str:
    """Return the message that a subject needs an optional package, with the remedy."""
    return f"{subject} needs the package {package}; install it: {install_command(package=package)}"


def load_part(group: str, name: str, *, subject: str, package: str) -> Any:
    """Return the object that the entry point ``name`` of a group refers to.

    subject: what needs it, for the message. Raises UserError with the command that installs ``package`` if no
    installed package provides it.
    """
    installed = _entry_points(group)
    if name not in installed.names:
        raise UserError(missing_package(subject, package))
    return installed[name].load()


def load_command(name: str) -> Any:
    """Return the function that declares a command of ``PACKAGE_OF_COMMAND``. Raises UserError without its
    package."""
    subject = f"`whetstone {name.replace('.', ' ')}`"
    return load_part("whetstone.commands", name, subject=subject, package=PACKAGE_OF_COMMAND[name])


def load_grader(name: str) -> Any:
    """Return the grader ``name``. Raises UserError if no installed package provides it."""
    return load_part("whetstone.graders", name, subject=f"harness `{name}`", package="whetstone-graders")


def installed_comparisons() -> tuple[str, ...]:
    """Return the names of the installed comparison modules, for ``Judge(comparisons=…)``."""
    return tuple(sorted(entry.value for entry in _entry_points("whetstone.comparisons")))


def _entry_points(group: str) -> EntryPoints:
    from importlib.metadata import entry_points

    return entry_points(group=group)
