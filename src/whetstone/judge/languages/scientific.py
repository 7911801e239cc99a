"""Python with numpy and its relatives: which programs need them, and the fork-server that has them loaded."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from whetstone.sandbox import Profile

PACKAGES = ("numpy", "pandas", "scipy", "sympy", "networkx", "sortedcontainers")
# Imported before the fork: what programs use of a package that loads its parts only when asked.
_PARTS = {"scipy": ("scipy.special", "scipy.sparse", "scipy.optimize", "scipy.spatial", "scipy.stats")}
_DISTRIBUTION = re.compile(r"[A-Za-z0-9._-]*")
_NO_PACKAGES = ("..", "__pycache__")
# More threads than one would count against the CPU limit, and gain nothing on small inputs.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "NUMEXPR", "BLIS")}


@cache
def installed_packages() -> dict[str, str]:
    """The scientific packages beside Whetstone, none of them imported, with the folder each lies in."""
    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.origin and Path(spec.origin).name == "__init__.py":
            found[name] = str(Path(spec.origin).parent.parent)
    return found


def needs_scientific(sources: Iterable[str]) -> bool:
    """Whether any source seems to import an installed scientific package. Being wrong costs time alone."""
    installed = installed_packages()
    for source in sources:
        named = [name for name in installed if name in source]
        if named and any(
            "import" in line and any(name in line for name in named) for line in source.splitlines()
        ):
            return True
    return False


@cache
def _files(package: str) -> tuple[str, ...]:
    """The top-level names that a package and all that it needs have where they are installed.

    Only these are shown to programs: beside them lie other packages, and problem sets with their answers.
    """
    waiting, names, seen = [package], {package, f"{package}.libs"}, set[str]()
    while waiting:
        wanted = waiting.pop()
        if wanted in seen:
            continue
        seen.add(wanted)
        try:
            found = distribution(wanted)
        except PackageNotFoundError:
            continue
        names.update(file.parts[0] for file in found.files or () if file.parts[0] not in _NO_PACKAGES)
        needs = [need for need in found.requires or () if "extra ==" not in need]
        waiting += [match[0] for need in needs if (match := _DISTRIBUTION.match(need))]
    return tuple(sorted(names))


def scientific_profile() -> Profile:
    """The fork-server that has all installed scientific packages loaded."""
    installed = installed_packages()
    folders = tuple(dict.fromkeys(installed.values()))
    imports = [part for name in installed for part in (name, *_PARTS.get(name, ()))]
    paths = [os.path.join(folder, file) for name, folder in installed.items() for file in _files(name)]
    reads = [path for path in dict.fromkeys(paths) if os.path.exists(path)]
    return Profile("scientific", reads=reads, imports=imports, import_from=folders, environment=_ONE_THREAD)
