"""Harness files as the sandbox takes them: one self-contained file each.

A harness is written as a module of this package, with ordinary imports. In the locked child there
is no package to import from, so a bundle carries the modules that it needs along with it.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
_PACKAGE = "whetstone.judge"
_BASE = ("values", "harness.loading")
_LINKED = (*_BASE, "harness.link")
_NEEDS: dict[str, tuple[str, ...]] = {
    "call": _BASE,
    "checker": _BASE,
    "program": _LINKED,
    "tests": (*_LINKED, "harness.program", "harness.proxy"),
}

_LOADER = """
import sys, types

def _carry(name, source):
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, "<" + name + ">", "exec"), module.__dict__)

_before = set(sys.modules)
for _name in ("whetstone", "whetstone.judge", "whetstone.judge.harness"):
    sys.modules[_name] = types.ModuleType(_name)
"""


def write_bundles(folder: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """Write the named harnesses to ``folder``; return name → file."""
    paths: dict[str, Path] = {}
    for name in names:
        parts = [_LOADER]
        for module in (*_NEEDS[name], f"harness.{name}"):
            source = _HERE.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
            parts.append(f"_carry({_PACKAGE + '.' + module!r}, {source!r})")
        parts.append(f"main = sys.modules[{_PACKAGE + '.harness.' + name!r}].main")
        # The program must find no trace of us among the modules it can import.
        parts.append(
            "for _name in set(sys.modules) - _before:\n"
            "    if _name.partition('.')[0] == 'whetstone':\n"
            "        del sys.modules[_name]\n"
        )
        paths[name] = folder / f"{name}.py"
        paths[name].write_text("\n".join(parts), encoding="utf-8")
    return paths
